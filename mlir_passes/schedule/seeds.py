"""Starts for the heuristics from the relaxed choice of `bound.py`."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_passes.schedule.bound import Bound
from mlir_passes.schedule.decode import to_genes
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.moves import cut, touches
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.walk import Pairs, Walker


def seeds(problem: Problem, bound: Bound) -> tuple[tuple[Hold, ...], ...]:
    """Two: what the bound lets go leaves memory and comes back when an op of the step reads it, or as soon as a
    recomputation brings it back. None where the bound lets nothing go."""
    if not bound.gone:
        return ()
    walker = Walker(problem)
    moments: dict[int, list[int]] = {}
    for index, moment in sorted(bound.gone):
        moments.setdefault(index, []).append(moment)
    late = {
        index: (index in bound.paged, _apart(walker.default(index), problem.tensors[index].readers, found))
        for index, found in moments.items()
    }
    touched = touches(problem, walker.walk(late, record=True).steps)
    early = {
        index: (paged, _apart(walker.default(index), touched[index], moments[index]))
        for index, (paged, _) in late.items()
    }
    return to_genes(problem, late), to_genes(problem, early)


def _apart(pairs: Pairs, used: Sequence[int], moments: Sequence[int]) -> Pairs:
    """The stages without those from the last use before each moment to the first use after it."""
    first, last = (pairs[0][0], pairs[-1][1]) if pairs else (0, 0)
    for moment in moments:
        before = max((use for use in used if use <= moment), default=first)
        after = min((use for use in used if use > moment), default=last)
        pairs = cut(pairs, max(before, first), after) if after > before else pairs
    return pairs

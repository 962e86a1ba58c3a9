"""Starts for the heuristics from the relaxed choice of `bound.py`."""

from __future__ import annotations

from mlir_passes.schedule.bound import Bound
from mlir_passes.schedule.decode import to_genes
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.moves import cut, touches
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.walk import Pairs, Stay, Walker


def seeds(problem: Problem, bound: Bound) -> tuple[tuple[Hold, ...], ...]:
    """Two: what the bound lets go leaves memory around its peak and comes back when an op of the step reads it, or
    as soon as a recomputation brings it back. None where the bound lets nothing go."""
    walker = Walker(problem)
    if not bound.remats | bound.paged:
        return ()
    late: dict[int, Stay] = {}
    for index, tensor in enumerate(problem.tensors):
        paged = index in bound.paged
        if paged or tensor.maker in bound.remats:
            pairs = walker.default(index)
            used = sorted({*tensor.readers, *(pairs[-1][1:] if pairs else ())})
            late[index] = (paged, _apart(pairs, used, bound.peak))
    walk = walker.walk(late, record=True)
    touched = touches(problem, walk.steps)
    early = {
        index: (stay[0], _apart(walker.default(index), touched[index], bound.peak)) for index, stay in late.items()
    }
    return to_genes(problem, late), to_genes(problem, early)


def _apart(pairs: Pairs, used: list[int], peak: int) -> Pairs:
    """The stages without those between the last use until the peak and the first use after it."""
    if not pairs:
        return pairs
    first, last = pairs[0][0], pairs[-1][1]
    before = max((use for use in used if use <= peak), default=first)
    after = min((use for use in used if use > peak), default=last)
    return cut(pairs, max(before, first), after) if after > before else pairs

"""What a schedule pays for beyond computing each op once, in joules or seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Usage


@dataclass(frozen=True)
class Expense:
    """By op: of one more computation; by tensor: of one transfer. once: of computing each op once."""

    compute: Sequence[float]
    out: Sequence[float]
    into: Sequence[float]
    once: float
    minimise: str

    def of(self, usage: Usage) -> float:
        """What a line takes in all."""
        return usage.energy_j if self.minimise == "energy" else usage.time_s


def expense(problem: Problem, minimise: str) -> Expense:
    """The costs that count; raises ValueError for a word other than energy and time."""
    if minimise == "energy":
        found = [op.energy_j for op in problem.ops], [t.out_j for t in problem.tensors]
        return Expense(*found, [t.in_j for t in problem.tensors], problem.energy_j, minimise)
    if minimise == "time":
        found = [op.time_s for op in problem.ops], [t.out_s for t in problem.tensors]
        return Expense(*found, [t.in_s for t in problem.tensors], problem.time_s, minimise)
    raise ValueError(f"a schedule minimises energy or time, not {minimise}")


def homeless(problem: Problem, paging: bool) -> frozenset[int]:
    """The tensors that are there before the first op and stay in memory all the time: what may not be paged, and what
    nobody reads, which would never leave the store."""
    start = ((i, t) for i, t in enumerate(problem.tensors) if t.maker == START)
    return frozenset(i for i, t in start if not (paging and t.pageable and t.readers))

"""When no schedule can keep a budget: whose working set forbids it, and how much is needed."""

from __future__ import annotations

from dataclasses import dataclass

from mlir_passes.schedule.decode import decode, encode
from mlir_passes.schedule.exact import Task, least_memory
from mlir_passes.schedule.expense import homeless
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import ScheduleError, replay


class Infeasible(ScheduleError):
    """No schedule was found within the budget.

    needed_bytes: the smallest budget known to suffice; `exact`: nothing under it can, else something may. late: the
    budget is that large, and it is the deadline that forbids it.
    floor_bytes: what the op `op` takes alone, so that no schedule needs less.
    """

    def __init__(self, budget_bytes: int, needed_bytes: int, floor: Floor, exact: bool, why: str = "") -> None:
        what = f"no schedule within {budget_bytes:,} bytes{why}"
        if budget_bytes < floor.bytes:
            what += f": {floor.op} alone needs {floor.bytes:,} bytes ({floor.parts})"
        self.late = needed_bytes <= budget_bytes
        needs = f"{needed_bytes:,} bytes suffice" if exact else f"at most {needed_bytes:,} bytes are needed"
        needs += " if the step may take longer" if self.late else ""
        super().__init__(f"{what}; {needs}")
        self.budget_bytes, self.needed_bytes, self.exact = budget_bytes, needed_bytes, exact
        self.floor_bytes, self.op = floor.bytes, floor.op


@dataclass(frozen=True)
class Floor:
    """Bytes that any schedule needs: those of the op with the largest working set. parts: in words."""

    bytes: int
    op: str
    parts: str


def floor(problem: Problem, paging: bool = True) -> Floor:
    """The largest working set: what an op reads and makes, its workspace, and what never leaves memory."""
    tensors = problem.tensors
    fixed = homeless(problem, paging)
    best: tuple[int, int, int, int] = (-1, 0, 0, 0)  # bytes, the first op that takes them, its tensors and workspace
    for number, op in enumerate(problem.ops):
        used = sum(tensors[t].bytes for t in {*op.reads, *op.makes} - fixed)
        best = max(best, (used + op.workspace, -number, used, op.workspace))
    always = sum(tensors[t].bytes for t in fixed)
    parts = f"tensors {best[2]:,}" + (f", workspace {best[3]:,}" if best[3] else "")
    parts += f", always in memory {always:,}" if always else ""
    if not problem.ops:
        return Floor(always, "what the step is given", parts)
    return Floor(best[0] + always, problem.ops[-best[1]].name, parts)


def smallest(task: Task, lowest: Floor, time_limit_s: float, enough: int) -> tuple[tuple[Hold, ...], int, bool]:
    """Genes of the smallest peak found, that peak, and whether no line has a smaller one. The deadline is left out.

    A peak of `enough` bytes is made no smaller.
    """
    problem = task.problem
    allow = [way for way, on in (("remat", task.remat), ("page", task.paging)) if on]
    holds = greedy(problem, lowest.bytes, (), allow)
    steps = decode(problem, holds).steps
    needed = replay(problem, steps).peak_bytes
    if needed > max(lowest.bytes, enough):
        other = encode(problem, least_memory(task, time_limit_s, lowest.bytes, steps))
        peak = replay(problem, decode(problem, other).steps).peak_bytes
        holds, needed = (other, peak) if peak < needed else (holds, needed)
    return holds, needed, needed <= lowest.bytes

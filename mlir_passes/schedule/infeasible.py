"""When no schedule can keep a budget: whose working set forbids it, and how much is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.exact import Task, least_memory
from mlir_passes.schedule.expense import homeless
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import ScheduleError, Step, replay


class Infeasible(ScheduleError):
    """No schedule was found within the budget.

    needed_bytes: the smallest budget known to suffice; `exact`: nothing under it can, else something may.
    floor_bytes: what the op `op` takes alone, so that no schedule needs less.
    """

    def __init__(self, budget_bytes: int, needed_bytes: int, floor: Floor, exact: bool, why: str = "") -> None:
        what = f"no schedule within {budget_bytes:,} bytes{why}"
        if budget_bytes < floor.bytes:
            what += f": {floor.op} alone needs {floor.bytes:,} bytes ({floor.parts})"
        needs = f"{needed_bytes:,} bytes suffice" if exact else f"at most {needed_bytes:,} bytes are needed"
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


def smallest(task: Task, lowest: Floor, time_limit_s: float) -> tuple[int, bool]:
    """The smallest budget found to suffice, and whether it is the smallest of all. The deadline is left out."""
    problem = task.problem
    allow = [way for way, on in (("remat", task.remat), ("page", task.paging)) if on]
    steps = decode(problem, greedy(problem, lowest.bytes, (), allow)).steps
    needed = _peak(problem, steps)
    if needed > lowest.bytes:
        exact = least_memory(task, time_limit_s, lowest.bytes, steps)
        needed = min(needed, _peak(problem, exact))
    return needed, needed <= lowest.bytes


def _peak(problem: Problem, steps: Sequence[Step]) -> int:
    return replay(problem, steps).peak_bytes

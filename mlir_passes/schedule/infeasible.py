"""When no schedule can keep a budget: whose working set forbids it, and how much is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.schedule.clock import Clock
from mlir_passes.schedule.decode import decode, encode
from mlir_passes.schedule.exact import Task, least_memory
from mlir_passes.schedule.expense import homeless
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import ScheduleError, replay

LEAST_S = 0.1  # with less there is no use in an exact search


class Infeasible(ScheduleError):
    """No schedule within the limits was found; `proven`: there is none.

    needed_bytes: the smallest budget known to suffice; `exact`: nothing under it can, else something may. late: the
    budget is that large, and it is the deadline that forbids it.
    floor_bytes: what the op `op` takes alone, so that no schedule needs less. why: the deadline, and who proved it, in
    words. looked_s: how long one was looked for, where nothing is proven.
    """

    def __init__(
        self,
        budget_bytes: int,
        needed_bytes: int,
        floor: Floor,
        exact: bool,
        why: str = "",
        proven: bool = True,
        looked_s: float = 0.0,
    ) -> None:
        what = f"{'no schedule' if proven else 'found no schedule'} within {budget_bytes:,} bytes{why}"
        what += "" if proven else f" in {looked_s:.3g} s"
        if budget_bytes < floor.bytes:
            what += f": {floor.op} alone needs {floor.bytes:,} bytes ({floor.parts})"
        self.late = needed_bytes <= budget_bytes
        needs = f"{needed_bytes:,} bytes suffice" if exact else f"at most {needed_bytes:,} bytes are needed"
        needs += " if the step may take longer" if self.late else ""
        super().__init__(f"{what}; {needs}")
        self.budget_bytes, self.needed_bytes, self.exact = budget_bytes, needed_bytes, exact
        self.floor_bytes, self.op = floor.bytes, floor.op
        self.floor, self.why, self.proven, self.looked_s = floor, why, proven, looked_s

    def within(self, budget_bytes: int, looked_s: float) -> Infeasible:
        """The same of the budget that was asked for, where a schedule's bytes are counted in larger units, and of all
        the time that it was looked for."""
        return Infeasible(budget_bytes, self.needed_bytes, self.floor, self.exact, self.why, self.proven, looked_s)


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


def smallest(
    task: Task, lowest: Floor, time_limit_s: float, enough: int, starts: Sequence[Sequence[Hold]] = ()
) -> tuple[tuple[Hold, ...], int, bool]:
    """Genes of the smallest peak found within the time, that peak, and whether no line has a smaller one. The deadline
    is left out. A peak of `enough` bytes is made no smaller. starts: genes that are near it.
    """
    problem, clock, half = task.problem, Clock.of(time_limit_s), Clock.of(time_limit_s / 2)
    allow = [way for way, on in (("remat", task.remat), ("page", task.paging)) if on]
    enough = max(lowest.bytes, enough)
    peak, holds = _peak(problem, ())
    for start in starts:
        if clock.left_s() > 0:
            peak, holds = min((peak, holds), _peak(problem, start), key=_bytes)
    if peak > enough and clock.left_s() > 0:
        found = greedy(problem, lowest.bytes, (), allow, stop=lambda: half.left_s() <= 0)
        peak, holds = min((peak, holds), _peak(problem, found), key=_bytes)
    if peak > enough and clock.left_s() > LEAST_S:
        steps = least_memory(task, clock.left_s(), lowest.bytes, decode(problem, holds).steps)
        peak, holds = min((peak, holds), _peak(problem, encode(problem, steps)), key=_bytes)
    return holds, peak, peak <= lowest.bytes


def _peak(problem: Problem, holds: Sequence[Hold]) -> tuple[int, tuple[Hold, ...]]:
    return replay(problem, decode(problem, holds).steps).peak_bytes, tuple(holds)


def _bytes(found: tuple[int, tuple[Hold, ...]]) -> int:
    return found[0]

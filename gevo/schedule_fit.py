"""A schedule whose buffers, with the gaps between them, stay within the budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gevo.errors import CampaignError
from gevo.schedule_setup import OnStage, Ready
from gevo.scheduled import Scheduled, stopped
from mlir_passes.arena import up_to_aligned
from mlir_passes.program import Program
from mlir_passes.schedule.clock import Clock
from mlir_passes.schedule.genes import Before
from mlir_passes.schedule.infeasible import floor
from mlir_passes.schedule.order import ordered
from mlir_passes.schedule.overlap import makespan, overlapped, waiting
from mlir_passes.schedule.request import Request, Solution
from mlir_passes.schedule.solve import Infeasible, solve
from mlir_passes.schedule.steps import Step, keep_all, replay

_ORDERING, _FIRST = 0.1, 0.6  # of the time, at most: for an order, and for the first solve, mostly the only one
_AGAIN = 0.2  # of the time, with which it is worth to look again for a schedule
_PLACING = 0.05  # of the time, kept for the places of buffers
_TRIES = 4
_STEP = 128  # the least part of the budget that a further try leaves free
_LOOKAHEADS = (4, 1)


def scheduled(ready: Ready, request: Request, on_stage: OnStage) -> tuple[Scheduled, Program]:
    """The best schedule found whose arena is within the budget, and its program; raises Infeasible, and CampaignError
    where gaps take each one that was found over the budget.

    A step that keeps the budget as it is stays as it is. A solver counts bytes in use, rounded up as buffers take
    them, and its budget is rounded up too, so that what it proves holds for every arena within the budget. Where gaps
    between buffers take its schedule over the budget, transfers go on beside fewer calls, and if that is not enough it
    is solved again within less. The bound is that of the whole budget.
    Ctrl-C gives the best so far (`stopped`), or KeyboardInterrupt. All in an order of the calls that suits the budget.
    """
    return _Fit(ready, request, on_stage).run()


def least_bytes(ready: Ready, request: Request, on_stage: OnStage) -> int:
    """The smallest budget, of bytes in use, that a schedule was found for."""
    try:
        return solve(ready.problem, replace(request, budget_bytes=1), on_stage).usage.peak_bytes
    except Infeasible as error:
        return error.needed_bytes


class _Fit:
    def __init__(self, ready: Ready, request: Request, on_stage: OnStage) -> None:
        self._ready, self._request, self._tell = ready, request, on_stage
        self._moves: tuple[Before, ...] = ()
        self._clock = Clock.of(request.time_limit_s)
        self._last = request.budget_bytes  # end of the smallest arena of the last solution
        self._least = 0  # of all of them
        self._seconds: dict[str, float] = {}  # of all solves, by stage

    def run(self) -> tuple[Scheduled, Program]:
        request = self._request
        if self._ready.base.plan.peak_bytes <= request.budget_bytes:
            return self._kept()
        self._order()
        first = self._first()
        found = self._fitting(first, first.bound)
        budget, ended, tried = request.budget_bytes, stopped(first), {request.budget_bytes}
        lowest = floor(self._ready.problem, request.paging).bytes
        while found is None and not ended and len(tried) < _TRIES:
            over = self._last - request.budget_bytes
            budget = max(lowest, budget - max(over, budget // _STEP))
            left_s = self._left_s() / 2
            if budget in tried or left_s <= 0:
                break
            tried.add(budget)
            self._tell(f"again within {budget:,} bytes: gaps between buffers take {over:,} too many")
            try:
                solution = self._solve(budget, left_s)
            except Infeasible:
                break
            solution = replace(
                solution, proven=f"within {budget:,} bytes, which leave room for gaps: {solution.proven}"
            )
            found, ended = self._fitting(solution, first.bound), stopped(solution)
        if found is not None:
            return found
        if ended:
            raise KeyboardInterrupt
        raise CampaignError(
            f"schedules within {request.budget_bytes:,} bytes were found, but with the gaps between their buffers the "
            f"smallest needs {self._least:,}", "--memory-budget", f"Give at least {self._least}"
        )  # fmt: skip

    def _first(self) -> Solution:
        """Solved for the whole budget; where nothing is found and nothing proven, once more in all the time left."""
        budget = self._request.budget_bytes
        try:
            return self._solve(budget, min(self._left_s(), _FIRST * self._request.time_limit_s))
        except Infeasible as error:
            if error.proven or self._left_s() < _AGAIN * self._request.time_limit_s:
                raise error.within(budget, self._spent_s()) from error
            before = error
        try:
            return self._solve(budget, self._left_s(), self._request.seed + 1)
        except Infeasible as error:
            least = min(before, error, key=lambda error: error.needed_bytes)
            raise least.within(budget, self._spent_s()) from error

    def _kept(self) -> tuple[Scheduled, Program]:
        """Everything kept, by the plan that the step has without a schedule."""
        problem, base, steps = self._ready.problem, self._ready.base, keep_all(self._ready.problem)
        usage = replay(problem, steps)
        cost = usage.energy_j if self._request.minimise == "energy" else usage.time_s
        kept = Solution(
            steps, steps, (), usage, makespan(problem, steps), cost, 0.0, "optimal: everything is kept",
            "the step as it is", {},
        )  # fmt: skip
        return self._scheduled(kept, cost, base)

    def _order(self) -> None:
        clock = Clock.of(_ORDERING * self._request.time_limit_s)
        problem, self._moves = ordered(self._ready.problem, up_to_aligned(self._request.budget_bytes), clock)
        self._ready = replace(self._ready, problem=problem)

    def _left_s(self) -> float:
        return self._clock.left_s() - _PLACING * self._request.time_limit_s

    def _spent_s(self) -> float:
        return self._request.time_limit_s - self._clock.left_s()

    def _solve(self, budget: int, limit_s: float, seed: int | None = None) -> Solution:
        seed = self._request.seed if seed is None else seed
        request = replace(self._request, budget_bytes=up_to_aligned(budget), time_limit_s=limit_s, seed=seed)
        return solve(self._ready.problem, request, self._tell)

    def _fitting(self, solution: Solution, bound: float) -> tuple[Scheduled, Program] | None:
        """The schedule with its transfers beside as many calls as its arena has room for; None if it is over the
        budget without any, too."""
        ready, request = self._ready, self._request
        for stage, spent in solution.seconds.items():
            self._seconds[stage] = self._seconds.get(stage, 0.0) + spent
        ends: list[int] = []
        for steps in self._lines(solution):
            end = makespan(ready.problem, steps)
            if end > request.deadline_s * (1 + 1e-9):
                continue
            program = ready.program(steps)
            peak = program.plan.peak_bytes
            ends.append(peak)
            if peak <= request.budget_bytes:
                usage = replay(ready.problem, steps)
                seconds = dict(self._seconds)
                kept = replace(solution, steps=steps, usage=usage, makespan_s=end, seconds=seconds)
                return self._scheduled(kept, bound, program)
        self._last = min(ends, default=self._last)
        self._least = min(self._least or self._last, self._last)
        return None

    def _scheduled(self, solution: Solution, bound: float, program: Program) -> tuple[Scheduled, Program]:
        ready, plan = self._ready, program.plan
        return Scheduled(
            ready.bench.workload, ready.target, ready.energy_method, ready.time_method, ready.problem, self._moves,
            self._request, solution, bound, plan.peak_bytes, plan.paged_bytes, ready.base.plan.peak_bytes,
        ), program  # fmt: skip

    def _lines(self, solution: Solution) -> Iterator[tuple[Step, ...]]:
        """The fastest first."""
        yield solution.steps
        if solution.usage.pages_in + solution.usage.pages_out:
            least = replay(self._ready.problem, solution.blocking).peak_bytes
            for lookahead in _LOOKAHEADS:
                yield overlapped(self._ready.problem, solution.blocking, least, lookahead).steps
            yield waiting(solution.blocking)

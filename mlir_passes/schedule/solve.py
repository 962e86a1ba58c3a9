"""The chain that finds a schedule: bound, heuristics, exact search, overlap of transfers, certificate."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

from mlir_passes.schedule.bound import Bound, Cuts
from mlir_passes.schedule.clock import Clock
from mlir_passes.schedule.decode import decode, encode
from mlir_passes.schedule.evolve import evolve
from mlir_passes.schedule.exact import Found, Task, search
from mlir_passes.schedule.expense import Expense, expense
from mlir_passes.schedule.gaps import evolve_gaps
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.infeasible import Infeasible, floor, smallest
from mlir_passes.schedule.overlap import LOOKAHEAD, Overlapped, overlapped
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request, Solution
from mlir_passes.schedule.seeds import seeds
from mlir_passes.schedule.steps import ScheduleError, Step, replay

__all__ = ["Infeasible", "Request", "Solution", "solve"]

IN_STAGES = "each op at most once in a stage, in order"
SAME = 1e-4  # relative difference of overheads that counts as none: what the exact search leaves open
SMALL = 120  # ops up to which a closer bound is quick
LARGE = 300  # ops from which on every stage must be content with less
GAP_EVALUATIONS = 80_000  # at most
MOST_COMPUTATIONS = 8  # of an op, where the limit of the exact search is raised
SHARES = 6  # of the transfers' time that are tried where lines are late
AHEAD = (LOOKAHEAD, 8 * LOOKAHEAD)  # computes by which transfers begin early; the second where the first is late
ENDING = 0.08  # of the time, for what comes after the search


def _silent(stage: str) -> None:
    """Tell nobody."""


def solve(problem: Problem, request: Request, on_stage: Callable[[str], None] = _silent) -> Solution:
    """The best schedule found within the budget and the deadline; raises Infeasible where none was found, and
    ScheduleError for a request that says nothing. The time limit is of time that passes, whatever else is running.

    Ctrl-C ends the search: the best schedule so far is the answer, and if there is none KeyboardInterrupt is raised.
    """
    if request.budget_bytes <= 0:
        raise ScheduleError(f"a budget of {request.budget_bytes} bytes holds nothing")
    if request.deadline_s < problem.time_s:
        wanted = f"a deadline of {request.deadline_s:.4g} s"
        raise ScheduleError(f"{wanted} is less than computing each op once takes, {problem.time_s:.4g} s")
    return _Chain(problem, request, on_stage).run()


@dataclass(frozen=True)
class _Best:
    """A line within the budget and the deadline."""

    overhead: float
    blocking: tuple[Step, ...]
    holds: tuple[Hold, ...]
    found_by: str


class _Chain:
    def __init__(self, problem: Problem, request: Request, on_stage: Callable[[str], None]) -> None:
        self._problem, self._request, self._tell = problem, request, on_stage
        self._costs = expense(problem, request.minimise)
        self._allow = [way for way, on in (("remat", request.remat), ("page", request.paging)) if on]
        self._seconds: dict[str, float] = {}
        self._begun = time.monotonic()
        self._best: _Best | None = None
        self._near: tuple[tuple[Hold, ...], ...] = ()  # holds that are not within the limits, but near them
        self._cuts = Cuts(
            problem,
            request.budget_bytes,
            self._costs,
            request.deadline_s,
            request.remat,
            request.paging,
            request.workers,
        )
        self._bound = Bound(0.0)
        self._exact: Found | None = None
        self._share = 0.0  # of the transfers' time that the exact search adds to the computing time
        self._stopped = False

    def run(self) -> Solution:
        """One stage a line; each is left out where the best line is proven before."""
        self._take((), "keep all")
        try:
            for stage, do in (
                ("bound", self._find_bound),
                ("greedy", self._descend),
                ("evolution of gaps", self._evolve_gaps),
                ("evolution", self._evolve),
                ("exact", self._search_exactly),
                ("certificate", self._certify),
                ("exact, more", self._search_further),
            ):
                if not self._proven() and not self._stopped:
                    with self._stage(stage):
                        do()
        except KeyboardInterrupt:
            self._stopped = True
        if self._best is None and self._stopped:
            raise KeyboardInterrupt
        if self._best is None:
            with self._stage("smallest budget"):
                error = self._infeasible(self._by_the_deadline(), self._left_s(), proven=False)
            if self._best is None:
                raise error
            with self._stage("from the smallest peak"):
                self._rise()
        return self._solution(self._best)

    @contextmanager
    def _stage(self, name: str) -> Generator[None]:
        self._tell(name)
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = time.monotonic() - begun

    def _left_s(self) -> float:
        return (1 - ENDING) * self._request.time_limit_s - (time.monotonic() - self._begun)

    def _find_bound(self) -> None:
        lowest = floor(self._problem, self._request.paging)
        if self._request.budget_bytes < lowest.bytes:
            raise self._infeasible("", self._a_while_s())
        for moments in (8, 16) if len(self._problem.ops) < SMALL else (8,):
            self._bound = self._cuts.bound(moments, min(20.0, 0.15 * self._request.time_limit_s))
            if self._bound.overhead == inf:
                raise self._infeasible(f"{self._by_the_deadline()}, proven by the cut bound", self._a_while_s())
            for holds in seeds(self._problem, self._bound):
                self._take(holds, "cut bound")
            if self._proven():
                return

    def _stop(self, part: float, kept: float) -> Callable[[], bool]:
        """Asks whether this thread has worked for that part of the time limit, or only what is to be kept is left.

        The part is of work, so that a busy machine cuts a stage short only where time runs out.
        """
        limit_s = self._request.time_limit_s
        until_s = time.thread_time() + part * limit_s
        return lambda: time.thread_time() > until_s or self._left_s() < kept * limit_s

    def _descend(self) -> None:
        """Greedy from what the bound lets go, and from keeping everything; it takes long for many ops, for which the
        evolution of gaps finds its way from what the bound lets go."""
        self._near = seeds(self._problem, self._bound)
        starts = [holds for holds in self._near if not self._take(holds, "cut bound")]
        if len(self._problem.ops) < LARGE or not self._near:
            self._descend_from((*starts, ()))

    def _descend_from(self, starts: Sequence[tuple[Hold, ...]]) -> None:
        request, stop = self._request, self._stop(0.15, 0.5)
        for start in starts:
            if not stop() and not self._proven():
                holds = greedy(self._problem, request.budget_bytes, start, self._allow, request.minimise, stop)
                self._near += () if self._take(holds, "greedy") else (holds,)

    def _evolve_gaps(self) -> None:
        """For many ops, where holds have too many places to begin and end at."""
        size, request = len(self._problem.ops), self._request
        if size < SMALL:
            return
        holds = evolve_gaps(
            self._problem, request.budget_bytes, request.deadline_s, self._starts(), GAP_EVALUATIONS,
            random.Random(request.seed), self._allow, request.minimise, self._note, self._stop(0.25, 0.35),
        )  # fmt: skip
        if not self._take(holds, "evolution"):
            self._near = (holds, *self._near)
            if self._best is None and size >= LARGE:
                self._descend_from((holds,))

    def _starts(self) -> tuple[tuple[Hold, ...], ...]:
        return ((self._best.holds,) if self._best else ()) + self._near

    def _evolve(self) -> None:
        size, request = len(self._problem.ops), self._request
        evaluations = 8000 if size >= SMALL else 3000 if size >= 90 else 500
        holds = evolve(
            self._problem, request.budget_bytes, request.deadline_s, self._starts(), evaluations,
            random.Random(request.seed), self._allow, request.minimise, lambda found, cost: self._note(found),
            self._stop(0.3, 0.2),
        )  # fmt: skip
        self._note(holds)
        self._near = (holds, *self._near)

    def _note(self, holds: tuple[Hold, ...]) -> None:
        self._take(holds, "evolution")

    def _search(self, computations: int) -> None:
        """The exact search with so many computations of an op at least; with more of the transfers' time counted if a
        line that it finds is late when transfers overlap, and with less if that leaves no line."""
        fewer = 1 if len(self._problem.ops) >= LARGE else 0  # there the hint has most of those that it needs
        late, none = 0.0, inf  # shares of which the lines are late, or with which there is none
        for _ in range(SHARES):
            if self._left_s() <= 0.5:
                return
            before = self._best.overhead if self._best else inf
            task, most = self._task(self._share), computations - fewer
            found = search(task, self._hint(), before, 0.85 * self._left_s(), most, computations - 2)
            self._stopped = found.stopped
            if self._share == 0.0:
                self._exact = found
            if found.stopped or (found.steps is None and (late == 0.0 or self._best or not found.complete)):
                return
            if found.steps is None:
                none = self._share
            elif self._late(found):
                late = self._share
            else:
                self._take_steps(found)
                return
            self._share = (late + none) / 2 if none < inf else min(1.0, self._share + 0.34)

    def _search_exactly(self) -> None:
        self._search(3)
        if self._best is None and self._request.deadline_s < inf:
            self._search_fast()

    def _search_fast(self) -> None:
        """Where all lines so far are late: the one of least time, one thing after the other, or of least transfers."""
        problem = self._problem
        moves = [t.in_s for t in problem.tensors], [t.out_s for t in problem.tensors]
        waits = Expense([0.0] * len(problem.ops), moves[1], moves[0], problem.time_s, "time")
        for costs in (expense(problem, "time"), waits):
            if self._best is None and self._left_s() > 0.5 and not self._stopped:
                task = replace(self._task(0.0), costs=costs)
                found = search(task, self._hint(), inf, 0.5 * self._left_s(), 3, 2)
                self._stopped = found.stopped
                if found.steps is not None and not self._late(found):
                    self._take(encode(problem, found.steps), "exact search of a fast line")

    def _search_further(self) -> None:
        """More computations of an op allowed, until that changes nothing."""
        for computations in range(4, MOST_COMPUTATIONS + 1):
            before = self._best.overhead if self._best else inf
            if self._proven() or self._stopped or not (self._exact and self._exact.complete) or self._exact.general:
                return
            self._search(computations)
            if self._best and self._best.overhead >= before * (1 - SAME):
                return

    def _task(self, share: float) -> Task:
        request = self._request
        return Task(
            self._problem, request.budget_bytes, self._costs, request.deadline_s, share, request.remat, request.paging,
            request.seed, request.workers,
        )  # fmt: skip

    def _hint(self) -> tuple[Step, ...] | None:
        if self._best:
            return self._best.blocking
        return decode(self._problem, self._near[0]).steps if self._near else None

    def _late(self, found: Found) -> bool:
        if found.steps is None or self._request.deadline_s == inf:
            return False
        return self._overlapped(found.steps).makespan_s > self._request.deadline_s * (1 + 1e-9)

    def _overlapped(self, steps: Sequence[Step]) -> Overlapped:
        """With transfers as early as it takes to keep the deadline."""
        clock = Clock(self._begun + self._request.time_limit_s)
        result = overlapped(self._problem, steps, self._request.budget_bytes, AHEAD[0], clock)
        if result.makespan_s <= self._request.deadline_s * (1 + 1e-9) or clock.left_s() <= 0:
            return result
        other = overlapped(self._problem, steps, self._request.budget_bytes, AHEAD[1], clock)
        return min(result, other, key=lambda line: line.makespan_s)

    def _take_steps(self, found: Found) -> None:
        """Take the line as genes; where they say a little less than it, the evolution mends them."""
        if found.steps is None or (self._best and found.overhead >= self._best.overhead):
            return
        name = f"exact search, at most {max(found.limits.computations)} computations of an op"
        holds = encode(self._problem, found.steps)
        if not self._take(holds, name) or (self._best and self._best.overhead > found.overhead * (1 + SAME) + 1e-15):
            self._near = (holds, *self._near)
            starts = ((self._best.holds,) if self._best else ()) + (holds,)
            self._take(self._mended(starts, 0.05), f"{name}, mended")

    def _rise(self) -> None:
        """From the line of the smallest peak, the only one within the limits, to one that costs less."""
        try:
            self._take(self._mended(self._starts(), 0.0), "evolution")
        except KeyboardInterrupt:
            self._stopped = True

    def _mended(self, starts: Sequence[tuple[Hold, ...]], kept: float) -> tuple[Hold, ...]:
        """The best holds of a short evolution; kept: as for `_stop`."""
        request = self._request
        return evolve(
            self._problem, request.budget_bytes, request.deadline_s, starts, 2000, random.Random(request.seed),
            self._allow, request.minimise, stop=self._stop(0.1, kept),
        )  # fmt: skip

    def _certify(self) -> None:
        """A bound from more moments, with a part of the time that is left."""
        for moments in (16, 28):
            if self._best and not self._proven() and self._left_s() > 0.2:
                self._bound = self._cuts.bound(moments, min(self._left_s(), max(0.5 * self._left_s(), 1.0)))

    def _take(self, holds: tuple[Hold, ...], found_by: str) -> bool:
        """Whether the holds are within the limits; the best ones are kept."""
        decoded = decode(self._problem, holds)
        try:
            usage = replay(self._problem, decoded.steps, self._request.budget_bytes)
        except ScheduleError:
            return False
        overhead = max(0.0, self._costs.of(usage) - self._costs.once)
        if self._best and overhead >= self._best.overhead:
            return True
        deadline_s = self._request.deadline_s
        if usage.time_s > deadline_s and self._overlapped(decoded.steps).makespan_s > deadline_s * (1 + 1e-9):
            return False
        self._best = _Best(overhead, decoded.steps, holds, found_by)
        return True

    def _lower(self) -> float:
        """The proven bound of the overhead, for any number of computations."""
        exact = self._exact.bound if self._exact and self._exact.general else 0.0
        return max(self._bound.overhead, exact)

    def _proven(self) -> bool:
        return self._best is not None and self._best.overhead <= self._lower() * (1 + SAME) + 1e-12 * self._costs.once

    def _certificate(self, best: _Best) -> str:
        exact = self._exact
        if self._proven():
            by_exact = exact is not None and exact.general and exact.bound > self._bound.overhead
            who = f"exact search, {IN_STAGES}" if by_exact else "cut bound"
            text = f"optimal: {'no more than keep all' if best.overhead == 0 else who}"
        else:
            text = "cut bound"
            if exact and exact.complete and best.overhead <= exact.bound * (1 + SAME) + 1e-12 * self._costs.once:
                most = max(exact.limits.computations), max(exact.limits.reads, default=0)
                text += f"; optimal with at most {most[0]} computations of an op and {most[1]} reads of a tensor, "
                text += f"{IN_STAGES}, and none after the last"
            elif exact and inf > exact.bound > self._bound.overhead:
                most = max(exact.limits.computations)
                text += f"; at least {exact.bound / self._costs.once:.4%} more than keep all costs any schedule"
                text += f" with at most {most} computations of an op (exact search)"
        return text + (", stopped" if self._stopped else "")

    def _solution(self, best: _Best) -> Solution:
        self._tell("overlap")
        result = self._overlapped(best.blocking)
        usage = replay(self._problem, result.steps, self._request.budget_bytes)
        bound = self._costs.once + min(self._lower(), best.overhead)
        gap = (self._costs.of(usage) - bound) / self._costs.once if self._costs.once > 0 else 0.0
        return Solution(
            result.steps, best.blocking, best.holds, usage, result.makespan_s, bound, max(0.0, gap),
            self._certificate(best), best.found_by, self._seconds,
        )  # fmt: skip

    def _a_while_s(self) -> float:
        """How long to look for the smallest budget where there is no schedule."""
        return max(0.0, min(20.0, 0.3 * self._request.time_limit_s, self._left_s()))

    def _by_the_deadline(self) -> str:
        return f" and {self._request.deadline_s:.4g} s" if self._request.deadline_s < inf else ""

    def _infeasible(self, why: str, limit_s: float, proven: bool = True) -> Infeasible:
        """Why there is no schedule, unless that of the smallest peak, which is then taken, is one."""
        request = self._request
        lowest = floor(self._problem, request.paging)
        holds, needed, exact = smallest(self._task(0.0), lowest, limit_s, request.budget_bytes, self._near)
        if needed <= request.budget_bytes:
            self._take(holds, "smallest budget")
        looked_s = time.monotonic() - self._begun
        return Infeasible(request.budget_bytes, needed, lowest, exact, why, proven, looked_s)

"""A proven lower bound of what a budget costs beyond computing each op once, for all schedules in which state that is
paged has its home on the store. State that only leaves memory for a while may take one read less."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from mlir_passes.schedule.expense import Expense
from mlir_passes.schedule.milp import Answer
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.windows import Windows

SINGLES = 100  # moments looked at one by one, at most


@dataclass(frozen=True)
class Bound:
    """overhead: proven, of the cost beyond computing each op once; inf where no schedule can keep the budget.

    gone: pairs of a tensor and an op, while which it is not in memory although it is needed after it; paged: tensors
    on the store. Both as the relaxed choice has it, a start for heuristics.
    """

    overhead: float
    gone: frozenset[tuple[int, int]] = frozenset()
    paged: frozenset[int] = frozenset()


class Cuts:
    """Bounds of one problem and budget; what single moments say is kept for the next bound."""

    def __init__(
        self,
        problem: Problem,
        budget_bytes: int,
        costs: Expense,
        deadline_s: float = inf,
        remat: bool = True,
        paging: bool = True,
        threads: int = 1,
    ) -> None:
        self._problem, self._budget, self._costs = problem, budget_bytes, costs
        self._deadline, self._remat, self._paging, self._threads = deadline_s, remat, paging, threads
        self._alone: dict[int, float] = {}
        self._best = Bound(0.0)

    def bound(self, moments: int = 8, time_limit_s: float = 10.0) -> Bound:
        """The greatest bound so far: of the relaxations at single moments, and at the `moments` best together."""
        until = time.monotonic() + time_limit_s
        live = live_bytes(self._problem)
        for moment in sorted(crowded(self._problem, self._budget, SINGLES), key=lambda moment: -live[moment]):
            if moment in self._alone:
                continue
            if self._alone and time.monotonic() > until - time_limit_s / 2:
                break
            found = self._ask([moment], until)
            self._alone[moment] = found.overhead
            if found.overhead == inf:
                return found
            self._best = max(self._best, found, key=lambda bound: bound.overhead)
        if len(self._alone) > 1 and time.monotonic() < until:
            found = self._ask(_spread(self._alone, moments, len(self._problem.ops)), until)
            choice = found if found.gone else self._best
            self._best = Bound(max(self._best.overhead, found.overhead), choice.gone, choice.paged)
        return self._best

    def _ask(self, chosen: Sequence[int], until: float) -> Bound:
        moments = sorted(chosen)
        windows = Windows(self._problem, self._budget, self._costs, moments, self._remat, self._paging)
        windows.limit_time(self._deadline)
        answer = windows.program.solve(until - time.monotonic(), self._threads)
        if answer.infeasible:
            return Bound(inf)
        overhead = max(0.0, answer.bound / windows.scale) if answer.bound > -inf else 0.0
        return Bound(overhead, _gone(self._problem, answer, moments), _paged(answer))


def _spread(alone: dict[int, float], most: int, count: int) -> list[int]:
    """The moments with the greatest bounds, first those that are not near one another."""
    ranked = sorted(alone, key=lambda moment: (-alone[moment], moment))
    chosen: list[int] = []
    for apart in (count // (2 * most), 1):
        for moment in ranked:
            if len(chosen) < most and all(abs(moment - other) >= max(apart, 1) for other in chosen):
                chosen.append(moment)
    return chosen


def live_bytes(problem: Problem) -> list[int]:
    """For each op, what is in memory while it runs if everything is kept."""
    count = len(problem.ops)
    changes = [0] * (count + 1)
    for index, tensor in enumerate(problem.tensors):
        stays = tensor.final or tensor.maker == START
        changes[max(tensor.maker, 0)] += tensor.bytes
        changes[count if stays else problem.last[index] + 1] -= tensor.bytes
    found: list[int] = []
    total = 0
    for op, change in zip(problem.ops, changes, strict=False):
        total += change
        found.append(total + op.workspace)
    return found


def crowded(problem: Problem, budget_bytes: int, most: int) -> list[int]:
    """At most `most` ops, spread over those at which keeping everything is over the budget, the worst among them."""
    live = live_bytes(problem)
    over = [i for i, taken in enumerate(live) if taken > budget_bytes]
    if len(over) <= most:
        return over
    spread = {over[int((i + 0.5) * len(over) / (most - 1))] for i in range(most - 1)}
    return sorted(spread | {max(over, key=live.__getitem__)})


def _gone(problem: Problem, answer: Answer, moments: Sequence[int]) -> frozenset[tuple[int, int]]:
    found = [(key[1], moments[key[2]]) for key, value in answer.values.items() if key[0] == "kept" and value < 0.5]
    return frozenset((index, moment) for index, moment in found if problem.last[index] > moment)


def _paged(answer: Answer) -> frozenset[int]:
    return frozenset(key[1] for key, value in answer.values.items() if key[0] == "stored" and value > 0.5)

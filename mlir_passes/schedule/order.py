"""An order of the ops in which less is over the budget while everything is kept, so that less has to leave memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from mlir_passes.schedule.clock import NO_END, Clock
from mlir_passes.schedule.genes import Before
from mlir_passes.schedule.problem import START, Problem

SWEEPS = 4  # at most; measured: the third changes little
LEAST_GAIN = 0.005  # of a move, as a share of what was over at first: a gene should be worth its bytes


def ordered(problem: Problem, budget_bytes: int, clock: Clock = NO_END) -> tuple[Problem, tuple[Before, ...]]:
    """The problem in a better order for a budget, and the genes that say so; as it was, and none, if none was found.

    What is over the budget is summed over all ops, everything kept. Each op in turn moves as early as its inputs
    permit, or as late as its readers do, where that leaves less over: gradients are made where they are used, state is
    updated where its gradient is made. The last op stays the last: no gene moves an op behind all others.
    What was found when the time is up is the answer.
    """
    memory = _Memory(problem, budget_bytes)
    numbers = range(len(problem.ops))
    best = tuple(numbers)
    least = memory.over(best)
    gain = LEAST_GAIN * least
    for sweep in range(SWEEPS):
        before = least
        for number in numbers if sweep % 2 else reversed(numbers):
            if clock.left_s() <= 0:
                break
            for order in memory.ends(best, number):
                over = memory.over(order)
                if over < least - gain:
                    best, least = order, over
        if least == before:
            break
    return problem.reordered(best), moves(problem, best)


def moves(problem: Problem, order: Sequence[int]) -> tuple[Before, ...]:
    """The fewest order genes that make this order of the present one, without a move of the op that comes last."""
    if not order:
        return ()
    stay = _longest_ascending([op for op in order if op < order[-1]]) | {order[-1]}
    names = [op.name for op in problem.ops]
    return tuple(
        Before(names[order[place]], names[order[place + 1]])
        for place in reversed(range(len(order) - 1))
        if order[place] not in stay
    )


def _longest_ascending(values: Sequence[int]) -> set[int]:
    """The members of a longest subsequence that ascends."""
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for value in values:
        place = bisect_left(tails, value)
        before[value] = tails[place - 1] if place else None
        tails[place : place + 1] = [value]
    found: set[int] = set()
    value = tails[-1] if tails else None
    while value is not None:
        found.add(value)
        value = before[value]
    return found


class _Memory:
    """What orders of one problem have over a budget, everything kept."""

    def __init__(self, problem: Problem, budget_bytes: int) -> None:
        tensors = problem.tensors
        self._spare = budget_bytes - sum(t.bytes for t in tensors if t.maker == START)
        self._before: list[set[int]] = [set() for _ in problem.ops]
        self._after: list[set[int]] = [set() for _ in problem.ops]
        for t in tensors:
            for reader in t.readers:
                if t.maker != START:
                    self._order(t.maker, reader)
                if t.updater >= 0 and reader != t.updater:
                    self._order(reader, t.updater)
        freeable = [t.maker != START and not t.final for t in tensors]
        self._made = [sum(tensors[t].bytes for t in op.makes) for op in problem.ops]
        self._work = [op.workspace for op in problem.ops]
        self._reads = [[t for t in op.reads if freeable[t]] for op in problem.ops]
        self._unread = [
            sum(tensors[t].bytes for t in op.makes if freeable[t] and not tensors[t].readers) for op in problem.ops
        ]
        self._readers = [len(t.readers) for t in tensors]
        self._bytes = [t.bytes for t in tensors]

    def _order(self, first: int, then: int) -> None:
        self._before[then].add(first)
        self._after[first].add(then)

    def over(self, order: Sequence[int]) -> int:
        """Bytes over the budget, summed over all ops."""
        left, spare, total = self._readers.copy(), self._spare, 0
        for number in order:
            spare -= self._made[number]
            total += max(0, self._work[number] - spare)
            spare += self._unread[number]
            for t in self._reads[number]:
                left[t] -= 1
                if not left[t]:
                    spare += self._bytes[t]
        return total

    def ends(self, order: Sequence[int], number: int) -> list[tuple[int, ...]]:
        """The order with one op as early, and as late, as what it needs and what needs it permit."""
        place = order.index(number)
        if place == len(order) - 1:
            return []
        low = high = place
        while low > 0 and order[low - 1] not in self._before[number]:
            low -= 1
        while high < len(order) - 2 and order[high + 1] not in self._after[number]:
            high += 1
        others = (*order[:place], *order[place + 1 :])
        return [(*others[:at], number, *others[at:]) for at in (low, high) if at != place]

"""An order of the ops that takes less memory when everything is kept."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

from mlir_passes.schedule.genes import Before
from mlir_passes.schedule.problem import START, Problem

LISTINGS = 8  # orders made anew, each with other ties


def better_order(problem: Problem, rng: random.Random, tries: int = 2000) -> tuple[int, ...]:
    """A valid order, as old indices, whose keep-all peak is lower; the present one if none was found.

    First orders that always go on with the op that leaves least memory taken, then `tries` moves of single ops.
    """
    memory = _Memory(problem)
    identity = tuple(range(len(problem.ops)))
    best, best_load = identity, memory.load(identity)
    for _ in range(LISTINGS):
        listed = memory.listed(rng)
        best, best_load = min((best, best_load), (listed, memory.load(listed)), key=lambda found: found[1])
    for _ in range(tries):
        order = memory.moved(best, rng)
        load = memory.load(order)
        if load <= best_load:
            best, best_load = order, load
    return best if best_load[0] < memory.load(identity)[0] else identity


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
    """What orders of one problem take, everything kept."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._base = sum(t.bytes for t in problem.tensors if t.maker == START)
        self._before: list[set[int]] = [set() for _ in problem.ops]
        for t in problem.tensors:
            for reader in t.readers:
                if t.maker != START:
                    self._before[reader].add(t.maker)
                if t.updater >= 0 and reader != t.updater:
                    self._before[t.updater].add(reader)
        self._after: list[set[int]] = [set() for _ in problem.ops]
        for op, others in enumerate(self._before):
            for other in others:
                self._after[other].add(op)
        self._freeable = [t.maker != START and not t.final for t in problem.tensors]

    def load(self, order: Sequence[int]) -> tuple[int, int]:
        """The peak, and the sum over all ops of what is taken."""
        left = [len(t.readers) for t in self._problem.tensors]
        taken, peak, total = self._base, 0, 0
        for number in order:
            op = self._problem.ops[number]
            taken += sum(self._problem.tensors[t].bytes for t in op.makes)
            peak, total = max(peak, taken + op.workspace), total + taken
            taken -= self._freed(number, left)
            for t in op.reads:
                left[t] -= 1
        return peak, total

    def _freed(self, number: int, left: Sequence[int]) -> int:
        """Bytes that an op gives back; left: readers of each tensor that have not run, with this one."""
        op, tensors = self._problem.ops[number], self._problem.tensors
        read = sum(tensors[t].bytes for t in op.reads if self._freeable[t] and left[t] == 1)
        return read + sum(tensors[t].bytes for t in op.makes if self._freeable[t] and not tensors[t].readers)

    def listed(self, rng: random.Random) -> tuple[int, ...]:
        """An order that goes on with the op that leaves least taken; ties as they fall."""
        left = [len(t.readers) for t in self._problem.tensors]
        waits = [len(others) for others in self._before]
        ready = [op for op, count in enumerate(waits) if count == 0]
        order: list[int] = []
        while ready:
            number = min(ready, key=lambda op: (self._growth(op, left), rng.random()))
            ready.remove(number)
            order.append(number)
            for t in self._problem.ops[number].reads:
                left[t] -= 1
            for other in self._after[number]:
                waits[other] -= 1
                if waits[other] == 0:
                    ready.append(other)
        return tuple(order)

    def _growth(self, number: int, left: Sequence[int]) -> int:
        made = sum(self._problem.tensors[t].bytes for t in self._problem.ops[number].makes)
        return made - self._freed(number, left)

    def moved(self, order: Sequence[int], rng: random.Random) -> tuple[int, ...]:
        """The order with one op somewhere else between what it needs and what needs it."""
        place = rng.randrange(len(order))
        number = order[place]
        low = high = place
        while low > 0 and order[low - 1] not in self._before[number]:
            low -= 1
        while high < len(order) - 1 and order[high + 1] not in self._after[number]:
            high += 1
        others = [*order[:place], *order[place + 1 :]]
        others.insert(rng.randint(low, high), number)
        return tuple(others)

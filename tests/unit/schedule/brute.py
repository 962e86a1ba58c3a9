"""The optimum of small problems by exhaustive search: it shares no code and no idea with the solvers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, count

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, Step


@dataclass(frozen=True)
class Best:
    """cost: joules or seconds of the whole blocking line, what must be paid included."""

    cost: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class _State:
    """run: how many ops have run. Sets of tensors are bits. stored: what was read in at least once, or lives there."""

    run: int
    memory: int
    stored: int
    home: int


Came = dict[_State, tuple[_State | None, tuple[Step, ...]]]


def optimum(
    problem: Problem, budget_bytes: int, minimise: str = "energy", remat: bool = True, paging: bool = True
) -> Best | None:
    """The cheapest blocking line within the budget, in the problem's order; None if there is none.

    Dijkstra over what is in memory and on the store. State is in memory for the whole step or has its home on the
    store. Three things cost no generality: memory is given back only where something does not fit else, and no more
    of it than that takes; what no op to come can need is given back at once; whether a tensor is written out when it
    leaves memory is decided, and paid, when it is read in for the first time.
    """
    return _Search(problem, budget_bytes, minimise, remat, paging).run()


def smallest_budget(problem: Problem, remat: bool = True, paging: bool = True) -> int:
    """The least bytes with which there is a line at all."""
    low, high = 0, sum(t.bytes for t in problem.tensors) + max(op.workspace for op in problem.ops)
    while low < high:
        middle = (low + high) // 2
        if _Search(problem, middle, "", remat, paging).run() is None:
            low = middle + 1
        else:
            high = middle
    return low


class _Search:
    """minimise: "energy", "time", or "" for any line at all."""

    def __init__(self, problem: Problem, budget: int, minimise: str, remat: bool, paging: bool) -> None:
        self._problem, self._budget, self._remat, self._paging = problem, budget, remat, paging
        energy, self._any = minimise == "energy", not minimise
        self._op_cost = [0.0 if self._any else op.energy_j if energy else op.time_s for op in problem.ops]
        self._out_cost = [0.0 if self._any else t.out_j if energy else t.out_s for t in problem.tensors]
        self._in_cost = [0.0 if self._any else t.in_j if energy else t.in_s for t in problem.tensors]
        self._base = sum(self._op_cost)
        self._bytes = [t.bytes for t in problem.tensors]
        self._pageable = _bits(i for i, t in enumerate(problem.tensors) if t.pageable)
        self._reads = [_bits(op.reads) for op in problem.ops]
        self._makes = [_bits(op.makes) for op in problem.ops]
        self._updates = [_bits(u) for u in problem.updates]
        self._start = _bits(i for i, t in enumerate(problem.tensors) if t.maker == START)
        self._kept = _bits(i for i, t in enumerate(problem.tensors) if t.final) & ~self._start
        self._needed = [self._needed_after(run) for run in range(len(problem.ops) + 1)]

    def run(self) -> Best | None:
        queue: list[tuple[float, int, int, _State]] = []
        known: dict[_State, float] = {}
        came: Came = {}
        ticket = count()
        for home in self._homes():
            state = _State(0, self._start & ~home, 0, home)
            if all(self._fits(state.memory, number) for number in range(len(self._problem.ops))):
                known[state], came[state] = self._least(home), (None, ())
                heapq.heappush(queue, (known[state], 0, next(ticket), state))
        while queue:
            cost, _, _, state = heapq.heappop(queue)
            if cost > known[state]:
                continue
            if state.run == len(self._problem.ops) and not self._kept & ~state.memory:
                return Best(self._base + cost, self._line(state, came))
            for price, following, steps in self._following(state):
                total = cost + price
                if total < known.get(following, float("inf")):
                    known[following], came[following] = total, (state, steps)
                    heapq.heappush(queue, (total, -following.run, next(ticket), following))
        return None

    def _homes(self) -> Iterator[int]:
        may = [i for i in _members(self._start & self._pageable) if self._paging and self._problem.tensors[i].readers]
        for size in range(len(may) if self._any else 0, len(may) + 1):  # all on the store never takes more memory
            yield from map(_bits, combinations(may, size))

    def _fits(self, memory: int, number: int) -> bool:
        taken = memory | self._reads[number] | self._makes[number]
        return self._size(taken) + self._problem.ops[number].workspace <= self._budget

    def _least(self, home: int) -> float:
        """What the transfers of state on the store cost at least: it is paid at the start, to try cheap homes first."""
        updated = [t for t in _members(home) if self._problem.tensors[t].updater >= 0]
        return sum(self._in_cost[t] for t in _members(home)) + sum(self._out_cost[t] for t in updated)

    def _needed_after(self, run: int) -> int:
        """What some op to come may read, or the end."""
        needed = self._kept
        for number in reversed(range(len(self._problem.ops))):
            if number >= run or (self._may_repeat(number, run) and self._makes[number] & needed):
                needed |= self._reads[number]
        return needed

    def _may_repeat(self, number: int, run: int) -> bool:
        overwritten = any(0 <= self._problem.tensors[t].updater < run for t in self._problem.ops[number].reads)
        return self._remat and not overwritten

    def _following(self, state: _State) -> Iterator[tuple[float, _State, tuple[Step, ...]]]:
        for number in range(min(state.run + 1, len(self._problem.ops))):
            if self._reads[number] & ~state.memory:
                continue
            first = number == state.run
            useful = self._makes[number] & ~state.memory & self._needed[state.run]
            if not first and not (useful and self._may_repeat(number, state.run)):
                continue
            step, written = Step(Kind.COMPUTE, number), self._updates[number] & state.home
            after = (step, *(Step(Kind.OUT, t) for t in _members(written)))
            price = 0.0 if first else self._op_cost[number]
            needs = state.memory | self._makes[number]
            used = self._reads[number] | self._makes[number]
            for given in self._given_back(state, needs, used, self._problem.ops[number].workspace):
                yield price, *self._after(state, state.run + first, needs, given, after)
        was_made = self._was_made(state.run) & self._pageable if self._paging else 0
        for tensor in _members((state.home | was_made) & ~state.memory & self._needed[state.run]):
            price = self._in_cost[tensor]
            if not state.stored >> tensor & 1:
                price = 0.0 if state.home >> tensor & 1 else price + self._out_cost[tensor]
            stored = _State(state.run, state.memory, 0 if self._any else state.stored | 1 << tensor, state.home)
            needs = state.memory | 1 << tensor
            for given in self._given_back(state, needs, 1 << tensor, 0):
                yield price, *self._after(stored, state.run, needs, given, (Step(Kind.IN, tensor),))

    def _was_made(self, run: int) -> int:
        return _bits(i for i, t in enumerate(self._problem.tensors) if START < t.maker < run)

    def _given_back(self, state: _State, needs: int, used: int, workspace: int) -> Iterator[int]:
        """Each set of tensors whose leaving lets the rest fit, and of which none could stay."""
        over = self._size(needs) + workspace - self._budget
        if over <= 0:
            yield 0
            return
        may = list(_members(state.memory & ~used & ~(self._start & ~state.home)))
        for number in range(1, len(may) + 1):
            for leaving in combinations(may, number):
                size = sum(self._bytes[t] for t in leaving)
                if size >= over and size - min(self._bytes[t] for t in leaving) < over:
                    yield _bits(leaving)

    def _after(
        self, state: _State, run: int, needs: int, given: int, steps: tuple[Step, ...]
    ) -> tuple[_State, tuple[Step, ...]]:
        memory = needs & ~given
        dead = memory & ~self._needed[run] & ~(self._start & ~state.home)
        before = tuple(Step(Kind.FREE, t) for t in _members(given))
        freed = tuple(Step(Kind.FREE, t) for t in _members(dead))
        return _State(run, memory & ~dead, state.stored & ~dead, state.home), (*before, *steps, *freed)

    def _size(self, memory: int) -> int:
        return sum(self._bytes[t] for t in _members(memory))

    def _line(self, state: _State | None, came: Came) -> tuple[Step, ...]:
        parts: list[tuple[Step, ...]] = []
        home = state.home if state else 0
        while state is not None:
            state, steps = came[state]
            parts.append(steps)
        line = [step for part in reversed(parts) for step in part]
        for tensor in {step.index for step in line if step.kind == Kind.IN and not home >> step.index & 1}:
            line.insert(line.index(Step(Kind.FREE, tensor)), Step(Kind.OUT, tensor))
        return tuple(line)


def _bits(members: Iterable[int]) -> int:
    return sum(1 << m for m in members)


def _members(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low

"""A line of steps from decisions about single gaps: what becomes of a tensor between two accesses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step

Gap = tuple[int, int, int]  # a tensor, the op of one access, the op of the next


class Fate(Enum):
    """How a tensor comes back."""

    SWAP = "swap"
    RECOMPUTE = "recompute"


@dataclass(frozen=True)
class Eviction:
    """ready: the op before which a swapped tensor is read in, its next access if nothing else is said.
    transfers: begin and end of its ways on the channel, in seconds since the step began."""

    fate: Fate
    ready: int
    transfers: tuple[tuple[float, float], ...] = ()


def accesses(problem: Problem, tensor: int) -> tuple[int, ...]:
    """The ops that make and read a tensor, ascending; START first for what is there before.

    To evict that in its first gap means that its home is the store; else it is never evicted.
    """
    return (problem.tensors[tensor].maker, *problem.tensors[tensor].readers)


class Walk:
    """Ops in order; what was evicted and is missing is read in or made again, with all that this needs and no longer
    than it is used. With a budget, what was accessed longest ago goes to the store where memory is short.

    steps: a blocking line. before, stored: by stage, what is in memory, and on the store, when it begins.
    peak_bytes is reached first in peak_stage. Raises ScheduleError where something cannot come back.
    """

    def __init__(self, problem: Problem, evictions: Mapping[Gap, Eviction], budget: int | None = None) -> None:
        self.steps: list[Step] = []
        self.before: list[frozenset[int]] = []
        self.stored: list[frozenset[int]] = []
        self.peak_bytes = self.peak_stage = 0
        self._problem, self._evictions, self._budget = problem, evictions, budget
        self._next = [dict(pairwise(accesses(problem, t))) for t in range(len(problem.tensors))]
        self._home = {gap[0] for gap in evictions if gap[1] == START}
        self._memory = {  # with the last access
            i: START for i, t in enumerate(problem.tensors) if t.maker == START and i not in self._home
        }
        self._store = set(self._home)
        self._bytes = sum(problem.tensors[t].bytes for t in self._memory)
        self._note(0, 0)
        self._walk()

    def _walk(self) -> None:
        ready: dict[int, list[int]] = {}
        for (tensor, _, _), eviction in self._evictions.items():
            if eviction.fate == Fate.SWAP:
                ready.setdefault(eviction.ready, []).append(tensor)
        for stage, op in enumerate(self._problem.ops):
            for tensor in ready.get(stage, ()):
                if tensor in self._store and tensor not in self._memory:
                    self._page_in(tensor, stage, (*op.reads, *op.makes))
            self.before.append(frozenset(self._memory))
            self.stored.append(frozenset(self._store))
            self._stage(stage)
        end = [i for i, t in enumerate(self._problem.tensors) if t.final and t.maker != START]
        for tensor in end:
            if tensor not in self._memory:
                self._page_in(tensor, len(self._problem.ops), end)

    def _stage(self, stage: int) -> None:
        chain, loads = self._missing(stage)
        order = [*sorted(chain), stage]
        last = {t: op for op in order for t in self._problem.ops[op].reads}
        own = {*self._problem.ops[stage].reads, *self._problem.ops[stage].makes}
        fetched: set[int] = set()
        for place, op in enumerate(order):
            pinned = {t for later in order[place:] for t in self._problem.ops[later].reads} | own
            for tensor in self._problem.ops[op].reads:
                if tensor in loads and tensor not in self._memory:
                    self._page_in(tensor, stage, pinned)
                    fetched.add(tensor)
            fetched |= self._compute(op, stage, pinned | set(self._problem.ops[op].makes))
            for tensor in sorted(fetched - own):
                if last.get(tensor, -1) <= op:
                    self._free(tensor)
                    fetched.discard(tensor)
        for tensor in sorted(own):
            self._settle(tensor, stage)

    def _missing(self, stage: int) -> tuple[set[int], set[int]]:
        """The ops that must run again so that the op of the stage can run, and what must be read in."""
        chain: set[int] = set()
        loads: set[int] = set()
        todo = list(self._problem.ops[stage].reads)
        while todo:
            tensor = todo.pop()
            maker = self._problem.tensors[tensor].maker
            if tensor in self._memory or maker in chain:
                continue
            if tensor in self._store:
                loads.add(tensor)
            elif maker == START or self._problem.until[maker] < stage:
                raise ScheduleError(f"{self._problem.tensors[tensor].name} cannot be made again in time")
            else:
                chain.add(maker)
                todo += self._problem.ops[maker].reads
        return chain, loads

    def _settle(self, tensor: int, stage: int) -> None:
        """After the access in a stage."""
        after = self._next[tensor].get(stage)
        found = self._problem.tensors[tensor]
        if after is None:
            if tensor in self._home:
                self._page_out(tensor)
            if tensor in self._home or not (found.final or found.maker == START):
                self._free(tensor)
            return
        eviction = self._evictions.get((tensor, stage, after))
        if eviction is None:
            return
        if eviction.fate == Fate.SWAP:
            self._page_out(tensor)
        self._free(tensor)

    def _compute(self, op: int, stage: int, pinned: Collection[int]) -> set[int]:
        """What it made that was not there."""
        new = {t for t in self._problem.ops[op].makes if t not in self._memory}
        size = sum(self._problem.tensors[t].bytes for t in new)
        self._make_room(size + self._problem.ops[op].workspace, pinned)
        self.steps.append(Step(Kind.COMPUTE, op))
        self._memory.update(dict.fromkeys((*self._problem.ops[op].reads, *new), stage))
        self._store.difference_update(self._problem.updates[op])
        self._bytes += size
        self._note(self._problem.ops[op].workspace, stage)
        return new

    def _page_in(self, tensor: int, stage: int, pinned: Collection[int]) -> None:
        self._make_room(self._problem.tensors[tensor].bytes, pinned)
        self.steps.append(Step(Kind.IN, tensor))
        self._memory[tensor] = stage
        self._bytes += self._problem.tensors[tensor].bytes
        self._note(0, stage)

    def _page_out(self, tensor: int) -> None:
        if tensor not in self._store:
            self.steps.append(Step(Kind.OUT, tensor))
            self._store.add(tensor)

    def _free(self, tensor: int) -> None:
        self.steps.append(Step(Kind.FREE, tensor))
        del self._memory[tensor]
        self._bytes -= self._problem.tensors[tensor].bytes

    def _make_room(self, size: int, pinned: Collection[int]) -> None:
        while self._budget is not None and self._bytes + size > self._budget:
            loose = [t for t in self._memory if t not in pinned and self._may_leave(t)]
            if not loose:
                raise ScheduleError(f"{size} bytes more are needed, and nothing else may leave")
            tensor = min(loose, key=lambda t: (self._memory[t], t))
            self._page_out(tensor)
            self._free(tensor)

    def _may_leave(self, tensor: int) -> bool:
        found = self._problem.tensors[tensor]
        return found.pageable and (found.maker != START or tensor in self._home)

    def _note(self, workspace: int, stage: int) -> None:
        if self._bytes + workspace > self.peak_bytes:
            self.peak_bytes, self.peak_stage = self._bytes + workspace, stage

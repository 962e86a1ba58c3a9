"""Decoding in numbers: the walk over all stages that turns holds by index into a blocking line of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, Step

Pairs = tuple[tuple[int, int], ...]
Stay = tuple[bool, Pairs]  # whether it is paged; stages from which and through which it is held, ascending, apart
Holds = Mapping[int, Stay]  # by index of the tensor; one that is not named is kept
# By index of a tensor, stages between which it stays from when it happens to come back, to the latter one.
Returns = Mapping[int, Pairs]
NO_RETURNS: Returns = MappingProxyType({})


@dataclass(frozen=True)
class Detail:
    """What a stay does not say. other: stages in which the tensor comes back the other way; leaves: pairs of a stage
    and an op in it, after whose use of the tensor it is given back."""

    other: frozenset[int] = frozenset()
    leaves: frozenset[tuple[int, int]] = frozenset()


Details = Mapping[int, Detail]
NO_DETAILS: Details = MappingProxyType({})


@dataclass(frozen=True)
class Limit:
    """Beyond what a line is of no use, so that a walk may end before it does."""

    peak_bytes: float = inf
    energy_j: float = inf
    time_s: float = inf


NO_LIMIT = Limit()


@dataclass(frozen=True)
class Walk:
    """What the line takes, as `replay` would say, and the line if it was asked for.

    peak_stage: the stage in which most memory is taken. refused: tensors whose hold could not be honoured, so that
    they were kept, because an op cannot be computed again so late.
    """

    energy_j: float
    time_s: float
    peak_bytes: int
    peak_stage: int
    refused: tuple[int, ...]
    steps: tuple[Step, ...] = ()


class Walker:
    """Walks one problem, many times."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.walks = 0  # how many were made
        self.count = len(problem.ops)
        self.bytes = [t.bytes for t in problem.tensors]
        self.maker = [t.maker for t in problem.tensors]
        self.reads = [op.reads for op in problem.ops]
        self.makes = [op.makes for op in problem.ops]
        self.touches = [tuple(dict.fromkeys((*op.reads, *op.makes))) for op in problem.ops]
        self.workspace = [op.workspace for op in problem.ops]
        self.stays = [t.final or t.maker == START for t in problem.tensors]
        self.end = [self.count + 1 if stays else last for stays, last in zip(self.stays, problem.last, strict=True)]
        self.until = [-1 if problem.updates[number] else self._until(number) for number in range(self.count)]

    def _until(self, number: int) -> int:
        """As `Problem.until`, also after all ops where nothing hinders it, and before what it makes is overwritten."""
        op, tensors = self.problem.ops[number], self.problem.tensors
        return min((tensors[t].updater for t in (*op.reads, *op.makes) if tensors[t].updater >= 0), default=self.count)

    def may_page(self, tensor: int) -> bool:
        """State that nobody reads would never leave the store."""
        t = self.problem.tensors[tensor]
        return t.pageable and (t.maker != START or bool(t.readers))

    def default(self, tensor: int) -> Pairs:
        """How a tensor is held that no gene names; of state, what it would be on the store and never given back."""
        t = self.problem.tensors[tensor]
        first = t.readers[0] if t.maker == START and t.readers else max(t.maker, 0)
        last = self.problem.last[tensor] if t.maker != START else max(t.readers, default=first)
        return ((first, last),) if last > first else ()

    def walk(
        self,
        holds: Holds,
        record: bool = False,
        returns: Returns = NO_RETURNS,
        limit: Limit = NO_LIMIT,
        details: Details = NO_DETAILS,
    ) -> Walk:
        """The line that these holds stand for: it passes `replay`, whatever they are. One beyond the limit is not
        walked to its end, and said to take what it took so far."""
        refused: list[int] = []
        self.walks += 1
        while True:
            attempt = _Attempt(self, holds, record, returns, details)
            blamed = attempt.run(limit)
            if blamed is None:
                break
            refused.append(blamed)
            holds = {tensor: stay for tensor, stay in holds.items() if tensor != blamed}
            details = {tensor: detail for tensor, detail in details.items() if tensor != blamed}
        return Walk(
            attempt.energy, attempt.time, attempt.peak, attempt.peak_stage, tuple(refused), attempt.line()
        )  # fmt: skip


class _Attempt:
    """One walk. It ends early where something cannot be computed again."""

    def __init__(self, walker: Walker, holds: Holds, record: bool, returns: Returns, details: Details) -> None:
        self._walker, self._holds, self._record, self._returns = walker, holds, record, returns
        self._other = {(t, stage) for t, detail in details.items() for stage in detail.other}
        self._leaves = {(t, *leave) for t, detail in details.items() for leave in detail.leaves}
        problem = walker.problem
        self.energy, self.time = problem.energy_j, problem.time_s
        self.peak, self.peak_stage = 0, 0
        self._memory = [t.maker == START for t in problem.tensors]
        self._held_to = list(walker.end)
        self._paged: set[int] = set()  # comes back from the store
        self._written: set[int] = set()
        self._stale: set[int] = set()  # state whose home holds old content
        self._starts: list[list[tuple[int, int]]] = [[] for _ in range(walker.count)]
        self._ends: list[list[int]] = [[] for _ in range(walker.count + 2)]
        self._steps: list[Step] = []
        self._left: dict[int, int] = {}  # where in the line a tensor was given back first
        for tensor, (paged, pairs) in holds.items():
            self._set(tensor, paged and walker.may_page(tensor), pairs)
        self._bytes = sum(walker.bytes[t] for t, there in enumerate(self._memory) if there)

    def _set(self, tensor: int, paged: bool, pairs: Pairs) -> None:
        walker, t = self._walker, self._walker.problem.tensors[tensor]
        if t.maker == START:
            if not paged:
                return
            self._memory[tensor] = False
            self._written.add(tensor)
        last_start = t.updater if t.updater >= 0 else walker.count - 1
        if paged:
            self._paged.add(tensor)
        self._held_to[tensor] = -1
        for first, last in pairs:
            first, last = max(first, t.maker), min(last, walker.count - 1)
            at_end = last == walker.count - 1  # through the end: what is final may be brought back by it
            forever = at_end and t.final and t.maker != START
            if (first < last or (forever and first == last)) and first <= last_start:
                self._starts[first].append((tensor, last + 2 if forever else last + at_end))

    def run(self, limit: Limit) -> int | None:
        """None, or the tensor whose hold is to blame that it goes no further."""
        memory, held_to, maker = self._memory, self._held_to, self._walker.maker
        count = self._walker.count
        for stage in range(count):
            if self.peak > limit.peak_bytes or self.energy > limit.energy_j or self.time > limit.time_s:
                return None
            missing: list[int] = []
            for tensor, last in self._starts[stage]:
                held_to[tensor] = max(last, held_to[tensor])
                self._ends[last].append(tensor)
                if not memory[tensor] and maker[tensor] != stage:
                    missing.append(tensor)
            missing += [tensor for tensor in self._walker.reads[stage] if not memory[tensor]]
            if missing:
                blamed = self._bring(missing, stage)
                if blamed is not None:
                    return blamed
            else:
                self._compute(stage, stage, {})
            for tensor in self._ends[stage]:
                if memory[tensor] and held_to[tensor] <= stage:
                    self._free(tensor)
        kept = [t for t, tensor in enumerate(self._walker.problem.tensors) if tensor.final and tensor.maker != START]
        missing = [tensor for tensor in kept if not memory[tensor]]
        held_to[:] = [count + 1 if tensor in kept else held for tensor, held in enumerate(held_to)]
        blamed = self._bring(missing, count) if missing else None
        for tensor in self._ends[count]:
            if memory[tensor] and held_to[tensor] <= count:
                self._free(tensor)
        return blamed

    def _bring(self, missing: list[int], stage: int) -> int | None:
        """Computes the stage after all that is missing was read in or computed again."""
        walker, memory = self._walker, self._memory
        chain: set[int] = set()
        stored: set[int] = set()
        wanted_for: dict[int, int] = {}
        stack = list(missing)
        while stack:
            tensor = stack.pop()
            number = walker.maker[tensor]
            if memory[tensor] or tensor in stored or number in chain:
                continue
            if self._is_read(tensor, stage):
                stored.add(tensor)
                continue
            if walker.until[number] < stage:
                return self._blamed(tensor, wanted_for, stage)
            chain.add(number)
            for read in walker.reads[number]:
                if not memory[read]:
                    wanted_for.setdefault(read, tensor)
                    stack.append(read)
        numbers = sorted(chain)
        if stage < walker.count:
            numbers.append(stage)
        last_use = {tensor: number for number in numbers for tensor in walker.reads[number]}
        ops = walker.problem.ops
        for number in sorted(chain):
            self.energy += ops[number].energy_j
            self.time += ops[number].time_s
            self._compute(number, stage, last_use)
        for tensor in sorted(stored):
            if not memory[tensor] and tensor not in last_use and walker.maker[tensor] not in chain:
                self._read_in(tensor)
        if stage < walker.count:
            self._compute(stage, stage, last_use)
        self._note(0, min(stage, walker.count - 1))
        return None

    def _is_read(self, tensor: int, stage: int) -> bool:
        """Whether it comes back from the store in that stage, not by computing it again."""
        paged, maker = tensor in self._paged, self._walker.maker[tensor]
        if (tensor, stage) not in self._other or maker == START:
            return paged
        return self._walker.until[maker] < stage if paged else self._walker.may_page(tensor)

    def _is_left(self, tensor: int, number: int, stage: int, needed: bool) -> bool:
        """Whether it is given back right after this op; what cannot be read in again is not while it is needed."""
        return (tensor, stage, number) in self._leaves and (not needed or self._is_read(tensor, stage))

    def _blamed(self, tensor: int, wanted_for: dict[int, int], stage: int) -> int:
        """The nearest tensor that would be in memory now if it were kept."""
        while tensor in wanted_for and not (tensor in self._holds and self._walker.end[tensor] >= stage):
            tensor = wanted_for[tensor]
        return tensor

    def _compute(self, number: int, stage: int, last_use: dict[int, int]) -> None:
        walker, memory, held_to = self._walker, self._memory, self._held_to
        for tensor in walker.reads[number]:
            if not memory[tensor]:
                self._read_in(tensor)
                if tensor in self._returns:
                    self._stay(tensor, stage)
        for tensor in walker.makes[number]:
            if not memory[tensor]:
                memory[tensor] = True
                self._bytes += walker.bytes[tensor]
                if tensor in self._returns:
                    self._stay(tensor, stage)
        if self._record:
            self._steps.append(Step(Kind.COMPUTE, number))
        self._note(walker.workspace[number], min(stage, walker.count - 1))
        if number == stage and walker.problem.updates[number]:
            self._stale.update(t for t in walker.problem.updates[number] if t in self._paged)
        for tensor in walker.touches[number]:
            needed = last_use.get(tensor, -1) > number
            left = self._leaves and self._is_left(tensor, number, stage, needed)
            if left or (held_to[tensor] <= stage and not needed):
                self._free(tensor)

    def _stay(self, tensor: int, stage: int) -> None:
        for first, last in self._returns[tensor]:
            if first < stage < last:
                self._held_to[tensor] = max(self._held_to[tensor], last)
                self._ends[last].append(tensor)

    def _note(self, workspace: int, stage: int) -> None:
        if self._bytes + workspace > self.peak:
            self.peak, self.peak_stage = self._bytes + workspace, stage

    def _read_in(self, tensor: int) -> None:
        t = self._walker.problem.tensors[tensor]
        if tensor not in self._written:
            self._written.add(tensor)
            self.energy += t.out_j
            self.time += t.out_s
        self.energy += t.in_j
        self.time += t.in_s
        self._memory[tensor] = True
        self._bytes += t.bytes
        if self._record:
            self._steps.append(Step(Kind.IN, tensor))

    def _free(self, tensor: int) -> None:
        t = self._walker.problem.tensors[tensor]
        if tensor in self._stale:
            self._stale.discard(tensor)
            self.energy += t.out_j
            self.time += t.out_s
            if self._record:
                self._steps.append(Step(Kind.OUT, tensor))
        self._memory[tensor] = False
        self._bytes -= t.bytes
        if self._record:
            self._left.setdefault(tensor, len(self._steps))
            self._steps.append(Step(Kind.FREE, tensor))

    def line(self) -> tuple[Step, ...]:
        """The steps, with what is read in written out where it was given back first."""
        maker = self._walker.maker
        before = {self._left[t]: Step(Kind.OUT, t) for t in self._written if maker[t] != START and self._record}
        return tuple(s for i, step in enumerate(self._steps) for s in ((before[i], step) if i in before else (step,)))

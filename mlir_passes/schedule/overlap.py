"""Transfers beside the computes: a blocking line with its transfers begun early and waited for late.

There are two engines, one for computes and one for transfers, and each does what it is given in the order of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from mlir_passes.schedule.clock import NO_END, Clock
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, replay, stored_state

LOOKAHEAD = 16  # computes by which a transfer may begin before its place


@dataclass(frozen=True)
class Overlapped:
    """steps: asynchronous. makespan_s: from the first step to the end of the last. stall_s: of which no op runs."""

    steps: tuple[Step, ...]
    makespan_s: float
    stall_s: float


def makespan(problem: Problem, steps: Sequence[Step]) -> float:
    """Seconds that a line takes on two engines; a line without waits is blocking, so its times add up."""
    return _clock(problem, steps)


def overlapped(
    problem: Problem, steps: Sequence[Step], budget_bytes: int, lookahead: int = LOOKAHEAD, clock: Clock = NO_END
) -> Overlapped:
    """The fastest of a few asynchronous lines with the same computes and transfers as a blocking one.

    What is read in begins up to `lookahead` computes early, as far as the budget has room for it; what is written out
    begins then too, and its memory is given back when it is needed or the transfer has ended. Within the budget as
    `replay` counts, and never slower than the blocking line, which must be valid and within the budget itself. When the
    time is up, what was found is the answer.
    """
    if any(step.kind in (Kind.OUT_DONE, Kind.IN_DONE) for step in steps):
        raise ScheduleError("only a blocking line can be overlapped")
    usage = replay(problem, steps, budget_bytes)
    best = waiting(steps)
    if usage.pages_in + usage.pages_out:
        reach = {0, 1, lookahead // 4, lookahead // 2, lookahead}
        for n, early in product(reach, (False, True)):
            if clock.left_s() > 0:
                line = _Overlap(problem, steps, budget_bytes, n, early).line()
                best = min(best, line, key=lambda line: makespan(problem, line))
    replay(problem, best, budget_bytes)
    seconds = makespan(problem, best)
    computes = sum(problem.ops[s.index].time_s for s in best if s.kind == Kind.COMPUTE)
    return Overlapped(best, seconds, max(0.0, seconds - computes))


def waiting(steps: Sequence[Step]) -> tuple[Step, ...]:
    """A blocking line in its asynchronous form: each transfer is waited for at once."""
    ends = {Kind.OUT: Kind.OUT_DONE, Kind.IN: Kind.IN_DONE}
    return tuple(
        part for s in steps for part in ((s, Step(ends[s.kind], s.index)) if s.kind in ends else (s,))
    )  # fmt: skip


def _clock(problem: Problem, steps: Sequence[Step]) -> float:
    waits = any(step.kind in (Kind.OUT_DONE, Kind.IN_DONE) for step in steps)
    line = steps if waits else waiting(steps)
    computed = transferred = 0.0
    ends: dict[int, float] = {}
    for step in line:
        if step.kind == Kind.COMPUTE:
            computed += problem.ops[step.index].time_s
        elif step.kind in (Kind.OUT, Kind.IN):
            transferred = max(computed, transferred) + _seconds(problem, step)
            ends[step.index] = transferred
        elif step.kind != Kind.FREE:
            computed = max(computed, ends[step.index])
    return max(computed, transferred)


def _seconds(problem: Problem, step: Step) -> float:
    tensor = problem.tensors[step.index]
    return tensor.out_s if step.kind == Kind.OUT else tensor.in_s


class _Overlap:
    """One pass over a blocking line. Positions are those of the blocking line."""

    def __init__(self, problem: Problem, steps: Sequence[Step], budget: int, lookahead: int, early: bool) -> None:
        self._problem, self._steps, self._budget = problem, steps, budget
        self._lookahead, self._early = lookahead, early  # early: whether writes begin before their place too
        self._home = stored_state(problem, steps)
        self._line: list[Step] = []
        self._memory = {i for i, t in enumerate(problem.tensors) if t.maker == START} - self._home
        self._bytes = sum(problem.tensors[t].bytes for t in self._memory)
        self._computed = self._transferred = 0.0
        self._ends: dict[int, float] = {}  # of the transfers that nobody has waited for yet
        self._kinds: dict[int, Kind] = {}
        self._to_free: set[int] = set()  # given back by the blocking line, still being written out
        self._issued: set[int] = set()  # positions
        self._taken = self._profile()
        self._open = self._opens()
        self._computes = _counted(steps)

    def line(self) -> tuple[Step, ...]:
        for position, step in enumerate(self._steps):
            self._end_what_has_ended()
            self._begin_early(position, step)
            if position not in self._issued:
                self._do(step)
        for tensor in list(self._ends):
            self._wait(tensor)
        return tuple(self._line)

    def _profile(self) -> list[int]:
        """For each position, bytes in the blocking line at its most."""
        memory, taken, held = set(self._memory), self._bytes, list[int]()
        for step in self._steps:
            added = [step.index] if step.kind == Kind.IN else []
            if step.kind == Kind.COMPUTE:
                added = [t for t in self._problem.ops[step.index].makes if t not in memory]
            taken += sum(self._problem.tensors[t].bytes for t in added)
            memory.update(added)
            held.append(taken + (self._problem.ops[step.index].workspace if step.kind == Kind.COMPUTE else 0))
            if step.kind == Kind.FREE:
                memory.discard(step.index)
                taken -= self._problem.tensors[step.index].bytes
        return held

    def _opens(self) -> dict[int, int]:
        """For each transfer's position, the first one at which it may begin: after what last touched its tensor."""
        free_from: dict[int, int] = {}  # where an IN may be
        made_from: dict[int, int] = {}  # where an OUT may be
        opens: dict[int, int] = {}
        for position, step in enumerate(self._steps):
            if step.kind == Kind.COMPUTE:
                op = self._problem.ops[step.index]
                made_from.update(dict.fromkeys((*op.makes, *self._problem.updates[step.index]), position + 1))
                free_from.update(dict.fromkeys((*op.reads, *op.makes), position + 1))
                continue
            if step.kind != Kind.FREE:
                opens[position] = (free_from if step.kind == Kind.IN else made_from).get(step.index, 0)
            free_from[step.index] = made_from[step.index] = position + 1
        return opens

    def _end_what_has_ended(self) -> None:
        for tensor, end in list(self._ends.items()):
            if end <= self._computed and self._kinds[tensor] == Kind.OUT:
                self._wait(tensor)

    def _begin_early(self, position: int, step: Step) -> None:
        """Begins later transfers as long as the engine would else be idle before the next step's end."""
        busy_to = self._computed
        if step.kind == Kind.COMPUTE:
            busy_to += self._problem.ops[step.index].time_s
        ahead = position + 1 if step.kind not in (Kind.IN, Kind.OUT) else position
        while self._transferred <= busy_to and ahead < len(self._steps):
            if self._computes[ahead] - self._computes[position] > self._lookahead:
                return
            if ahead > position and ahead not in self._issued and self._may_begin(position, ahead):
                self._issued.add(ahead)
                self._charge(position, ahead)
                self._begin(self._steps[ahead])
            ahead += 1

    def _may_begin(self, position: int, ahead: int) -> bool:
        if self._open.get(ahead, len(self._steps)) > position:  # no transfer, or not yet
            return False
        later = self._steps[ahead]
        tensor, size = later.index, self._problem.tensors[later.index].bytes
        if tensor in self._ends:
            return False
        if later.kind == Kind.OUT:
            return self._early and tensor in self._memory
        if tensor in self._memory or self._bytes + size > self._budget:
            return False
        return all(self._taken[p] + size <= self._budget for p in range(position, ahead))

    def _charge(self, position: int, ahead: int) -> None:
        later = self._steps[ahead]
        if later.kind == Kind.IN:
            for p in range(position, ahead):
                self._taken[p] += self._problem.tensors[later.index].bytes

    def _do(self, step: Step) -> None:
        if step.kind == Kind.COMPUTE:
            self._compute(step)
        elif step.kind == Kind.FREE:
            if self._kinds.get(step.index) == Kind.OUT and self._ends[step.index] > self._computed:
                self._to_free.add(step.index)
                return
            self._settle(step.index)
            self._free(step.index)
        else:
            self._settle(step.index)
            if step.kind == Kind.IN:
                self._make_room(self._problem.tensors[step.index].bytes)
            self._begin(step)

    def _compute(self, step: Step) -> None:
        op = self._problem.ops[step.index]
        for tensor in (*op.reads, *op.makes):
            reads_only = self._kinds.get(tensor) == Kind.OUT and tensor in op.reads
            if reads_only and tensor not in self._problem.updates[step.index] and tensor not in self._to_free:
                continue
            self._settle(tensor)
        made = [t for t in op.makes if t not in self._memory]
        size = sum(self._problem.tensors[t].bytes for t in made)
        self._make_room(size + op.workspace)
        self._memory.update(made)
        self._bytes += size
        self._line.append(step)
        self._computed += op.time_s

    def _begin(self, step: Step) -> None:
        self._line.append(step)
        self._transferred = max(self._computed, self._transferred) + _seconds(self._problem, step)
        self._ends[step.index], self._kinds[step.index] = self._transferred, step.kind
        if step.kind == Kind.IN:
            self._memory.add(step.index)
            self._bytes += self._problem.tensors[step.index].bytes

    def _make_room(self, size: int) -> None:
        """Waits for what is being written out, the first that ends first, until so many bytes are free."""
        for tensor in sorted(self._to_free, key=lambda t: self._ends[t]):
            if self._bytes + size <= self._budget:
                return
            self._wait(tensor)

    def _settle(self, tensor: int) -> None:
        if tensor in self._ends:
            self._wait(tensor)

    def _wait(self, tensor: int) -> None:
        kind = self._kinds.pop(tensor)
        self._computed = max(self._computed, self._ends.pop(tensor))
        self._line.append(Step(Kind.OUT_DONE if kind == Kind.OUT else Kind.IN_DONE, tensor))
        if tensor in self._to_free:
            self._to_free.discard(tensor)
            self._free(tensor)

    def _free(self, tensor: int) -> None:
        self._line.append(Step(Kind.FREE, tensor))
        self._memory.discard(tensor)
        self._bytes -= self._problem.tensors[tensor].bytes


def _counted(steps: Sequence[Step]) -> list[int]:
    """For each position, how many computes come before it."""
    counts, count = list[int](), 0
    for step in steps:
        counts.append(count)
        count += step.kind == Kind.COMPUTE
    return counts

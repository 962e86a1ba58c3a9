"""A schedule as a line of steps, and the replay that judges it: it knows nothing of how a schedule was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlir_passes.errors import PassError
from mlir_passes.schedule.problem import START, Problem


class Kind(StrEnum):
    """compute: an op. The others name a tensor. free: its memory is given back. out, in: a transfer to or from the
    store begins. out_done, in_done: the line goes on only when that transfer has ended.

    While a transfer is on its way the tensor's memory is taken. A line without *_done steps is blocking: each transfer
    ends before the next step begins.
    """

    COMPUTE = "compute"
    FREE = "free"
    OUT = "out"
    OUT_DONE = "out_done"
    IN = "in"
    IN_DONE = "in_done"


@dataclass(frozen=True)
class Step:
    """kind, and the index of an op (compute) or of a tensor."""

    kind: Kind
    index: int


@dataclass(frozen=True)
class Usage:
    """What a line of steps takes. time_s: one thing after the other, transfers included. peak_bytes: most memory at
    once. remats: ops computed again. paged_bytes: what is on the store at most."""

    energy_j: float
    time_s: float
    peak_bytes: int
    remats: int
    pages_out: int
    pages_in: int
    paged_bytes: int


class ScheduleError(PassError):
    """A line of steps that is not a schedule of its problem."""

    def __init__(self, what: str) -> None:
        super().__init__("schedule", what)


def keep_all(problem: Problem) -> tuple[Step, ...]:
    """Each op once, each tensor freed after its last use."""
    steps: list[Step] = []
    for number, op in enumerate(problem.ops):
        steps.append(Step(Kind.COMPUTE, number))
        used = dict.fromkeys((*op.reads, *op.makes))
        steps += [Step(Kind.FREE, t) for t in used if problem.last[t] == number and not _stays(problem, t)]
    return tuple(steps)


def _stays(problem: Problem, tensor: int) -> bool:
    return problem.tensors[tensor].final or problem.tensors[tensor].maker == START


def stored_state(problem: Problem, steps: Sequence[Step]) -> frozenset[int]:
    """The tensors there before the first op whose home is the store: those that the line reads in before all else."""
    first: dict[int, Kind] = {}
    for step in steps:
        if step.kind != Kind.COMPUTE:
            first.setdefault(step.index, step.kind)
    return frozenset(t for t, kind in first.items() if kind == Kind.IN and problem.tensors[t].maker == START)


def replay(problem: Problem, steps: Sequence[Step], budget: int | None = None) -> Usage:
    """What the line takes; raises ScheduleError where it breaks a rule or is over the budget.

    Rules: inputs are in memory at each compute, and not on their way in; what is read in was written before, and is
    current; a tensor of an op that has run is made again only by that op; an op that updates runs once, and after it
    nobody reads the old content; at the end all ops have run, and what is final is in memory, or in its home.
    """
    return _Replay(problem, steps, budget).run()


class _Replay:
    def __init__(self, problem: Problem, steps: Sequence[Step], budget: int | None) -> None:
        self._problem, self._steps, self._budget = problem, steps, budget
        self._home = stored_state(problem, steps)
        start = {i for i, t in enumerate(problem.tensors) if t.maker == START}
        self._memory = start - self._home
        self._stored = set(self._home)  # what the store holds in its current content
        self._going: dict[int, Kind] = {}  # transfers that *_done will end
        self._waits = any(s.kind in (Kind.OUT_DONE, Kind.IN_DONE) for s in steps)
        self._run: set[int] = set()
        self._bytes = sum(problem.tensors[t].bytes for t in self._memory)
        self._peak, self._paged = 0, 0
        self._energy = self._time = 0.0
        self._count = dict.fromkeys(Kind, 0)
        self._remats = 0

    def run(self) -> Usage:
        self._note(0, "the start")
        for number, step in enumerate(self._steps):
            where = f"step {number}, {step.kind} {self._name(step)}"
            self._count[step.kind] += 1
            getattr(self, f"_{step.kind}")(step.index, where)
        self._check_end()
        return Usage(
            self._energy, self._time, self._peak, self._remats,
            self._count[Kind.OUT], self._count[Kind.IN], self._paged,
        )  # fmt: skip

    def _name(self, step: Step) -> str:
        return (self._problem.ops if step.kind == Kind.COMPUTE else self._problem.tensors)[step.index].name

    def _compute(self, index: int, where: str) -> None:
        op = self._problem.ops[index]
        for t in op.reads:
            if t not in self._memory or self._going.get(t) == Kind.IN:
                raise ScheduleError(f"{where}: {self._problem.tensors[t].name} is not in memory")
        if index in self._run:
            if self._problem.updates[index]:
                raise ScheduleError(f"{where}: it overwrites its inputs, so it cannot run twice")
            self._remats += 1
        for t in op.reads:
            tensor = self._problem.tensors[t]
            if tensor.updater in self._run and tensor.updater != index:
                raise ScheduleError(f"{where}: {tensor.name} was overwritten before")
            if tensor.updater == index:
                if self._going.get(t):
                    raise ScheduleError(f"{where}: {tensor.name} is overwritten while it is written out")
                self._stored.discard(t)
        self._run.add(index)
        made = [t for t in op.makes if t not in self._memory]
        self._memory.update(made)
        self._bytes += sum(self._problem.tensors[t].bytes for t in made)
        self._energy += op.energy_j
        self._time += op.time_s
        self._note(op.workspace, where)

    def _free(self, index: int, where: str) -> None:
        if index not in self._memory:
            raise ScheduleError(f"{where}: it is not in memory")
        if index in self._going:
            raise ScheduleError(f"{where}: a transfer of it is on its way")
        self._memory.discard(index)
        self._bytes -= self._problem.tensors[index].bytes

    def _out(self, index: int, where: str) -> None:
        tensor = self._problem.tensors[index]
        if index not in self._memory or index in self._going:
            raise ScheduleError(f"{where}: it is not in memory, or on its way already")
        if not tensor.pageable:
            raise ScheduleError(f"{where}: it may not be paged")
        self._energy += tensor.out_j
        self._time += tensor.out_s
        self._stored.add(index)
        self._paged = max(self._paged, sum(self._problem.tensors[t].bytes for t in self._stored | self._home))
        if self._waits:
            self._going[index] = Kind.OUT

    def _in(self, index: int, where: str) -> None:
        tensor = self._problem.tensors[index]
        if index not in self._stored or self._going.get(index) == Kind.OUT:
            raise ScheduleError(f"{where}: the store does not have it")
        if index in self._memory:
            raise ScheduleError(f"{where}: it is in memory already")
        self._energy += tensor.in_j
        self._time += tensor.in_s
        self._memory.add(index)
        self._bytes += tensor.bytes
        self._paged = max(self._paged, sum(self._problem.tensors[t].bytes for t in self._stored | self._home))
        if self._waits:
            self._going[index] = Kind.IN
        self._note(0, where)

    def _out_done(self, index: int, where: str) -> None:
        self._end(index, Kind.OUT, where)

    def _in_done(self, index: int, where: str) -> None:
        self._end(index, Kind.IN, where)

    def _end(self, index: int, kind: Kind, where: str) -> None:
        if self._going.pop(index, None) != kind:
            raise ScheduleError(f"{where}: no such transfer is on its way")

    def _note(self, workspace: int, where: str) -> None:
        self._peak = max(self._peak, self._bytes + workspace)
        if self._budget is not None and self._bytes + workspace > self._budget:
            raise ScheduleError(f"{where}: {self._bytes + workspace} bytes, the budget is {self._budget}")

    def _check_end(self) -> None:
        missing = [op.name for i, op in enumerate(self._problem.ops) if i not in self._run]
        if missing:
            raise ScheduleError(f"the line ends, and {', '.join(missing[:5])} did not run")
        if self._going:
            raise ScheduleError(f"a transfer of {self._problem.tensors[min(self._going)].name} never ends")
        for index, tensor in enumerate(self._problem.tensors):
            place = self._stored if index in self._home else self._memory
            if (tensor.final or tensor.maker == START) and index not in place:
                raise ScheduleError(f"{tensor.name} is not where it belongs when the line ends")

"""A schedule over time: what computes and what moves when, what lies in memory meanwhile, and how much that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, Step, stored_state


class Lane(StrEnum):
    """What happens in a span, and what brought a tensor into memory: the first computation of an op, a later one, a
    transfer to the store, one back."""

    COMPUTE = "computed"
    AGAIN = "computed again"
    OUT = "written out"
    IN = "read in"


@dataclass(frozen=True)
class Span:
    """Some time on one of the two engines. index: of an op, or of the tensor that moves."""

    lane: Lane
    index: int
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Stay:
    """Some time of a tensor in memory; transfers there and away are part of it."""

    tensor: int
    lane: Lane
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Trace:
    """memory: times and the bytes taken from each on; among the points of one time, all levels that were reached.

    stored: for each tensor that is ever on the store, when it first is.
    """

    spans: tuple[Span, ...]
    stays: tuple[Stay, ...]
    memory: tuple[tuple[float, int], ...]
    stored: dict[int, float]
    makespan_s: float

    @property
    def peak_bytes(self) -> int:
        return max(taken for _, taken in self.memory)

    @property
    def stall_s(self) -> float:
        """How long the computing waits."""
        return self.makespan_s - sum(s.end_s - s.begin_s for s in self.spans if s.lane in (Lane.COMPUTE, Lane.AGAIN))


def trace(problem: Problem, steps: Sequence[Step]) -> Trace:
    """The line on two engines, one that computes and one that moves, each in the order of the line.

    A transfer begins when the line comes to it and the one before it has ended. A valid line is taken for granted.
    """
    return _Tracer(problem, steps).run()


class _Tracer:
    def __init__(self, problem: Problem, steps: Sequence[Step]) -> None:
        self._problem, self._steps = problem, steps
        self._blocking = not any(s.kind in (Kind.OUT_DONE, Kind.IN_DONE) for s in steps)
        home = stored_state(problem, steps)
        there = [t for t, tensor in enumerate(problem.tensors) if tensor.maker == START and t not in home]
        self._now = self._free_s = 0.0  # of the line; of the engine that moves
        self._since: dict[int, tuple[float, Lane]] = {t: (0.0, Lane.COMPUTE) for t in there}
        self._stored = dict.fromkeys(home, 0.0)
        self._ends: dict[int, float] = {}
        self._ran: set[int] = set()
        self._spans: list[Span] = []
        self._stays: list[Stay] = []
        self._taken = sum(problem.tensors[t].bytes for t in self._since)
        self._memory = [(0.0, self._taken)]

    def run(self) -> Trace:
        for step in self._steps:
            if step.kind == Kind.COMPUTE:
                self._compute(step.index)
            elif step.kind == Kind.FREE:
                self._leave(step.index)
            elif step.kind in (Kind.OUT, Kind.IN):
                self._move(step.index, step.kind)
            else:
                self._now = max(self._now, self._ends[step.index])
        left = (Stay(tensor, lane, begin, self._now) for tensor, (begin, lane) in self._since.items())
        self._stays += left
        return Trace(tuple(self._spans), tuple(self._stays), tuple(self._memory), self._stored, self._now)

    def _compute(self, index: int) -> None:
        op, begin = self._problem.ops[index], self._now
        lane = Lane.AGAIN if index in self._ran else Lane.COMPUTE
        self._ran.add(index)
        self._now += op.time_s
        self._spans.append(Span(lane, index, begin, self._now))
        made = [t for t in op.makes if t not in self._since]
        self._since |= {t: (begin, lane) for t in made}
        self._taken += sum(self._problem.tensors[t].bytes for t in made)
        self._memory.append((begin, self._taken + op.workspace))
        self._memory.append((self._now, self._taken))

    def _move(self, tensor: int, kind: Kind) -> None:
        about = self._problem.tensors[tensor]
        if kind == Kind.IN:
            self._since[tensor] = self._now, Lane.IN
            self._taken += about.bytes
            self._memory.append((self._now, self._taken))
        begin = max(self._now, self._free_s)
        end = begin + (about.out_s if kind == Kind.OUT else about.in_s)
        self._spans.append(Span(Lane.OUT if kind == Kind.OUT else Lane.IN, tensor, begin, end))
        self._free_s = self._ends[tensor] = end
        if kind == Kind.OUT:
            self._stored.setdefault(tensor, end)
        if self._blocking:
            self._now = end

    def _leave(self, tensor: int) -> None:
        begin, lane = self._since.pop(tensor)
        self._stays.append(Stay(tensor, lane, begin, self._now))
        self._taken -= self._problem.tensors[tensor].bytes
        self._memory.append((self._now, self._taken))

"""Random schedules with asynchronous transfers, made without any of the code that looks for good ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, replay


class _Stuck(Exception):
    """Something is needed that can be had no more."""


def random_steps(problem: Problem, rng: random.Random) -> tuple[Step, ...]:
    """Valid steps that keep, write out, read in early, and compute again by chance; a third of them are blocking."""
    while True:
        homes = {i for i, t in enumerate(problem.tensors) if t.maker == START and t.pageable and rng.random() < 0.5}
        try:
            steps = _Drawing(problem, rng, homes, rng.uniform(0, 0.6)).steps()
            if rng.random() < 0.3:
                steps = tuple(s for s in steps if s.kind not in (Kind.OUT_DONE, Kind.IN_DONE))
            replay(problem, steps)
        except (_Stuck, ScheduleError):
            continue
        return steps


@dataclass
class _Drawing:
    problem: Problem
    rng: random.Random
    homes: set[int]
    restless: float
    line: list[Step] = field(default_factory=list[Step])
    stored: set[int] = field(default_factory=set[int])
    memory: set[int] = field(default_factory=set[int])
    going: dict[int, Kind] = field(default_factory=dict[int, Kind])
    ran: set[int] = field(default_factory=set[int])

    def steps(self) -> tuple[Step, ...]:
        tensors = self.problem.tensors
        self.stored = set(self.homes)
        self.memory = {i for i, t in enumerate(tensors) if t.maker == START} - self.homes
        for number, op in enumerate(self.problem.ops):
            for t in [*self.going]:
                if self.rng.random() < 0.3:
                    self.settle(t)
            for t in sorted(self.memory - set(op.reads)):
                if self.rng.random() < self.restless:
                    self.evict(t, number)
            for t in sorted(self.stored - self.memory):
                if self.rng.random() < 0.2 and (tensors[t].final or tensors[t].readers[-1:] > (number,)):
                    self.read_in(t)
            self.compute(number)
        for t in [*self.going]:
            self.settle(t)
        for t, tensor in enumerate(tensors):
            if t in self.homes:
                self.bring_home(t)
            elif tensor.final:
                self.fetch(t)
        for t in [*self.going]:
            self.settle(t)
        return tuple(self.line)

    def add(self, kind: Kind, index: int) -> None:
        self.line.append(Step(kind, index))

    def settle(self, t: int) -> None:
        if t in self.going:
            self.add(Kind.OUT_DONE if self.going.pop(t) == Kind.OUT else Kind.IN_DONE, t)

    def read_in(self, t: int) -> None:
        self.settle(t)
        self.add(Kind.IN, t)
        self.going[t] = Kind.IN
        self.memory.add(t)

    def write_out(self, t: int) -> None:
        self.settle(t)
        self.add(Kind.OUT, t)
        self.going[t] = Kind.OUT
        self.stored.add(t)

    def free(self, t: int) -> None:
        self.settle(t)
        self.add(Kind.FREE, t)
        self.memory.discard(t)

    def evict(self, t: int, now: int) -> None:
        tensor = self.problem.tensors[t]
        dead = not tensor.final and all(r < now for r in tensor.readers)
        again = (
            tensor.maker >= 0
            and not tensor.final
            and self.problem.until[tensor.maker] >= max(tensor.readers, default=-1)
        )
        if t in self.stored or dead or (again and self.rng.random() < 0.6):
            self.free(t)
        elif tensor.pageable:
            self.write_out(t)
            if self.rng.random() < 0.5:
                self.free(t)

    def fetch(self, t: int) -> None:
        if t in self.memory:
            if self.going.get(t) == Kind.IN:
                self.settle(t)
        elif t in self.stored:
            self.read_in(t)
            self.settle(t)
        elif self.problem.tensors[t].maker in self.ran:
            self.compute(self.problem.tensors[t].maker)
        else:
            raise _Stuck

    def compute(self, number: int) -> None:
        op, updates = self.problem.ops[number], self.problem.updates[number]
        if number in self.ran and updates:
            raise _Stuck
        for t in op.reads:
            self.fetch(t)
        for t in updates:
            self.settle(t)
            self.stored.discard(t)
        self.add(Kind.COMPUTE, number)
        self.memory.update(op.makes)
        self.ran.add(number)

    def bring_home(self, t: int) -> None:
        """Leave a tensor whose home is the store there; one that was never touched is read in for nothing."""
        if t not in self.stored:
            self.write_out(t)
        elif Step(Kind.IN, t) not in self.line:
            self.read_in(t)
        if t in self.memory:
            self.free(t)

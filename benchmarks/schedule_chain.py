"""The optimal schedule of a chain under a memory limit, by dynamic programming, after rotor and POFO.

rotor (Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019, arXiv 1911.13214) takes a network as a
chain of stages, each with a forward, what that leaves for its backward, and the backward, and finds the cheapest
persistent schedule: what is kept is kept until its backward. POFO (Beaumont et al., NeurIPS 2021) adds offloading.

What is simpler here, or kinder to them. Memory is counted in `slots` steps, sizes rounded up, so what fits exactly may
be refused. Costs are summed: an offload hides behind nothing, which does not change its energy. An input that was kept
as a checkpoint may stay until it is used as an output too; rotor makes it again. Offload is decided for an input, and
for all that a stage leaves, together. State is never paged. A stage is kept or made again whole, and one that updates
state on its way, such as the statistics of a batch norm, is never made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, inf

import numpy as np

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, keep_all, replay
from schedule_stages import Stage, chain_of


def chain_steps(problem: Problem, budget: int, offload: bool = False, slots: int = 1000) -> tuple[Step, ...] | None:
    """A blocking line of least energy among chain schedules; None where there is none, or no chain."""
    if replay(problem, keep_all(problem)).peak_bytes <= budget:
        return keep_all(problem)
    chain = chain_of(problem)
    if chain is None:
        return None
    constant = sum(t.bytes for i, t in enumerate(problem.tensors) if t.maker == START or i in chain.metrics)
    if budget <= constant:
        return None
    steps = _Programme(problem, chain.stages, budget - constant, slots, offload).line()
    if steps is None:
        return None
    try:
        replay(problem, steps, budget)
    except ScheduleError:  # an op overwrites what an earlier stage still needs to run again
        return None
    return steps


@dataclass(frozen=True)
class _Way:
    """How the stages first..last are done in two parts, the second from `middle` on. save: the first part is all of
    the first stage, kept for its backward; else the first part runs up to the middle now, and whole again later.
    hold: the carrier between the parts stays for the first part. away: the input of the first stage, and what is
    saved, are on the store during the second part."""

    middle: int
    save: bool = False
    hold: bool = False
    away: bool = False


@dataclass(frozen=True)
class _Part:
    """What a way takes before its second part, whatever the last stage is. need: slots while it runs. taken: slots
    less for the second part; negative where the input leaves. away: tensors that go to the store meanwhile."""

    need: int
    taken: int
    energy_j: float
    away: tuple[int, ...]


class _Programme:
    """Joules of doing the stages first..last, for each number of free slots; `held`: their last carrier is in memory.

    The input of the first stage is in memory before and after, and counts elsewhere.
    """

    def __init__(self, problem: Problem, stages: Sequence[Stage], budget: int, slots: int, offload: bool) -> None:
        self._problem, self._stages = problem, stages
        self._unit = self._bytes_a_slot(budget, slots)
        self._slots = budget // self._unit
        self._waiting = [self._size(stage.waiting) for stage in stages]
        self._backward = [self._count(stage.backward.peak_bytes) for stage in stages]
        aways = (False, True) if offload else (False,)
        self._parts = [
            {way: self._part(first, way) for way in self._ways(first, aways)} for first in range(len(stages))
        ]
        self._table: dict[tuple[int, int, bool], np.ndarray] = {}
        self._stored: set[int] = set()

    def line(self) -> tuple[Step, ...] | None:
        last = len(self._stages) - 1
        for length in range(len(self._stages)):
            for first in range(last - length + 1):
                for held in (False, True):
                    self._table[first, first + length, held] = self._least(first, first + length, held)
        if self._table[0, last, False][self._slots] == inf:
            return None
        return tuple(self._steps(0, last, self._slots, False))

    def _bytes_a_slot(self, budget: int, slots: int) -> int:
        """The greatest common divisor of all sizes, if that is not too fine."""
        sizes = [t.bytes for t in self._problem.tensors] + [op.workspace for op in self._problem.ops]
        common = max(1, gcd(*sizes))
        return common if budget // common <= slots else -(-budget // slots)

    def _count(self, size: int) -> int:
        return -(-size // self._unit)

    def _size(self, tensors: Iterable[int]) -> int:
        return sum(self._count(self._problem.tensors[t].bytes) for t in tensors)

    def _ways(self, first: int, aways: Sequence[bool]) -> list[_Way]:
        """All that are possible from a first stage on, for any last one."""
        ways: list[_Way] = []
        for away in aways:
            ways.append(_Way(first + 1, save=True, away=away))
            for middle in range(first + 1, len(self._stages)):
                if all(stage.repeats for stage in self._stages[first:middle]):
                    ways += [_Way(middle, hold=hold, away=away) for hold in (False, True)]
        return ways

    def _part(self, first: int, way: _Way) -> _Part:
        stage, passed = self._stages[first], self._stages[first + 1 : way.middle]
        runs = [stage.whole_on] if way.save else [stage.advance, *(s.passing for s in passed)]
        entry = [self._stages[first - 1].carrier] if first else []
        saved = [t for t in stage.saved if t != stage.carrier] if way.save else []
        gone = [t for t in (*entry, *saved) if way.away and self._problem.tensors[t].pageable]
        stay = [self._stages[way.middle - 1].carrier, *(t for t in saved if t not in gone)]
        return _Part(
            need=max(self._count(run.peak_bytes) for run in runs),
            taken=self._size(stay) - self._size(t for t in entry if t in gone),
            energy_j=sum(r.energy_j for r in runs)
            + sum(self._problem.tensors[t].out_j + self._problem.tensors[t].in_j for t in gone),
            away=tuple(gone),
        )

    def _least(self, first: int, last: int, held: bool) -> np.ndarray:
        if first == last:
            return self._single(first, held)
        ways = (way for way in self._parts[first] if way.middle <= last)
        return np.minimum.reduce([self._cost(first, last, held, way) for way in ways])

    def _single(self, first: int, held: bool) -> np.ndarray:
        stage = self._stages[first]
        run = stage.rest if held else stage.whole
        need = max(self._count(run.peak_bytes) + self._waiting[first], self._backward[first])
        cost = np.full(self._slots + 1, run.energy_j + stage.backward.energy_j, float)
        cost[:need] = inf
        return cost

    def _cost(self, first: int, last: int, held: bool, way: _Way) -> np.ndarray:
        part = self._parts[first][way]
        need = part.need + self._waiting[last] + (self._size([self._stages[last].carrier]) if held else 0)
        total = self._shifted(self._table[way.middle, last, held], part.taken)
        if way.save:
            need = max(need, self._backward[first])
            total += part.energy_j + self._stages[first].backward.energy_j
        else:
            total += part.energy_j
            total += self._table[first, way.middle - 1, way.hold]
        total[:need] = inf
        return total

    def _shifted(self, costs: np.ndarray, taken: int) -> np.ndarray:
        """Costs by the free slots before `taken` of them are; more than all slots are of no more use than all."""
        shifted = np.full(self._slots + 1, inf if taken >= 0 else costs[-1])
        if taken >= 0:
            shifted[taken:] = costs[: max(0, self._slots + 1 - taken)]
        else:
            shifted[:taken] = costs[-taken:]
        return shifted

    def _steps(self, first: int, last: int, free: int, held: bool) -> list[Step]:
        """The cheapest line with so many free slots."""
        stage = self._stages[first]
        if first == last:
            return [*(stage.rest if held else stage.whole).steps, *stage.backward.steps]
        ways = (way for way in self._parts[first] if way.middle <= last)
        way = min(ways, key=lambda w: self._cost(first, last, held, w)[free])
        part, carrier = self._parts[first][way], self._stages[way.middle - 1].carrier
        steps = list(stage.whole_on.steps if way.save else stage.advance.steps)
        steps += [step for s in self._stages[first + 1 : way.middle] if not way.save for step in s.passing.steps]
        for t in part.away:
            steps += [Step(Kind.FREE, t)] if t in self._stored else [Step(Kind.OUT, t), Step(Kind.FREE, t)]
            self._stored.add(t)
        steps += self._steps(way.middle, last, min(free - part.taken, self._slots), held)
        if not way.hold and not (way.save and carrier in stage.saved):
            steps.append(Step(Kind.FREE, carrier))
        steps += [Step(Kind.IN, t) for t in part.away]
        if way.save:
            return [*steps, *stage.backward.steps]
        return [*steps, *self._steps(first, way.middle - 1, free, way.hold)]

"""A step with a schedule that keeps a memory budget, and with what everything kept would take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from gevo.schedule_trace import trace
from mlir_passes.schedule.genes import Before, Gene, to_plain
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request, Solution
from mlir_passes.schedule.steps import Kind, Usage, keep_all, replay

_ROUNDING = 1e-9  # a gap below that is one of sums in another order


@dataclass(frozen=True)
class Scheduled:
    """target: cpu or model:NAME. energy_method, time_method: how joules and seconds are known.

    peak_bytes, paged_bytes: ends of the arena and of the page file that the schedule was planned in; keep_bytes: the
    arena with everything kept. bound: what no schedule within the budget can be below, J or s as `request.minimise`.
    problem: in the order of the schedule, which `moves` make of the step's own; bound and proof are of that order.
    """

    workload: str
    target: str
    energy_method: str
    time_method: str
    problem: Problem
    moves: tuple[Before, ...]
    request: Request
    solution: Solution
    bound: float
    peak_bytes: int
    paged_bytes: int
    keep_bytes: int

    @cached_property
    def keep(self) -> Usage:
        """What computing each op once and keeping everything takes."""
        return replay(self.problem, keep_all(self.problem))

    @property
    def energy_overhead(self) -> float:
        """Of energy over keeping everything: 0.02 for 2 % more."""
        return share(self.solution.usage.energy_j, self.keep.energy_j)

    @property
    def time_overhead(self) -> float:
        """Of the step's time, transfers beside the computing, over keeping everything."""
        return share(self.solution.makespan_s, self.keep.time_s)

    @property
    def objective(self) -> float:
        """What was minimised, of this schedule: J, or seconds of the line without overlap."""
        if self.request.minimise == "energy":
            return self.solution.usage.energy_j
        return replay(self.problem, self.solution.blocking).time_s

    @property
    def gap(self) -> float:
        """How far the schedule is from the bound, as a share of keeping everything; 0 where it is proven best."""
        kept = self.keep.energy_j if self.request.minimise == "energy" else self.keep.time_s
        gap = (self.objective - self.bound) / kept if kept else 0.0
        return gap if gap > _ROUNDING else 0.0

    @cached_property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes written to the store and read from it in a step."""
        sums = dict.fromkeys((Kind.OUT, Kind.IN), 0)
        for step in self.solution.steps:
            if step.kind in sums:
                sums[step.kind] += self.problem.tensors[step.index].bytes
        return sums[Kind.OUT], sums[Kind.IN]

    @cached_property
    def stall_s(self) -> float:
        """How long the computing waits for transfers."""
        return trace(self.problem, self.solution.steps).stall_s

    @property
    def genes(self) -> tuple[Gene, ...]:
        return (*self.moves, *self.solution.holds)

    @cached_property
    def stored(self) -> bytes:
        """The schedule as it is stored in a genome."""
        return json.dumps(to_plain(self.genes), separators=(",", ":")).encode()


def stopped(solution: Solution) -> bool:
    """Whether Ctrl-C ended the search for it."""
    return solution.proven.endswith("stopped")


def share(value: float, base: float) -> float:
    """How much more `value` is than `base`, as a share of it; 0 where there is no base."""
    return value / base - 1 if base else 0.0

"""How a kernel is made: by the emitter with a schedule a phase, or by a library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlir_passes.kernels.nest import Nest, NotCovered, Phase
from mlir_passes.kernels.schedule import Schedule

IMPLEMENTATIONS = ("emitter", "blas")


@dataclass(frozen=True)
class Choice:
    """One of IMPLEMENTATIONS; schedules: for the emitter, one a phase, or none for the families' defaults."""

    implementation: str = "emitter"
    schedules: tuple[Schedule, ...] = ()

    def __post_init__(self) -> None:
        if self.implementation not in IMPLEMENTATIONS:
            raise ValueError(f"unknown implementation {self.implementation!r}; known: {', '.join(IMPLEMENTATIONS)}")

    @property
    def text(self) -> str:
        """One canonical line of JSON: equal for equal choices only."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        return {"implementation": self.implementation, "schedules": [s.to_json() for s in self.schedules]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Choice:
        """Raises ValueError, KeyError or TypeError where `data` is not a choice."""
        return Choice(data["implementation"], tuple(Schedule.from_json(s) for s in data["schedules"]))


DEFAULT = Choice()
BLAS = Choice("blas")


def check(nest: Nest, schedules: tuple[Schedule, ...]) -> None:
    """Raise NotCovered if the schedules name what the kernel does not have: they were made for another one."""
    if len(schedules) != len(nest.phases):
        raise NotCovered(f"{len(schedules)} schedules for {len(nest.phases)} phases")
    for schedule, phase in zip(schedules, nest.phases, strict=True):
        if not fits(nest, phase, schedule):
            raise NotCovered(f"schedule {schedule} for other loops")


def fits(nest: Nest, phase: Phase, schedule: Schedule) -> bool:
    """Whether a schedule names loops of this phase only, in numbers that make sense."""
    loops, parallel = set(phase.loops), set(nest.parallel(phase))
    unrolled = [loop for loop, _ in schedule.unroll]
    return (
        schedule.vector in loops | {-1}
        and schedule.lanes >= 1
        and schedule.columns >= 1
        and set(unrolled) <= loops - {schedule.vector}
        and len(set(unrolled)) == len(unrolled)
        and all(1 <= count <= nest.sizes[loop] for loop, count in schedule.unroll)
        and set(schedule.order) <= parallel
        and len(set(schedule.order)) == len(schedule.order)
    )

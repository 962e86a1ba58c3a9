"""How long each call of a step takes: measured within the step, one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitness.calls import StepCalls
from fitness.cpu import Array, CpuRunner
from fitness.timing import Subject
from mlir_passes.program import Program

METHOD = "one thread; a clock around each call of a step, the clock's own time off; least of {windows} windows' medians"
_WINDOWS = 7
_WINDOW_S = 0.25


@dataclass(frozen=True)
class CallTimes:
    """Seconds of each call in order, and of a step that runs them without a clock between."""

    calls: tuple[float, ...]
    step: float
    method: str


def call_times(program: Program, state: Sequence[Array], batches: Sequence[Sequence[Array]]) -> CallTimes:
    """Windows of steps call by call and of whole steps in turn; the least of each, which a busy core disturbs least."""
    calls = StepCalls(program, state, batches)
    whole = Subject(CpuRunner(program), state, batches)
    count = max(1, round(_WINDOW_S / 4 / max(whole.window(3), 1e-6)))
    windows: list[list[float]] = []
    steps: list[float] = []
    for _ in range(_WINDOWS):
        windows.append(calls.times(_WINDOW_S))
        steps.append(whole.window(min(count, 200)))
    least = np.min(np.array(windows), axis=0)
    return CallTimes(tuple(map(float, least)), min(steps), METHOD.format(windows=_WINDOWS))

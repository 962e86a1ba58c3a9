"""The first steps of a variant: does it stay in its arena, read only what was written, stay finite, and keep pace?"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.quality import finite
from fitness.result import Failure, Outcome

FIRST_STEPS = 3


def check(
    runner: CpuRunner, base: CpuRunner, state: Sequence[Array], batches: Sequence[Sequence[Array]], slow_ratio: float
) -> Failure | None:
    """Why `runner` should not be measured, or None. `runner` needs slack after its arena."""
    try:
        used = runner.high_water(state, batches[0])
    except FitnessError as error:
        return Failure(Outcome.WRONG, error.what)
    planned = runner.plan.peak_bytes
    if used > planned:
        return Failure(Outcome.WRONG, f"the step writes to byte {used}, its plan ends at {planned}")
    runner.write_state(state)
    step_s = math.inf
    for number, batch in enumerate(batches[:FIRST_STEPS], 1):
        step_s = min(step_s, _step_s(runner, batch))
        if not finite((*runner.state, *runner.metrics)):
            return Failure(Outcome.DIVERGED, f"not finite by step {number}")
    base.write_state(state)
    base_s = min(_step_s(base, batch) for batch in batches[:FIRST_STEPS])
    if step_s > slow_ratio * base_s:
        detail = f"{step_s / base_s:.1f} times slower than the base, the limit is {slow_ratio:g}"
        return Failure(Outcome.TIMED_OUT, detail)
    return None


def _step_s(runner: CpuRunner, batch: Sequence[Array]) -> float:
    runner.write_batch(batch)
    start = time.perf_counter()
    runner.run()
    return time.perf_counter() - start

"""The first steps of a variant: does it stay in its arena, read only what was written, stay finite, depend on its
batch, and keep pace?"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.quality import finite
from fitness.result import Failure, Outcome

FIRST_STEPS = 3
IGNORES_BATCH = "its results do not depend on its batch"


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
    step_s, after_first = math.inf, b""
    for number, batch in enumerate(batches[:FIRST_STEPS], 1):
        step_s = min(step_s, _step_s(runner, batch))
        if not finite((*runner.state, *runner.metrics)):
            return Failure(Outcome.DIVERGED, f"not finite by step {number}")
        after_first = after_first or runner.outputs()
    first, last = batches[0], batches[-1]
    if _outputs(runner, state, last) == after_first and _outputs(base, state, last) != _outputs(base, state, first):
        return Failure(Outcome.WRONG, IGNORES_BATCH)
    base.write_state(state)
    base_s = min(_step_s(base, batch) for batch in batches[:FIRST_STEPS])
    if step_s > slow_ratio * base_s:
        detail = f"{step_s / base_s:.1f} times slower than the base, the limit is {slow_ratio:g}"
        return Failure(Outcome.TIMED_OUT, detail)
    return None


def _outputs(runner: CpuRunner, state: Sequence[Array], batch: Sequence[Array]) -> bytes:
    runner.write_state(state)
    runner.write_batch(batch)
    runner.run()
    return runner.outputs()


def _step_s(runner: CpuRunner, batch: Sequence[Array]) -> float:
    runner.write_batch(batch)
    start = time.perf_counter()
    runner.run()
    return time.perf_counter() - start

"""A schedule run on this CPU beside everything kept: are the results the same, is the memory what was planned, and what
does it take?"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from fitness.cpu import CpuRunner
from fitness.timing import error_of_median, quartiles
from gevo.scheduled import Scheduled
from gevo.units import seconds, size
from mlir_passes.program import Program
from workloads.workload import PreparedWorkload


@dataclass(frozen=True)
class Ran:
    """Some steps of both programs in turn. differs: the first step whose state or metrics were not the same, bit for
    bit; 0 for none. peak_bytes, paged_bytes: measured. ratio: median of the pairs, with its standard error.
    """

    steps: int
    differs: int
    peak_bytes: int
    paged_bytes: int
    step_s: float
    keep_s: float
    ratio: float
    spread: float


def run(prepared: PreparedWorkload, scheduled: Program, kept: Program, steps: int, page_dir: Path | None) -> Ran:
    """Train both from the same state on the same batches, step by step in turn; who goes first alternates."""
    seed = prepared.signature.quality.seeds[0]
    state = prepared.initial_state(seed)
    runners = CpuRunner(scheduled, page_dir=page_dir), CpuRunner(kept)
    first = next(iter(prepared.batches(seed, 1)))
    peak = runners[0].high_water(state, first)
    for runner in runners:
        runner.write_state(state)
    times: tuple[list[float], list[float]] = ([], [])
    differs = 0
    for number, batch in enumerate(prepared.batches(seed, steps), 1):
        for which in (number % 2, 1 - number % 2):
            runners[which].write_batch(batch)
            start = time.perf_counter()
            runners[which].run()
            times[which].append(time.perf_counter() - start)
        if not differs and runners[0].outputs() != runners[1].outputs():
            differs = number
    low, middle, high = quartiles([a / b for a, b in zip(*times, strict=True)])
    return Ran(
        steps, differs, peak, runners[0].paged_high_water, statistics.median(times[0]), statistics.median(times[1]),
        middle, error_of_median(high - low, steps),
    )  # fmt: skip


def lines(ran: Ran, planned: Scheduled) -> dict[str, str]:
    """What running it showed, beside what was planned."""
    same = "state and metrics are those of all kept, bit for bit, after each"
    wrong = f"state or metrics differ from those of all kept from step {ran.differs} on"
    over = ran.ratio - 1
    return {
        f"ran {ran.steps} steps": wrong if ran.differs else same,
        "measured peak": f"{size(ran.peak_bytes)}, {_as_planned(ran.peak_bytes, planned.peak_bytes)}",
        "measured pages": f"{size(ran.paged_bytes)}, {_as_planned(ran.paged_bytes, planned.paged_bytes)}",
        "measured time": f"{seconds(ran.step_s)} a step, all kept {seconds(ran.keep_s)}: {100 * over:+.1f} % "
        f"+- {100 * ran.spread:.1f}; planned {100 * planned.time_overhead:+.1f} %",
    }


def _as_planned(measured: int, planned: int) -> str:
    return "as planned to the byte" if measured == planned else f"planned were {planned:,} bytes, not {measured:,}"

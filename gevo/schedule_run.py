"""A schedule run on this CPU beside everything kept: are the results the same, is the memory what was planned, and what
does it take?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fitness.cpu import CpuRunner
from fitness.errors import FitnessError
from fitness.job import Timing
from fitness.result import Failure
from fitness.timing import Subject, Timed, compare
from gevo.scheduled import Scheduled
from gevo.units import seconds, size
from mlir_passes.program import Program
from workloads.workload import PreparedWorkload

_LEAST_PAIRS = 8
_BATCHES = 8


@dataclass(frozen=True)
class Ran:
    """Some steps of both programs. differs: the first step whose state or metrics were not the same, bit for bit; 0 for
    none. peak_bytes, paged_bytes: measured. timed: the schedule against everything kept.
    """

    steps: int
    differs: int
    peak_bytes: int
    paged_bytes: int
    timed: Timed


def run(prepared: PreparedWorkload, scheduled: Program, kept: Program, steps: int, page_dir: Path | None) -> Ran:
    """Train both from the same state on the same batches, compare after each step, and time them, window by window in
    turn; raises FitnessError where they cannot be timed, or the page file fails."""
    seed = prepared.signature.quality.seeds[0]
    state, batches = prepared.initial_state(seed), list(prepared.batches(seed, _BATCHES))
    runners = CpuRunner(scheduled, page_dir=page_dir), CpuRunner(kept)
    peak, paged = runners[0].high_waters(state, batches[0])
    for runner in runners:
        runner.write_state(state)
    differs = 0
    for number, batch in enumerate(prepared.batches(seed, steps), 1):
        for runner in runners:
            runner.write_batch(batch)
            runner.run()
        if runners[0].outputs() != runners[1].outputs():
            differs = number
            break
    subjects = [Subject(runner, state, batches) for runner in runners]
    timed = compare(subjects[0], subjects[1], Timing(rounds=max(steps, _LEAST_PAIRS), least=_LEAST_PAIRS))
    if isinstance(timed, Failure):
        raise FitnessError(timed.detail, prepared.signature.name)
    return Ran(steps, differs, peak, paged, timed)


def lines(ran: Ran, planned: Scheduled) -> dict[str, str]:
    """What running it showed, beside what was planned."""
    same = "state and metrics are those of all kept, bit for bit, after each"
    wrong = f"state or metrics differ from those of all kept at step {ran.differs}"
    timed = ran.timed
    return {
        f"ran {ran.steps} steps": wrong if ran.differs else same,
        "measured peak": f"{size(ran.peak_bytes)}, {_as_planned(ran.peak_bytes, planned.peak_bytes)}",
        "measured pages": f"{size(ran.paged_bytes)}, {_as_planned(ran.paged_bytes, planned.paged_bytes)}",
        "measured time": f"{seconds(timed.ratio * timed.base_s)} a step, all kept {seconds(timed.base_s)}: "
        f"{100 * (timed.ratio - 1):+.1f} % +- {100 * timed.spread:.1f} from {timed.pairs} pairs; "
        f"planned {100 * planned.time_overhead:+.1f} %",
    }


def _as_planned(measured: int, planned: int) -> str:
    return "as planned to the byte" if measured == planned else f"planned were {planned:,} bytes, not {measured:,}"

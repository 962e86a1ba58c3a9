"""Schedules run for real: training steps within 75, 50 and 35 % of the memory of keeping everything, on this CPU.

    python benchmarks/schedule_run.py [WORKLOAD ...] [--fractions 0.75 0.5 0.35] [--steps 20] [--seconds 60]
        [--minimise energy] [--page-dir DIR] [--out build/bench]

Each step is scheduled with calls and store as measured here, energy by the model of a server core, compiled along its
line, and trained beside the step that keeps everything, from the same state on the same batches. "same" means state
and metrics bit for bit after each step. Peaks are arena ends, gaps between buffers included, planned and measured.
Times are medians over 5 runs of the median ratio of neighbouring windows, with the least and greatest run.

Writes schedule_run.json and schedule_run.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from common import OUT, System, calls, interleaved, machine, parsed, ratio, settle
from fitness.cpu import CpuRunner
from gevo.errors import CampaignError
from gevo.schedule_fit import scheduled
from gevo.schedule_run import Ran, run
from gevo.schedule_setup import CPU, Ready, prepare_step
from gevo.scheduled import Scheduled
from mlir_passes.program import Program
from mlir_passes.schedule.infeasible import Infeasible
from mlir_passes.schedule.request import Request

WORKLOADS = ("lenet", "mobilenet", "resnet18", "bert")
FRACTIONS = (0.75, 0.5, 0.35)
HEAD = (
    "workload", "budget", "bytes", "same", "peak planned", "measured", "paged planned", "measured", "remats",
    "pages out, in", "energy", "time planned", "measured", "gap", "solved in",
)  # fmt: skip
SMOKE = "digits --fractions 0.8 --steps 2 --seconds 2 --window-seconds 0.1"


@dataclass(frozen=True)
class Row:
    """A schedule and what running it showed. refused: why there is none; the rest is then None. energy, time: over
    keeping all, 0.02 for 2 %. gap: of what was minimised to its proven bound, as a share of keeping all."""

    workload: str
    fraction: float
    budget_bytes: int
    keep_bytes: int
    refused: str = ""
    differs: int | None = None
    peak_bytes: int | None = None
    measured_peak_bytes: int | None = None
    paged_bytes: int | None = None
    measured_paged_bytes: int | None = None
    remats: int | None = None
    pages_out: int | None = None
    pages_in: int | None = None
    energy: float | None = None
    planned_time: float | None = None
    measured_time: float | None = None
    least_time: float | None = None
    greatest_time: float | None = None
    gap: float | None = None
    proven: str = ""
    solved_in_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each solve")
    parser.add_argument("--window-seconds", type=float, default=20.0, help="for the windows of a schedule, about")
    parser.add_argument("--minimise", choices=("energy", "time"), default="energy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page-dir", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    arguments.out.mkdir(parents=True, exist_ok=True)
    settle(2)  # one core computes, one moves pages
    rows: list[Row] = []
    print(f"{machine()}\n\n{heading()}", flush=True)
    for workload in arguments.workloads:
        ready = prepare_step(workload, CPU, arguments.page_dir, silent)
        keep = ready.base.plan.peak_bytes
        for fraction in arguments.fractions:
            request = Request(
                int(keep * fraction),
                minimise=arguments.minimise,
                time_limit_s=arguments.seconds,
                seed=arguments.seed,
            )
            rows.append(row(ready, fraction, request, arguments))
            print(text(rows[-1]), flush=True)
            save(arguments.out, rows)
    print(f"wrote {arguments.out / 'schedule_run.md'} and .json")


def silent(stage: str) -> None:
    """Tell nobody."""


def row(ready: Ready, fraction: float, request: Request, arguments: argparse.Namespace) -> Row:
    """Solve, run, time."""
    start = time.perf_counter()
    head = ready.bench.workload, fraction, request.budget_bytes, ready.base.plan.peak_bytes
    try:
        planned, program = scheduled(ready, request, silent)
    except (Infeasible, CampaignError) as error:
        return Row(*head, refused=str(error))
    solved_in_s = time.perf_counter() - start
    ran = run(ready.bench.prepared, program, ready.base, arguments.steps, arguments.page_dir)
    times = timed(ready, program, arguments.window_seconds, arguments.page_dir)
    return measured(head, planned, ran, times, solved_in_s)


def timed(ready: Ready, program: Program, seconds: float, page_dir: Path | None) -> tuple[float, float, float]:
    """Ratio of a scheduled step's time to one that keeps everything: median, least and greatest of the runs."""
    prepared = ready.bench.prepared
    batch, state = next(iter(prepared.batches(0, 1))), prepared.initial_state(0)
    runners = {"scheduled": CpuRunner(program, page_dir=page_dir), "kept": CpuRunner(ready.base)}
    for runner in runners.values():
        runner.write_batch(batch)
    systems = {
        name: System(calls(runner.run), reset=lambda runner=runner: runner.write_state(state))
        for name, runner in runners.items()
    }
    times = interleaved(systems, seconds=seconds)
    return ratio(times["scheduled"], times["kept"])


def measured(
    head: tuple[str, float, int, int],
    planned: Scheduled,
    ran: Ran,
    times: tuple[float, float, float],
    solved_in_s: float,
) -> Row:
    usage = planned.solution.usage
    return Row(
        *head,
        differs=ran.differs,
        peak_bytes=planned.peak_bytes,
        measured_peak_bytes=ran.peak_bytes,
        paged_bytes=planned.paged_bytes,
        measured_paged_bytes=ran.paged_bytes,
        remats=usage.remats,
        pages_out=usage.pages_out,
        pages_in=usage.pages_in,
        energy=planned.energy_overhead,
        planned_time=planned.time_overhead,
        measured_time=times[0] - 1,
        least_time=times[1] - 1,
        greatest_time=times[2] - 1,
        gap=planned.gap,
        proven=planned.solution.proven,
        solved_in_s=solved_in_s,
    )


def heading() -> str:
    return f"| {' | '.join(HEAD)} |\n| {' | '.join(['---'] * len(HEAD))} |"


def text(found: Row) -> str:
    """A line of the table, in markdown."""
    head = [found.workload, f"{found.fraction:g}", f"{found.budget_bytes:,}"]
    if found.refused:
        return f"| {' | '.join(head)} | {found.refused} |" + " |" * (len(HEAD) - len(head) - 1)
    cells = [
        "yes" if not found.differs else f"no, step {found.differs}",
        f"{found.peak_bytes:,}",
        f"{found.measured_peak_bytes:,}",
        f"{found.paged_bytes:,}",
        f"{found.measured_paged_bytes:,}",
        f"{found.remats}",
        f"{found.pages_out}, {found.pages_in}",
        f"{found.energy:+.2%}",
        f"{found.planned_time:+.1%}",
        f"{found.measured_time:+.1%} ({found.least_time:+.1%} to {found.greatest_time:+.1%})",
        f"{found.gap:.2%}",
        f"{found.solved_in_s:.0f} s",
    ]
    return f"| {' | '.join([*head, *cells])} |"


def save(folder: Path, rows: Sequence[Row]) -> None:
    (folder / "schedule_run.json").write_text(json.dumps([asdict(found) for found in rows], indent=1))
    lines = [machine(), "", heading(), *map(text, rows), ""]
    (folder / "schedule_run.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()

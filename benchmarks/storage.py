"""Values between kernels stored as f16 and bf16 against f32: bytes, time a step, error after training.

    python benchmarks/storage.py [WORKLOAD ...] [--seeds 3] [--threads 1] [--out build/bench]

Peak bytes are the plan's. Times are the median of the runs' fastest windows, interleaved; the ratio to f32 is the
median of 5 runs' medians of neighbouring windows, with least and greatest run; more than 1 is slower than f32. The
error is that of the workload's rule on its validation split, a training for each of the seeds 0, 1, ...: the mean,
and its difference to f32's with the standard error of that difference, seed by seed. --seeds 0 leaves it out.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common import OUT, REST_S, System, calls, fastest, interleaved, line, machine, parsed, ratio, save, settle
from fitness.cpu import CpuRunner
from fitness.lessons import read_lessons
from fitness.quality import Judge, quality
from fitness.result import Failure
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program
from mlir_passes.storage import STORAGES
from workloads.cache import cache_folder
from workloads.catalog import SHIPPED
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

WIDTHS = (11, 8, 10, 6, 9, 18, 9, 20)
HEAD = ("workload", "storage", "peak KiB", "of f32", "us", "of f32", "error", "more than f32")
SMOKE = "digits --seeds 1 --seconds 0.2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(SHIPPED))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="for the windows of a workload, about")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    settle(arguments.threads)
    print(f"{machine()}, threads {arguments.threads}")
    print(line(HEAD, WIDTHS))
    rows: list[dict[str, Any]] = []
    for name in arguments.workloads:
        new = measured(prepare(name), arguments.threads, arguments.seconds, arguments.seeds)
        for row in new:
            print(text(row), flush=True)
        rows += new
    save(rows, arguments.out / "storage.csv")


def measured(prepared: PreparedWorkload, threads: int, seconds: float, seeds: int) -> list[dict[str, Any]]:
    """A row for each storage of a workload."""
    signature = prepared.signature
    step, cache = canonical_text(prepared.step_text, "step"), ObjectCache(cache_folder() / "objects")
    sizes = len(signature.state), len(signature.batch)
    programs = {s: compile_program(step, "step", *sizes, cache, storage=s) for s in STORAGES}
    runners = {s: CpuRunner(program, threads=threads) for s, program in programs.items()}
    batch, state = next(prepared.batches(0, 1)), prepared.initial_state(0)
    for runner in runners.values():
        runner.write_batch(batch)
    systems = {
        s: System(calls(runner.run), reset=lambda runner=runner: runner.write_state(state))
        for s, runner in runners.items()
    }
    times = interleaved(systems, seconds=seconds, rest_s=REST_S if threads > 1 else 0.0)
    errors = {s: trained(prepared, runner, runners["f32"], seeds) for s, runner in runners.items()}
    rows: list[dict[str, Any]] = []
    for s in STORAGES:
        middle, low, high = ratio(times[s], times["f32"])
        apart = errors[s] - errors["f32"]
        rows.append(
            {
                "workload": signature.name,
                "storage": s,
                "peak_bytes": programs[s].plan.peak_bytes,
                "peak_ratio": programs[s].plan.peak_bytes / programs["f32"].plan.peak_bytes,
                "us": fastest(times[s]) * 1e6,
                "ratio": middle,
                "low": low,
                "high": high,
                "error": float(errors[s].mean()) if seeds else None,
                "more": float(apart.mean()) if seeds else None,
                "standard_error": float(apart.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else None,
                "seeds": seeds,
            }
        )
    return rows


def trained(prepared: PreparedWorkload, runner: CpuRunner, base: CpuRunner, seeds: int) -> np.ndarray:
    """The error after a training from each seed; NaN where it diverged."""
    signature = prepared.signature
    predict = None
    if seeds and prepared.predict_text is not None:
        sizes = len(signature.state), len(signature.predict_inputs)
        text = canonical_text(prepared.predict_text, "predict")
        predict = CpuRunner(compile_program(text, "predict", *sizes, ObjectCache(cache_folder() / "objects")))
    found: list[float] = []
    for seed in range(seeds):
        rule = replace(signature.quality, seeds=(seed,))
        lessons = read_lessons(replace(prepared, signature=replace(signature, quality=rule)), "validation")
        error = quality(runner, Judge(base, predict), lessons)
        found.append(float("nan") if isinstance(error, Failure) else error.value)
    return np.array(found)


def text(row: dict[str, Any]) -> str:
    spread = f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
    error = None if row["error"] is None else f"{row['error']:.4f}"
    more = None if row["more"] is None else f"{row['more']:+.4f}"
    if row["standard_error"] is not None:
        more = f"{more} +- {row['standard_error']:.4f}"
    cells = (f"{row['peak_bytes'] / 1024:.0f}", f"{row['peak_ratio']:.2f}", f"{row['us']:.1f}", spread, error, more)
    return line((row["workload"], row["storage"], *cells), WIDTHS)


if __name__ == "__main__":
    main()

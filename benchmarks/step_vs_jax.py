"""One training step: gevo's unedited program against jax.jit with donated state, one core, interleaved in one run.

    python benchmarks/step_vs_jax.py [WORKLOAD ...] [--windows 40]

Prints, for each workload, microseconds a step of both (minimum over windows) and the ratio JAX / gevo with the
interquartile range of its paired windows. More than 1 means that gevo is faster.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax

from fitness.cpu import CpuRunner
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program
from workloads.cache import cache_folder
from workloads.catalog import resolve
from workloads.frontends.user_code import load_workload
from workloads.prepare import prepare

WINDOW_S = 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["digits", "twofc", "lenet"])
    parser.add_argument("--windows", type=int, default=40)
    arguments = parser.parse_args()
    print(f"{'workload':10s} {'gevo us':>9s} {'jax us':>9s} {'jax/gevo':>9s}  interquartile range")
    for name in arguments.workloads:
        ours, theirs = pair(name)
        mine, jaxs = interleaved(ours, theirs, arguments.windows)
        low, high = np.percentile(jaxs / mine, [25, 75])
        ratio = jaxs.min() / mine.min()
        print(f"{name:10s} {mine.min() * 1e6:9.1f} {jaxs.min() * 1e6:9.1f} {ratio:9.2f}  {low:.2f} to {high:.2f}")


def pair(name: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that do one step from where the last one ended, with gevo and with JAX, on the same batch."""
    prepared = prepare(name)
    signature = prepared.signature
    batch = next(prepared.batches(0, 1))
    text = canonical_text(prepared.step_text, "step")
    cache = ObjectCache(cache_folder() / "objects")
    runner = CpuRunner(compile_program(text, "step", len(signature.state), len(signature.batch), cache))
    runner.write_state(prepared.initial_state(0))
    runner.write_batch(batch)
    source = resolve(name)
    workload = load_workload(Path(source.path), source.object)
    step = jax.jit(workload.step, donate_argnums=0)
    held: list[Any] = [jax.tree.map(lambda leaf: jax.numpy.array(leaf, copy=True), workload.init(0))]
    placed = jax.tree.map(jax.numpy.asarray, tuple(batch))

    def jax_step() -> None:
        held[0], metrics = step(held[0], placed)
        jax.block_until_ready((held[0], metrics))

    return runner.run, jax_step


def interleaved(one: Callable[[], None], two: Callable[[], None], windows: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds a call of each function, window by window in turn, after a warm-up."""
    counts: list[int] = []
    for function in (one, two):
        function()
        start = time.perf_counter()
        function()
        counts.append(max(1, round(WINDOW_S / (time.perf_counter() - start))))
    seconds = np.empty((2, windows))
    for window in range(windows):
        for row, (function, count) in enumerate(zip((one, two), counts, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                function()
            seconds[row, window] = (time.perf_counter() - start) / count
    return seconds[0], seconds[1]


if __name__ == "__main__":
    main()

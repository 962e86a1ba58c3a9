"""An exported program against jax.jit of the workload that it came from, and against its unedited base, interleaved.

    python benchmarks/exported.py FOLDER [--runs 5] [--seconds 30]

FOLDER is what `gevo export RUN ID --to FOLDER` wrote; the base is compiled by default kernels, or by those that
`gevo tune` kept for this CPU. On one core; ratios are the median of the runs' medians of neighbouring windows, with
least and greatest run. More than 1 means that the exported program is faster.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from common import System, calls, fastest, interleaved, machine, parsed, ratio, settle, started
from fitness.choices import load_choices
from fitness.cpu import CpuRunner
from fitness.program import load_manifest, load_program
from gevo.launch import freeze_choices
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from mlir_passes.program import Program
from workloads.cache import cache_folder
from workloads.catalog import resolve
from workloads.frontends.user_code import load_workload
from workloads.prepare import prepare

SMOKE = "--runs 1 --seconds 0.2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="with --smoke that of a base exported just now")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parsed(parser, SMOKE)
    if arguments.folder is None and not arguments.smoke:
        parser.error("expected the folder that `gevo export RUN ID --to FOLDER` wrote")
    settle(1)
    with tempfile.TemporaryDirectory() as folder:
        compared(arguments.folder or small(Path(folder)), arguments)


def small(folder: Path) -> Path:
    """The exported base of a search that ends at once."""
    search = f"search digits --evaluations 2 --workers 1 --no-confirm --run-dir {folder} --name run"
    for words in (search, f"export {folder}/run base --to {folder}/exported"):
        subprocess.run([sys.executable, "-m", "gevo", *words.split()], check=True, stdout=subprocess.DEVNULL)
    return folder / "exported"


def compared(folder: Path, arguments: argparse.Namespace) -> None:
    """Print a line for each system."""
    name = load_manifest(folder)["extra"]["signature"]["name"]
    prepared, source = prepare(name), resolve(name)
    workload = load_workload(source.path, source.object)
    batch, state = next(prepared.batches(0, 1)), prepared.initial_state(0)
    base = base_program(prepared)
    makers = {
        "exported": lambda: ours(load_program(folder), state, batch),
        "base": lambda: ours(base, state, batch),
        "jax": lambda: theirs(workload, batch),
    }
    systems, reasons = started(makers, arguments.smoke)
    for system, reason in reasons.items():
        print(f"{system}: {reason}")
    times = interleaved(systems, arguments.runs, seconds=arguments.seconds)
    print(f"{name}, one core of {machine()}")
    for system in systems:
        middle, low, high = ratio(times[system], times["exported"])
        print(f"  {system:9s} {fastest(times[system]) * 1e3:8.3f} ms   {middle:6.2f} ({low:.2f} to {high:.2f})")


def base_program(prepared: Any) -> Program:
    """The unedited program, made as a search would make it."""
    signature = prepared.signature
    text = prepared.lined_text
    folder = cache_folder() / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    tuned = freeze_choices(folder)
    choices = load_choices(str(folder / "tuning.json") if tuned else "", 1)
    sizes = len(signature.state), len(signature.batch)
    return compile_text(text, signature.entry, *sizes, ObjectCache(cache_folder() / "objects"), choices)


def ours(program: Program, state: list[np.ndarray], batch: Sequence[np.ndarray]) -> System:
    runner = CpuRunner(program)
    runner.write_batch(batch)
    runner.write_state(state)
    return System(calls(runner.run), reset=lambda: runner.write_state(state))


def theirs(workload: Any, batch: Sequence[np.ndarray]) -> System:
    """jax.jit of the step or of the prediction, its arguments on the device."""
    placed = jax.tree.map(jax.numpy.asarray, tuple(batch))
    state = jax.tree.map(jax.numpy.asarray, workload.init(0))
    if workload.step is None:
        predict = jax.jit(workload.predict)
        return System(calls(lambda: jax.block_until_ready(predict(state, *placed))))
    step = jax.jit(workload.step)
    return System(calls(lambda: jax.block_until_ready(step(state, placed))))


if __name__ == "__main__":
    main()

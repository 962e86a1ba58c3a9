"""One training step: gevo's unedited program against JAX and PyTorch, interleaved in one run.

    python benchmarks/steps.py [WORKLOAD ...] [--threads 1] [--systems jax,"jax scan",torch] [--out build/bench]

jax: jax.jit with donated state, one call a step. jax scan: lax.scan over a stack of batches, many steps a call.
torch: eager. torch compile: the same step through torch.compile. All begin each window from the same weights, on
a batch that lies ready; gevo's first step must agree with JAX's. Times are the median of the runs' fastest windows;
ratios the median of 5 runs' medians of neighbouring windows, with least and greatest run. More than 1 means that
gevo is faster.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from common import (
    COLOURS,
    OUT,
    REST_S,
    System,
    calls,
    fastest,
    interleaved,
    line,
    machine,
    parsed,
    picture,
    ratio,
    save,
    settle,
    started,
)
from fitness.cpu import CpuRunner
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program
from workloads.cache import cache_folder
from workloads.catalog import SHIPPED, resolve
from workloads.frontends.user_code import load_workload
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

OTHERS = ("jax", "jax scan", "torch", "torch compile")
SCAN_NUMBERS = 4 << 20  # of the stacked batches at most
SCAN_STEPS = 32
TOLERANCE = 0.05  # Adam's first step is the gradient's sign, which rounding decides where it is near zero
ROUNDING = 1e-5  # of the greatest change: a shift before a batch norm has no gradient but rounding errors
WIDTHS = (10, 9, *(25 for _ in OTHERS))
SMOKE = "digits --runs 1 --seconds 0.2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(SHIPPED))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--systems", default=",".join(OTHERS), help="the others, by name")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="for the windows of a workload, about")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    settle(arguments.threads)
    rest_s = REST_S if arguments.threads > 1 else 0.0
    print(f"{machine()}, threads {arguments.threads}; microseconds a step, and how often gevo's time that is")
    print(line(("workload", "gevo", *OTHERS), WIDTHS))
    rows: list[dict[str, Any]] = []
    for name in arguments.workloads:
        makers = contenders(name, arguments.threads)
        wanted = {n: make for n, make in makers.items() if n == "gevo" or n in arguments.systems.split(",")}
        systems, reasons = started(wanted, arguments.smoke)
        times = interleaved(systems, arguments.runs, seconds=arguments.seconds, rest_s=rest_s)
        new = [figures(name, system, times) for system in ("gevo", *OTHERS)]
        print(line((name, *(cell(row) for row in new)), WIDTHS), flush=True)
        for system, reason in reasons.items():
            print(f"    {system}: {reason}")
        rows += [{**row, "threads": arguments.threads, "reason": reasons.get(row["system"], "")} for row in new]
    stem = "steps" if arguments.threads == 1 else f"steps_{arguments.threads}threads"
    save(rows, arguments.out / f"{stem}.csv")
    picture(arguments.out / f"{stem}.png", partial(draw, rows))


def contenders(name: str, threads: int) -> dict[str, Any]:
    """For each system, a function that makes it ready to train `name`."""
    prepared = prepare(name)
    batch = next(prepared.batches(0, 1))
    source = resolve(name)
    workload = load_workload(source.path, source.object)
    return {
        "gevo": partial(gevo_steps, prepared, workload, batch, threads),
        "jax": partial(jax_steps, workload, batch),
        "jax scan": partial(jax_scan, workload, prepared),
        "torch": partial(torch_steps, prepared, batch, threads, False),
        "torch compile": partial(torch_steps, prepared, batch, threads, True),
    }


def gevo_steps(prepared: PreparedWorkload, workload: Any, batch: Any, threads: int) -> System:
    signature = prepared.signature
    text = canonical_text(prepared.step_text, "step")
    cache = ObjectCache(cache_folder() / "objects")
    program = compile_program(text, "step", len(signature.state), len(signature.batch), cache)
    runner = CpuRunner(program, threads=threads) if threads > 1 else CpuRunner(program)
    state = prepared.initial_state(0)
    runner.write_batch(batch)
    runner.write_state(state)
    runner.run()
    check(state, runner.state, jax.tree.leaves(jax.jit(workload.step)(workload.init(0), tuple(batch))[0]))
    return System(calls(runner.run), reset=lambda: runner.write_state(state))


def check(before: list[np.ndarray], ours: list[np.ndarray], theirs: list[Any]) -> None:
    """Raise unless each state leaf was changed as JAX changes it, so that no time is of a step that was not done."""
    changes = [np.linalg.norm(np.asarray(two) - old) for old, two in zip(before, theirs, strict=True)]
    for number, (change, one, two) in enumerate(zip(changes, ours, theirs, strict=True)):
        if np.linalg.norm(one - two) > TOLERANCE * change + ROUNDING * max(changes):
            raise ValueError(f"state leaf {number} differs from JAX's by more than {TOLERANCE:.0%} of its change")


def jax_steps(workload: Any, batch: Any) -> System:
    step, placed = jax.jit(workload.step, donate_argnums=0), jax.tree.map(jax.numpy.asarray, tuple(batch))
    return donated(workload, lambda state: step(state, placed))


def jax_scan(workload: Any, prepared: PreparedWorkload) -> System:
    """Many steps in one call, each on a batch of its own."""
    numbers = sum(int(np.prod(s.shape)) for s in prepared.signature.batch)
    steps = int(np.clip(SCAN_NUMBERS // numbers, 4, SCAN_STEPS))
    stacked = tuple(map(jax.numpy.asarray, map(np.stack, zip(*prepared.batches(0, steps), strict=True))))
    train = jax.jit(lambda state, batches: lax.scan(workload.step, state, batches), donate_argnums=0)
    return donated(workload, lambda state: train(state, stacked), steps)


def donated(workload: Any, step: Any, steps: int = 1) -> System:
    """A system that hands its state on from call to call."""
    initial = jax.tree.map(np.asarray, workload.init(0))
    held: list[Any] = [None]

    def reset() -> None:
        held[0] = jax.block_until_ready(jax.tree.map(lambda leaf: jax.numpy.array(leaf, copy=True), initial))

    def one() -> None:
        held[0], metrics = step(held[0])
        jax.block_until_ready((held[0], metrics))

    reset()
    return System(calls(one), steps, reset)


def torch_steps(prepared: PreparedWorkload, batch: Any, threads: int, compiled: bool) -> System:
    import torch  # pyright: ignore[reportMissingImports]

    from torch_models import TorchStep

    torch.set_num_threads(threads)
    step = TorchStep(prepared.signature.name, prepared.signature.state, batch, compiled)
    return System(calls(step.run), reset=step.reset)


def figures(name: str, system: str, times: dict[str, np.ndarray]) -> dict[str, Any]:
    """A row of the file; None where the system did not run."""
    row: dict[str, Any] = {"workload": name, "system": system, "us": None, "ratio": None, "low": None, "high": None}
    if system in times:
        row["us"] = fastest(times[system]) * 1e6
    if system in times and "gevo" in times:
        row["ratio"], row["low"], row["high"] = ratio(times[system], times["gevo"])
    return row


def cell(row: dict[str, Any]) -> str | None:
    if row["us"] is None or row["system"] == "gevo":
        return row["us"] and f"{row['us']:.1f}"
    spread = "" if row["ratio"] is None else f" {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
    return f"{row['us']:.1f}{spread}"


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Bars of each system's time over gevo's, by workload."""
    names = list(dict.fromkeys(row["workload"] for row in rows))
    for i, system in enumerate(OTHERS):
        found = [row for row in rows if row["system"] == system and row["ratio"] is not None]
        if not found:
            continue
        at = [names.index(row["workload"]) + 0.2 * (i - 1.5) for row in found]
        middle = np.array([row["ratio"] for row in found])
        error = [middle - [row["low"] for row in found], [row["high"] for row in found] - middle]
        axes.bar(at, middle, 0.19, yerr=error, color=COLOURS[system], label=system, capsize=2)
    axes.axhline(1.0, color=COLOURS["gevo"], label="gevo")
    axes.set_xticks(range(len(names)), names)
    axes.set(yscale="log", ylabel="time of a step / gevo's")
    axes.set_title(f"One training step, {rows[0]['threads']} thread(s), median and range of the runs")
    axes.legend()


if __name__ == "__main__":
    main()

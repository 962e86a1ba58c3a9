"""Evaluations of single-edit variants: gevo's evaluator against compiling each whole variant with IREE.

    python benchmarks/vs_iree.py [WORKLOAD] [--variants 50] [--seed 0] [--out build/bench]

The second is the published way of GEVO-ML: compile the program, then run it. Both run on one core, a variant in
one and then in the other. All variants are valid, and none is the same program as another or the base. gevo begins
with an empty object cache, which the base fills. IREE compiles for this CPU, runs as many steps as gevo times of
the base, and for all objectives trains as many steps as gevo; it is not asked to score what it trained, nor to
compare with the base. What starts before the first variant (processes, the base) is not counted.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import COLOURS, OUT, line, machine, parsed, picture, save, settle
from fitness.job import OBJECTIVES, Context
from fitness.pool import Pool
from gevo.genome import Genome
from gevo.variation import random_genome
from mlir_passes.canonical import write_base
from mlir_passes.pipeline import apply_genome
from mlir_passes.space import Space
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

WIDTHS = (32, 10, 18, 8)
DRAWS = 20  # genomes drawn for a variant, at most
SMOKE = "digits --variants 2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="twofc")
    parser.add_argument("--variants", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    settle(1)
    print(machine())
    prepared = prepare(arguments.workload)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context = base_context(prepared, folder)
        genomes = valid_genomes(replace(context, cache=str(folder / "other")), arguments.variants, arguments.seed)
        print(f"{len(genomes)} valid variants of {arguments.workload}, each with one edit")
        rows = compared(prepared, context, genomes, folder)
    report(rows)
    save(rows, arguments.out / "vs_iree.csv")
    picture(arguments.out / "vs_iree.png", partial(draw, rows), (7, 4))


def base_context(prepared: PreparedWorkload, folder: Path) -> Context:
    state = prepared.signature.state
    write_base(prepared.step_text, len(state), [s.name for s in state], folder)
    return Context(str(prepared.folder), str(folder / "base.mlir"), str(folder / "objects"))


def valid_genomes(context: Context, count: int, seed: int) -> list[Genome]:
    """Genomes of one edit that apply and run, no two of them one program, nor the base."""
    rng = random.Random(seed)
    space = Space.load(Path(context.base).with_name("space.json"))
    found: dict[str, Genome] = {}
    with Pool(replace(context, objectives=("peak_bytes",))) as pool:
        for _ in range(DRAWS * count):
            genome = random_genome(space, rng, 1)
            result = pool.evaluate([genome.to_json()])[0]
            if result.ok and result.fingerprint != pool.base.fingerprint:
                found.setdefault(result.fingerprint, genome)
            if len(found) == count:
                break
    return list(found.values())


def compared(prepared: PreparedWorkload, context: Context, genomes: list[Genome], folder: Path) -> list[dict[str, Any]]:
    """A row a variant: seconds of each flow, and why where one failed."""
    base = Path(context.base).read_text()
    one = replace(context, objectives=("runtime_s",), cache=str(folder / "objects_time"))
    every = replace(context, objectives=OBJECTIVES)
    train = prepared.signature.quality.steps
    rows: list[dict[str, Any]] = []
    with Pool(one) as time_pool, Pool(every) as pool, Iree(prepared, folder) as iree:
        steps = context.timing.rounds * max(1, round(context.timing.window_s / time_pool.base.measured_s))
        for number, genome in enumerate(genomes):
            text = apply_genome(base, genome.edits).text
            time_s, timed = clocked(time_pool.evaluate, [genome.to_json()])
            all_s, full = clocked(pool.evaluate, [genome.to_json()])
            iree_s, answer = clocked(iree.ask, {"text": text, "steps": steps, "train": train})
            row = {"variant": number, "genome": genome.text, "outcome": str(full[0].outcome)}
            row |= {"hits": timed[0].cache_hits, "misses": timed[0].cache_misses}
            row |= {"gevo_time_s": time_s, "gevo_all_s": all_s, "iree_time_s": None, "iree_all_s": None}
            if "error" not in answer:
                row |= {"iree_time_s": iree_s - answer["train_s"], "iree_all_s": iree_s}
            rows.append({**row, "iree_compile_s": answer.get("compile_s"), "iree_error": answer.get("error", "")})
    return rows


def clocked(work: Callable[[Any], Any], given: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work(given)
    return time.perf_counter() - start, result


class Iree:
    """`iree_flow.py` with the workload's state and batches; without IREE, every answer is an error."""

    def __init__(self, prepared: PreparedWorkload, folder: Path) -> None:
        batches = zip(*prepared.batches(0, prepared.signature.quality.steps), strict=True)
        for kind, leaves in (("s", prepared.initial_state(0)), ("b", map(np.stack, batches))):
            for i, leaf in enumerate(leaves):
                np.save(folder / f"{kind}{i:04d}.npy", leaf)
        command = [sys.executable, str(Path(__file__).with_name("iree_flow.py")), str(folder)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdin is not None and self._child.stdout is not None
        self._jobs, self._answers = self._child.stdin, self._child.stdout

    def __enter__(self) -> Iree:
        self._ready = bool(self._answers.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.close()
        self._child.wait()

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """The child's answer; an error where there is none."""
        if not self._ready:
            return {"error": "IREE does not start (pip install 'gevo[bench]')"}
        self._jobs.write(json.dumps(job) + "\n")
        self._jobs.flush()
        answer = self._answers.readline()
        self._ready = bool(answer)
        return json.loads(answer) if answer else {"error": "IREE's process died"}


FLOWS = {
    "gevo_time_s": "gevo, time only",
    "iree_time_s": "IREE, time only",
    "gevo_all_s": "gevo, all objectives",
    "iree_all_s": "IREE, time and training",
}


def seconds(rows: list[dict[str, Any]], flow: str) -> np.ndarray:
    """Of the variants that both evaluated in full; where IREE did none, of those that gevo did."""
    ours = [row for row in rows if row["outcome"] == "ok"]
    both = [row for row in ours if not row["iree_error"]]
    return np.array([row[flow] for row in both or ours if row[flow] is not None])


def report(rows: list[dict[str, Any]]) -> None:
    print(line(("wall seconds a variant", "median", "10 to 90 %", "ratio"), WIDTHS))
    for flow, name in FLOWS.items():
        found, ours = seconds(rows, flow), seconds(rows, flow.replace("iree", "gevo"))
        if not len(found):
            print(line((name, None, None, None), WIDTHS))
            continue
        low, middle, high = np.percentile(found, [10, 50, 90])
        ratio = f"{np.median(found / ours):.1f}" if flow.startswith("iree") else None
        print(line((name, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", ratio), WIDTHS))
    compiling = [row["iree_compile_s"] for row in rows if row["iree_compile_s"] is not None]
    if compiling:
        print(f"IREE's compiler alone: {np.median(compiling):.3f} s")
    hits = sum(row["hits"] for row in rows)
    print(f"object cache: {hits} of {hits + sum(row['misses'] for row in rows)} kernels found in it")
    print(f"figures are of {len(seconds(rows, 'gevo_all_s'))} of {len(rows)} variants")
    for why, count in Counter(row["iree_error"] or row["outcome"] for row in rows).items():
        if why != "ok":
            print(f"    {count} ended as: {why.strip().partition(chr(10))[0][:200]}")


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Sorted seconds of every flow."""
    for flow, name in FLOWS.items():
        style = "-" if "time" in flow else "--"
        axes.plot(np.sort(seconds(rows, flow)), style, color=COLOURS[flow.partition("_")[0]], label=name)
    axes.set(yscale="log", xlabel="variants, by time", ylabel="wall seconds to evaluate")
    axes.set_title("One evaluation, one worker")
    axes.legend()


if __name__ == "__main__":
    main()

"""Random genomes through the whole evaluation: every outcome named, and the share of valid ones.

    python benchmarks/fuzz.py [WORKLOAD ...] [--genomes 2000] [--workers N] [--seed 0]

Each genome has one to six random edits. It is compiled, run, trained with and scored, but not timed.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.progress import track

from fitness.job import Context
from fitness.pool import Pool
from fitness.result import Result
from gevo.variation import random_genome
from mlir_passes.canonical import write_base
from mlir_passes.space import Space
from workloads.cache import cache_folder
from workloads.prepare import prepare

BLOCK = 100
MAX_EDITS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["digits", "twofc", "lenet"])
    parser.add_argument("--genomes", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.workloads:
        start = time.perf_counter()
        results = evaluated(name, arguments.genomes, arguments.workers, arguments.seed)
        report(name, results, time.perf_counter() - start)


def evaluated(name: str, count: int, workers: int, seed: int) -> list[Result]:
    """The results of `count` random genomes of a workload."""
    prepared = prepare(name)
    state = prepared.signature.state
    with tempfile.TemporaryDirectory() as folder:
        write_base(prepared.step_text, len(state), [s.name for s in state], Path(folder))
        space = Space.load(Path(folder) / "space.json")
        context = Context(
            prepared=str(prepared.folder),
            base=str(Path(folder) / "base.mlir"),
            cache=str(cache_folder() / "objects"),
            objectives=("peak_bytes", "error"),
        )
        rng = random.Random(seed)
        results: list[Result] = []
        with Pool(context, workers) as pool:
            for start in track(range(0, count, BLOCK), description=name):
                genomes = [random_genome(space, rng, MAX_EDITS).to_json() for _ in range(min(BLOCK, count - start))]
                results += pool.evaluate(genomes, {r.fingerprint: r for r in results if r.fingerprint})
        return results


def report(name: str, results: list[Result], wall_s: float) -> None:
    outcomes = Counter(f"{r.outcome} in {r.stage}" if not r.ok else "ok" for r in results)
    known = sum(bool(r.answered_by) for r in results)
    valid = outcomes["ok"] / len(results)
    print(f"{name}: {len(results)} genomes in {wall_s:.0f} s, {valid:.1%} valid, {known} answered by fingerprint")
    for outcome, count in outcomes.most_common():
        print(f"  {count:5d} {outcome}")
    for detail in sorted(
        {r.detail for r in results if r.outcome in ("crashed", "compile_failed", "rejected", "wrong")}
    )[:12]:
        print(f"        {detail[:160]}")


if __name__ == "__main__":
    main()

"""Random genomes through the whole evaluation: every outcome named, and the share of valid ones.

    python benchmarks/fuzz.py [WORKLOAD ...] [--genomes 2000] [--workers N] [--seed 0] [--untrained]
    python benchmarks/fuzz.py [WORKLOAD ...] --kinds [--genomes 200] [--seed 0]

Each genome has one to six random edits. It is compiled, run, trained with and scored, but not timed; with --untrained
only its first steps are run. The memory of this process is told at a tenth of the genomes and at the end.
With --kinds, that many single edits of each kind are only applied and compiled, each in a forked child: how many draws
find an edit, how many of these apply, compile, and change the program, and what drawing and applying one takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import track

from common import parsed
from fitness.child import memory_use
from fitness.job import Context
from fitness.pool import Pool
from fitness.result import Result
from gevo.variation import random_genome
from mlir_passes.canonical import write_base
from mlir_passes.edits import KINDS, Edit, edit_class
from mlir_passes.errors import PassError
from mlir_passes.ir_tools import new_context
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_module, edit_module, parse_base, warm_up
from mlir_passes.space import Space
from workloads.cache import cache_folder
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

BLOCK = 100
MAX_EDITS = 6
SMOKE = "digits --genomes 6 --workers 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["digits", "twofc", "lenet"])
    parser.add_argument("--genomes", type=int, default=0)
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--untrained", action="store_true")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parsed(parser, SMOKE)
    for name in arguments.workloads:
        if arguments.kinds or arguments.smoke:
            by_kind(name, 1 if arguments.smoke else arguments.genomes or 200, arguments.seed)
        if arguments.kinds:
            continue
        start = time.perf_counter()
        objectives = ("peak_bytes",) if arguments.untrained else ("peak_bytes", "error")
        results, resident = evaluated(name, arguments.genomes or 2000, arguments.workers, arguments.seed, objectives)
        report(name, results, time.perf_counter() - start)
        print(
            f"  memory of this process: {resident[len(resident) // 10] >> 20} MB, {resident[-1] >> 20} MB", flush=True
        )


def evaluated(
    name: str, count: int, workers: int, seed: int, objectives: tuple[str, ...]
) -> tuple[list[Result], list[int]]:
    """The results of `count` random genomes of a workload, and the resident bytes of this process on the way."""
    prepared = prepare(name)
    with tempfile.TemporaryDirectory() as folder:
        space = laid_out(prepared, Path(folder))
        context = Context(
            prepared=str(prepared.folder),
            base=str(Path(folder) / "base.mlir"),
            cache=str(cache_folder() / "objects"),
            objectives=objectives,
        )
        rng = random.Random(seed)
        results: list[Result] = []
        resident: list[int] = []
        with Pool(context, workers) as pool:
            for start in track(range(0, count, BLOCK), description=name):
                genomes = [random_genome(space, rng, MAX_EDITS).to_json() for _ in range(min(BLOCK, count - start))]
                results += pool.evaluate(genomes, {r.fingerprint: r for r in results if r.fingerprint})
                resident.append(memory_use()[1])
        return results, resident


def laid_out(prepared: PreparedWorkload, folder: Path) -> Space:
    """The space of a workload, whose base module is in `folder` too."""
    signature = prepared.signature
    names = [leaf.name for leaf in signature.state]
    write_base(prepared.step_text, len(names), names, folder, signature.storage, signature.entry)
    return Space.load(folder / "space.json")


@dataclass(frozen=True)
class Base:
    """A parsed base module, and what compiling a variant of it needs."""

    module: Any
    kernel_context: Any
    entry: str
    sizes: tuple[int, int]
    cache: ObjectCache


def by_kind(name: str, count: int, seed: int) -> None:
    """Print a line a kind: what becomes of `count` draws."""
    prepared = prepare(name)
    signature = prepared.signature
    with tempfile.TemporaryDirectory() as folder:
        space, context = laid_out(prepared, Path(folder)), new_context()
        kernel_context = warm_up(context)
        module = parse_base((Path(folder) / "base.mlir").read_text(), context)
    sizes = len(signature.state), len(signature.batch)
    base = Base(module, kernel_context, signature.entry, sizes, ObjectCache(cache_folder() / "objects"))
    plain = outcome(base, [])["fingerprint"]
    print(f"{name}: of {count} draws a kind")
    print("  kind          drawn  applied  compiled  changed  different  draw ms  apply ms  what failed")
    for kind in KINDS:
        rng, start = random.Random(seed), time.perf_counter()
        edits = [edit_class(kind).draw(space, rng) for _ in range(count)]
        draw_s = (time.perf_counter() - start) / count
        found = [edit for edit in edits if edit is not None]
        results = [outcome(base, [edit]) for edit in track(found, description=f"{name} {kind}", transient=True)]
        stages = Counter(r["stage"] for r in results)
        applied = [r for r in results if r["apply_s"]]
        changed = [r["fingerprint"] for r in results if r["stage"] == "ok" and r["fingerprint"] != plain]
        apply_s = sum(r["apply_s"] for r in applied) / max(1, len(applied))
        failed = ", ".join(f"{n} {stage}" for stage, n in stages.items() if stage != "ok")
        shares = [len(found) / count, *(n / max(1, len(found)) for n in (len(applied), stages["ok"], len(changed)))]
        print(
            f"  {kind:13s} {shares[0]:5.0%} {shares[1]:8.1%} {shares[2]:9.1%} {shares[3]:8.1%} {len(set(changed)):10d}"
            f" {draw_s * 1e3:8.2f} {apply_s * 1e3:9.2f}  {failed}",
            flush=True,
        )


def outcome(base: Base, edits: list[Edit]) -> dict[str, Any]:
    """What became of a variant, compiled in a forked child: stage that failed or "ok", fingerprint, apply_s (with
    verification and clean-up; 0 where it does not apply)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.write(write, json.dumps(_compiled(base, edits)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"stage": "died", "fingerprint": "", "apply_s": 0.0}


def _compiled(base: Base, edits: list[Edit]) -> dict[str, Any]:
    fingerprint, apply_s, start = "", 0.0, time.perf_counter()
    try:
        variant = edit_module(base.module, edits)
        fingerprint, apply_s = variant.fingerprint, time.perf_counter() - start
        compile_module(variant.module, base.entry, *base.sizes, base.cache, kernel_context=base.kernel_context)
        return {"stage": "ok", "fingerprint": fingerprint, "apply_s": apply_s}
    except PassError as error:
        return {"stage": error.stage, "fingerprint": fingerprint, "apply_s": apply_s}
    except Exception as error:
        return {"stage": type(error).__name__, "fingerprint": fingerprint, "apply_s": apply_s}


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

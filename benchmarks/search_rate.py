"""How fast a search evaluates: evaluations a second, object-cache hit rate, outcomes, and seconds by stage.

    python benchmarks/search_rate.py [WORKLOAD ...] [--for 600] [--workers 1] [--seed 0]

Each workload is searched from an empty object cache in a temporary folder. Needs an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from common import parsed
from gevo.record import Record
from gevo.store import Run
from workloads.cache import cache_folder
from workloads.prepare import prepare

SMOKE = "digits --for 2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["digits", "twofc", "mobilenet"])
    parser.add_argument("--for", dest="seconds", type=int, default=600)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parsed(parser, SMOKE)
    for name in arguments.workloads:
        with tempfile.TemporaryDirectory() as folder:
            records, wall_s = search(name, Path(folder), arguments)
            report(name, records, wall_s)


def search(name: str, folder: Path, arguments: argparse.Namespace) -> tuple[list[Record], float]:
    """The records of one search from an empty object cache, and the seconds that it searched."""
    command = [sys.executable, "-m", "gevo", "search", name, "--run-dir", str(folder), "--name", "rate"]
    command += [
        "--for",
        f"{arguments.seconds}s",
        "--workers",
        str(arguments.workers),
        "--seed",
        str(arguments.seed),
        "--no-confirm",
    ]
    cache = folder / "cache"
    cache.mkdir()
    for kept in ("arrays", "workloads", "data"):
        (cache / kept).symlink_to(cache_folder() / kept)
    prepare(name)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"GEVO_CACHE": str(cache)})
    records = Run(folder / "rate").records()
    return records, records[-1].elapsed_s


def report(name: str, records: list[Record], wall_s: float) -> None:
    evaluated = sum(not r.result.answered_by for r in records)
    rate = len(records) / wall_s
    stages: Counter[str] = Counter()
    for record in records:
        stages.update(record.result.stage_s)
    hits = sum(r.result.cache_hits for r in records)
    misses = sum(r.result.cache_misses for r in records)
    print(f"{name}: {len(records)} records ({evaluated} evaluated) in {wall_s:.0f} s: {rate:.2f} a second")
    print(f"  object cache: {hits / max(1, hits + misses):.1%} of {hits + misses} look-ups hit")
    print(
        "  outcomes:", ", ".join(f"{n} {o}" for o, n in Counter(str(r.result.outcome) for r in records).most_common())
    )
    for stage, seconds in stages.most_common():
        print(f"  {stage:10s} {seconds / len(records) * 1e3:7.1f} ms a record")


if __name__ == "__main__":
    main()

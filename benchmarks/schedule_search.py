"""Edits and schedules evolved together, against edits alone and a solver's schedules alone, at equal evaluations.

    python benchmarks/schedule_search.py [WORKLOAD] [--evaluations 400] [--seeds 3] [--page-dir DIR] [--out build/bench]

Each seed is two searches on one core: with schedule genes, and with edits alone. "solver" are the schedules of the
base that the first one began with; "merged" is the front of edits alone and solver together. The table has the
hypervolume over runtime_s, peak_bytes and error, as a share of the box from 0 to twice the base's, and for how many
points of the merged front the evolved one has a point that is no worse in any objective, and the other way round.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common import OUT, line, machine, parsed, save
from gevo.objectives import point
from gevo.record import Record
from gevo.selection import non_dominated
from gevo.store import Run
from gevo.volume import Point, hypervolume

OBJECTIVES = ("runtime_s", "peak_bytes", "error")
SETS = ("evolved", "merged", "edits", "solver")
WIDTHS = (6, 10, 10, 10, 10, 20, 20)
SMOKE = "digits --evaluations 4 --seeds 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="lenet")
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page-dir", default="")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    print(f"{machine()}; {arguments.workload}, {arguments.evaluations} evaluations a search")
    print(line(("seed", *SETS, "merged points met", "evolved points met"), WIDTHS))
    given = arguments.workload, arguments.evaluations, arguments.page_dir, arguments.out / "schedule_search"
    rows = [compared(*given, seed) for seed in range(arguments.seeds)]
    print(line(("median", *(f"{median(row[name] for row in rows):.4f}" for name in SETS)), WIDTHS[:5]))
    save(rows, arguments.out / "schedule_search.csv")


def compared(workload: str, evaluations: int, page_dir: str, folder: Path, seed: int) -> dict[str, float]:
    """One seed as a row, printed too."""
    paging = ["--page-dir", page_dir] if page_dir else []
    both = searched(workload, evaluations, seed, folder / f"both{seed}", paging)
    edits = shares(searched(workload, evaluations, seed, folder / f"edits{seed}", ["--no-schedule"]))
    solver = shares([r for r in both if r.is_base or r.operator == "seed:schedule"])
    sets = dict(zip(SETS, (shares(both), [*edits, *solver], edits, solver), strict=True))
    points = {name: [found[i] for i in non_dominated(found)] for name, found in sets.items()}
    volumes = {name: hypervolume(found, [(0.0, 2.0)] * len(OBJECTIVES)) for name, found in points.items()}
    met = {
        one: sum(any(no_worse(p, q) for p in points[other]) for q in points[one])
        for one, other in (("merged", "evolved"), ("evolved", "merged"))
    }
    told = [f"{met[name]} of {len(points[name])}" for name in ("merged", "evolved")]
    print(line((seed, *(f"{v:.4f}" for v in volumes.values()), *told), WIDTHS), flush=True)
    sizes = {f"{name}_points": len(points[name]) for name in met}
    return {"seed": seed, **volumes, **sizes, **{f"{name}_met": count for name, count in met.items()}}


def searched(workload: str, evaluations: int, seed: int, folder: Path, options: Sequence[str]) -> list[Record]:
    """The valid records of a search, the base first."""
    shutil.rmtree(folder, ignore_errors=True)
    command = f"search {workload} --evaluations {evaluations} --objectives {','.join(OBJECTIVES)} --seed {seed}"
    place = f"--workers 1 --storage f32 --no-confirm --name {folder.name} --run-dir {folder.parent}"
    words = [sys.executable, "-m", "gevo", *command.split(), *place.split(), *options]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return [r for r in Run(folder).records() if r.result.ok]


def shares(records: Sequence[Record]) -> list[Point]:
    """The figures of records as shares of the base's, which is the first."""
    base = point(records[0].result, OBJECTIVES, {})
    return [tuple(a / b for a, b in zip(point(r.result, OBJECTIVES, {}), base, strict=True)) for r in records]


def no_worse(one: Point, two: Point) -> bool:
    return all(a <= b for a, b in zip(one, two, strict=True))


if __name__ == "__main__":
    main()

"""Edits and schedules evolved together, against edits alone and a solver's schedules alone, at equal evaluations.

    python benchmarks/schedule_search.py [WORKLOAD] [--evaluations 400] [--seeds 3] [--page-dir DIR] [--out build/bench]

Each seed is two searches on one core: with schedule genes, and with edits alone. "solver" are the schedules of the base
that the first one began with. "merged" is the front of edits alone and solver together. The table has the hypervolume
over runtime_s, peak_bytes and error, as a share of the box from 0 to twice the base's, and how many points of the merged
front a point of the evolved one is better than or equal to in all objectives, and the other way round.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common import OUT, line, machine, save
from gevo import cli
from gevo.objectives import point
from gevo.record import Record
from gevo.selection import non_dominated
from gevo.store import Run
from gevo.volume import Point, hypervolume

OBJECTIVES = ("runtime_s", "peak_bytes", "error")
WIDTHS = (6, 10, 10, 10, 10, 22, 22)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="lenet")
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page-dir", default="")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    print(f"{machine()}; {arguments.workload}, {arguments.evaluations} evaluations a search")
    print(
        line(("seed", "evolved", "merged", "edits", "solver", "merged points beaten", "evolved points beaten"), WIDTHS)
    )
    rows = [
        compared(arguments.workload, arguments.evaluations, seed, arguments.page_dir, arguments.out / "schedule_search")
        for seed in range(arguments.seeds)
    ]
    print(line(("median", *(f"{median(row[name] for row in rows):.4f}" for name in list(rows[0])[1:5])), WIDTHS[:5]))
    save(rows, arguments.out / "schedule_search.csv")


def compared(workload: str, evaluations: int, seed: int, page_dir: str, folder: Path) -> dict[str, float]:
    """One seed as a row, printed too."""
    paging = ["--page-dir", page_dir] if page_dir else []
    both = searched(workload, evaluations, seed, folder / f"both{seed}", paging)
    edits = searched(workload, evaluations, seed, folder / f"edits{seed}", ["--no-schedule"])
    solver = [r for r in both if r.is_base or r.operator == "seed:schedule"]
    base, bounds = both[0], [(0.0, 2.0), (0.0, 2.0), (0.0, 2.0)]
    sets = {"evolved": both, "merged": [*edits, *solver], "edits": edits, "solver": solver}
    points = {name: fronted([of_base(r, edits[0] if r in edits else base) for r in found])
              for name, found in sets.items()}  # fmt: skip
    volumes = {name: hypervolume(found, bounds) for name, found in points.items()}
    beaten = sum(any(no_worse(p, q) for p in points["evolved"]) for q in points["merged"])
    lost = sum(any(no_worse(q, p) for q in points["merged"]) for p in points["evolved"])
    told = f"{beaten} of {len(points['merged'])}", f"{lost} of {len(points['evolved'])}"
    print(line((seed, *(f"{v:.4f}" for v in volumes.values()), *told), WIDTHS), flush=True)
    return {
        "seed": seed, **volumes, "merged_points": len(points["merged"]), "merged_beaten": beaten,
        "evolved_points": len(points["evolved"]), "evolved_beaten": lost,
    }  # fmt: skip


def searched(workload: str, evaluations: int, seed: int, folder: Path, options: Sequence[str]) -> list[Record]:
    """The valid records of a search, the base first."""
    shutil.rmtree(folder, ignore_errors=True)
    cli.main([
        "search", workload, "--evaluations", str(evaluations), "--objectives", ",".join(OBJECTIVES), "--seed", str(seed),
        "--workers", "1", "--storage", "f32", "--no-confirm", "--name", folder.name, "--run-dir", str(folder.parent),
        *options,
    ])  # fmt: skip
    return [r for r in Run(folder).records() if r.result.ok]


def of_base(record: Record, base: Record) -> Point:
    """Its figures as shares of the base's."""
    own, other = (point(r.result, OBJECTIVES, {}) for r in (record, base))
    return tuple(a / b for a, b in zip(own, other, strict=True))


def fronted(points: Sequence[Point]) -> list[Point]:
    return [points[i] for i in non_dominated(points)]


def no_worse(one: Point, two: Point) -> bool:
    return all(a <= b for a, b in zip(one, two, strict=True))


if __name__ == "__main__":
    main()

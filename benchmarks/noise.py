"""How many measurements of the base against the base rank apart from it, though nothing differs.

    python benchmarks/noise.py [WORKLOAD ...] [--count 100]

Each one is from a process of its own, as an evaluation is; the noise floor is that of a campaign which began just
before. "over the floor" are those farther from 1 than it, and only they may rank. "by cells" is how many another rank
would be given by rounding to multiples of the floor: 1 need not be near the middle of its cell.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from common import line, machine, parsed
from fitness.job import Context
from fitness.pool import Pool
from gevo.ir_child import in_child
from gevo.objectives import floors
from gevo.order import beats
from workloads.cache import cache_folder
from workloads.prepare import prepare

WIDTHS = (12, 9, 8, 8, 8, 12, 15, 9)
HEAD = ("workload", "floor", "least", "median", "most", "ranks apart", "over the floor", "by cells")
SMOKE = "digits --count 3"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["digits", "twofc"])
    parser.add_argument("--count", type=int, default=100)
    arguments = parsed(parser, SMOKE)
    print(f"{machine()}; {arguments.count} measurements of the base against the base")
    print(line(HEAD, WIDTHS))
    for name in arguments.workloads:
        floor, ratios = measured(name, arguments.count)
        figures = (floor, *np.quantile(ratios, (0.0, 0.5, 1.0)))
        print(line((name, *(f"{figure:.4f}" for figure in figures), *counts(floor, ratios)), WIDTHS), flush=True)


def measured(name: str, count: int) -> tuple[float, list[float]]:
    """The noise floor of a workload's runtime, and ratios of its base to itself."""
    prepared = prepare(name)
    with tempfile.TemporaryDirectory() as folder:
        in_child("make_base", prepared=str(prepared.folder), folder=folder)
        base, cache = str(Path(folder) / "base.mlir"), str(cache_folder() / "objects")
        context = Context(prepared=str(prepared.folder), base=base, cache=cache, objectives=("runtime_s",))
        with Pool(context) as pool:
            return floors(pool.base, ["runtime_s"])["runtime_s"], pool.against_itself(count)


def counts(floor: float, ratios: list[float]) -> tuple[int, int, int]:
    """How many rank apart from the base, lie over the floor, and would rank apart by cells."""
    base = (1.0,)
    apart = sum(beats((r,), base, (floor,)) or beats(base, (r,), (floor,)) for r in ratios)
    return apart, sum(abs(r - 1) > floor for r in ratios), sum(round(r / floor) != round(1 / floor) for r in ratios)


if __name__ == "__main__":
    main()

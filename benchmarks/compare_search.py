"""Compare search methods at equal evaluations: hypervolume of gevo, random search, (1+lambda), and NSGA-II of others.

    python benchmarks/compare_search.py [FILE.json.gz | WORKLOAD ...] [--evaluations 200] [--seeds 11]

A file is a recorded space, which answers at once; a workload is evaluated for real, and its results are kept in
build/bench/compare_search_WORKLOAD.jsonl, so that the same command goes on where it was stopped (Ctrl-C reports the
seeds that are whole). Delete that file and the one beside it to begin anew.

All methods act on the same genomes: for a recorded space its edits, each in or out; for a workload six variables, each
one of a table of drawn edits or none. There, gevo is also run as it is, on all edits. An evaluation is a genome that a
run did not ask for before, whether a fingerprint answers it or not.

Hypervolume is of the points found so far, in the box from 0 to twice the base's figures. The table has the median
and quartiles over the seeds of its final value, p of Mann-Whitney U against gevo (Holm-corrected), A12 (how probable
it is that a run of gevo is better), and the mean of the anytime curve. Writes JSON and a picture into build/bench.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from common import OUT, line, machine, parsed, picture
from fitness.job import Context
from fitness.pool import Pool
from gevo.ir_child import in_child
from gevo.machine import cores
from gevo.replay import Recording
from gevo.selection import non_dominated
from mlir_passes.space import Space
from search_methods import METHODS
from search_problems import Book, Cached, Head, Problem, Spent, drawn, replayed, table, true_points
from search_stats import against, curve, hypervolume
from workloads.cache import cache_folder
from workloads.prepare import prepare

SPACES = Path(__file__).parent / "data"
GEVO = "gevo"
SMOKE = (str(SPACES / "twofc.json.gz"), *["digits", "--evaluations", "3", "--seeds", "1", "--workers", "1"])
TABLE = 300  # edits that a variable of a workload's problem chooses from
NEEDED = {"Optuna NSGA-II": "optuna", "pymoo NSGA-II": "pymoo"}
COLOURS = {
    "gevo": "#1b7837",
    "gevo (all edits)": "#7fbf7b",
    "random search": "#bdbdbd",
    "(1+lambda)": "#636363",
    "DEAP NSGA-II": "#d6604d",
    "DEAP from singles": "#f4a582",
    "Optuna NSGA-II": "#2166ac",
    "pymoo NSGA-II": "#762a83",
}


@dataclass(frozen=True)
class Outcome:
    """The runs of one method: hypervolume after each evaluation, shape (seeds, evaluations), and how many
    evaluations of each run were valid."""

    curves: np.ndarray
    valid: tuple[int, ...]

    @property
    def final(self) -> list[float]:
        return [float(value) for value in self.curves[:, -1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=[str(SPACES / "twofc.json.gz"), "digits"])
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--objectives", default="runtime_s,peak_bytes,error")
    parser.add_argument("--methods", default=",".join(METHODS), help="by comma")
    parser.add_argument("--workers", type=int, default=cores())
    arguments = parsed(parser, SMOKE)
    methods = arguments.methods.split(",")
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        parser.error(f"unknown method {unknown[0]!r}; known: {', '.join(METHODS)}")
    for given in arguments.problems:
        with opened(given, tuple(arguments.objectives.split(",")), arguments.workers) as (problem, ceiling):
            found = compared(problem, present(methods, problem), arguments.evaluations, arguments.seeds)
            if found:
                report(problem, found, ceiling)


@contextmanager
def opened(given: str, objectives: Sequence[str], workers: int) -> Generator[tuple[Problem, float | None]]:
    """The problem of a recorded space or a workload, and the true front's hypervolume where it is known."""
    if given.endswith(".json.gz"):
        recording = Recording.load(Path(given))
        problem = replayed(recording, objectives)
        points = [problem.scaled(found) for found in true_points(problem, recording)]
        yield problem, hypervolume([points[i] for i in non_dominated(points)])
        return
    prepared = prepare(given)
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        in_child("make_base", prepared=str(prepared.folder), folder=folder)
        space = Space.load(Path(folder) / "space.json")
        cache = str(cache_folder() / "objects")
        base = str(Path(folder) / "base.mlir")
        context = Context(prepared=str(prepared.folder), base=base, cache=cache, objectives=tuple(objectives))
        kept = OUT / f"compare_search_{given}_head.json"
        head = Head.load(kept) if kept.exists() else None
        with Pool(context, workers, head.base if head else None) as pool:
            if head is None:
                head = Head(pool.base, table(space, TABLE, seed=0))
                head.save(kept)
            evaluator = Cached(pool, OUT / f"compare_search_{given}.jsonl")
            yield drawn(given, space, head.edits, objectives, evaluator), None


def present(methods: Sequence[str], problem: Problem) -> list[str]:
    """The methods whose library is installed and that the problem has a space for."""
    found = [name for name in methods if name not in NEEDED or find_spec(NEEDED[name]) is not None]
    for name in set(methods) - set(found):
        print(f"no {name}: {NEEDED[name]} is not installed (pip install 'gevo[bench]')")
    return [name for name in found if name != "gevo (all edits)" or problem.plain is not None]


def compared(problem: Problem, methods: Sequence[str], evaluations: int, seeds: int) -> dict[str, Outcome]:
    """The outcome of each method; of the seeds that all methods have done, if Ctrl-C comes."""
    curves: dict[str, list[list[float]]] = {name: [] for name in methods}
    valid: dict[str, list[int]] = {name: [] for name in methods}
    with Progress(transient=True) as progress:
        task = progress.add_task(problem.name, total=seeds * len(methods))
        try:
            for seed in range(seeds):
                for name in methods:
                    points = run(problem, name, evaluations, seed)
                    start = problem.scaled(problem.point(problem.evaluator.base) or ())
                    scaled = [None if found is None else problem.scaled(found) for found in points]
                    curves[name].append(curve(start, scaled, evaluations))
                    valid[name].append(sum(found is not None for found in points))
                    progress.advance(task)
        except KeyboardInterrupt:
            print("Stopped; what follows is of the seeds that are whole")
    whole = min(map(len, curves.values()))
    return {name: Outcome(np.array(curves[name][:whole]), tuple(valid[name][:whole])) for name in methods if whole}


def run(problem: Problem, name: str, evaluations: int, seed: int) -> list[Any]:
    """The point of each evaluation of one run, None where it was not valid."""
    book, state = Book(problem, evaluations), random.getstate()
    try:
        METHODS[name](problem, book, seed)
    except Spent:
        pass
    finally:
        random.setstate(state)
    return book.points


def report(problem: Problem, found: dict[str, Outcome], ceiling: float | None) -> None:
    """Print the table; write JSON and the picture."""
    first = GEVO if GEVO in found else next(iter(found))
    others = against(found[first].final, {name: o.final for name, o in found.items() if name != first})
    seeds, evaluations = found[first].curves.shape
    print(f"{problem.name}: {seeds} seeds, {evaluations} evaluations, {', '.join(problem.objectives)}; {machine()}")
    start = hypervolume([problem.scaled(problem.point(problem.evaluator.base) or ())])
    print(f"hypervolume of the base {start:.4f}" + (f", of the true front {ceiling:.4f}" if ceiling else ""))
    widths = (17, 8, 8, 8, 8, 8, 8, 6, 7)
    print(line(("method", "median", "q1", "q3", "of true", "anytime", "p", "A12", "valid"), widths))
    rows: list[dict[str, Any]] = []
    for name, outcome in found.items():
        low, middle, high = np.percentile(outcome.final, (25, 50, 75))
        versus = others.get(name)
        share = (middle - start) / (ceiling - start) if ceiling else None
        valid = sum(outcome.valid) / outcome.curves.size
        rows.append(
            {
                "method": name,
                "median": float(middle),
                "q1": float(low),
                "q3": float(high),
                "share_of_true_gain": share,
                "anytime": float(outcome.curves.mean()),
                "valid": valid,
                "final": outcome.final,
                "against_gevo": asdict(versus) if versus else None,
            }
        )
        cells = [name, *(f"{v:.4f}" for v in (middle, low, high)), None if share is None else f"{share:.1%}"]
        cells += [f"{outcome.curves.mean():.4f}", versus and f"{versus.p:.2g}", versus and f"{versus.a12:.2f}"]
        print(line([*cells, f"{valid:.0%}"], widths))
    path = OUT / f"compare_search_{problem.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"problem": problem.name, "objectives": problem.objectives, "seeds": seeds, "evaluations": evaluations}
    path.write_text(json.dumps({**head, "base": start, "true": ceiling, "methods": rows}, indent=1) + "\n")
    print(f"wrote {path}")
    picture(path.with_suffix(".png"), lambda axes: draw(axes, problem, found, ceiling))


def draw(axes: Any, problem: Problem, found: dict[str, Outcome], ceiling: float | None) -> None:
    """Anytime curves: the median over seeds, and a band between the quartiles."""
    for name, outcome in found.items():
        at = np.arange(1, outcome.curves.shape[1] + 1)
        low, middle, high = np.percentile(outcome.curves, (25, 50, 75), axis=0)
        axes.plot(at, middle, label=name, color=COLOURS[name])
        axes.fill_between(at, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
    if ceiling:
        axes.axhline(ceiling, color="black", linewidth=0.8, linestyle=":", label="true front")
    axes.set(xlabel="evaluations", ylabel="hypervolume", title=f"{problem.name}: {', '.join(problem.objectives)}")
    axes.legend(loc="lower right")


if __name__ == "__main__":
    main()

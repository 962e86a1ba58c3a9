"""Record a space for replay: some edits of a workload's step, and what each subset of them does, evaluated for real.

    python benchmarks/record_space.py twofc --edits 11 --seed 0 --to benchmarks/data/twofc.json.gz

Edits are drawn of every kind and evaluated alone; of those that help, harm, do nothing and fail a mix is taken. Then
all 2^edits subsets are evaluated. Ctrl-C keeps what is done, in FILE.part, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common import parsed
from fitness.job import Context
from fitness.pool import Pool
from gevo.errors import CampaignError
from gevo.failures import explained
from gevo.ir_child import in_child
from gevo.machine import cores
from gevo.objectives import figure, floors, point
from gevo.recording import DRAWN, Watch, candidates, choose, read_part, record
from gevo.replay import Recording
from gevo.selection import non_dominated
from mlir_passes.space import Space
from workloads.cache import cache_folder
from workloads.errors import WorkloadError
from workloads.prepare import prepare

SMOKE = "digits --edits 2 --drawn 1 --workers 1 --to build/bench/smoke.json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--edits", type=int, default=11)
    parser.add_argument("--drawn", type=int, default=DRAWN, help="edits of each kind to choose from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=cores())
    arguments = parsed(parser, SMOKE)
    part = arguments.to.with_name(f"{arguments.to.name}.part")
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    try:
        made = recorded(arguments, part)
    except KeyboardInterrupt:
        parser.exit(130, f"Stopped. What is done is in {part}; the same command goes on from there\n")
    except (CampaignError, WorkloadError) as error:
        code, message = explained(error)
        parser.exit(code, f"{message}\n")
    made.save(arguments.to)
    part.unlink()
    report(made)
    print(f"wrote {arguments.to}, {arguments.to.stat().st_size / 1024:.0f} KiB")


def recorded(arguments: argparse.Namespace, part: Path) -> Recording:
    """The recording of a workload; the choice of edits and all results so far are those of `part` where it exists."""
    workload, count = arguments.workload, arguments.edits
    prepared = prepare(workload)
    head = read_part(part)[0] if part.exists() else None
    if head is not None and (head.workload, len(head.edits)) != (workload, count):
        raise CampaignError(
            f"holds {len(head.edits)} edits of {head.workload}, not {count} of {workload}", part, "Delete it, or go on"
        )
    with tempfile.TemporaryDirectory() as folder:
        in_child("make_base", prepared=str(prepared.folder), folder=folder)
        space, base = Space.load(Path(folder) / "space.json"), Path(folder) / "base.mlir"
        context = Context(prepared=str(prepared.folder), base=str(base), cache=str(cache_folder() / "objects"))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Pool(context, arguments.workers, head.base if head else None) as pool, Progress(*columns) as progress:
            if head is None:
                rng = random.Random(arguments.seed)
                found = candidates(space, pool, rng, _bar(progress, "edits alone"), arguments.drawn)
                chosen = choose(found, space, count, rng)
                edits, labels = tuple(c.edit for c in chosen), tuple(c.label for c in chosen)
                head = Recording(workload, space, edits, labels, pool.base)
            return record(head, pool, part, _bar(progress, "subsets"))


def report(made: Recording) -> None:
    """Print the edits, what each does alone, and what is in the space."""
    objectives = tuple(made.base.objectives)
    for index, (edit, label) in enumerate(zip(made.edits, made.labels, strict=True)):
        alone = made.results[1 << index]
        figures = " ".join(f"{name} {figure(alone, name) / figure(made.base, name):.3f}" for name in alone.objectives)
        print(f"{index:3d} {label:8s} {edit.kind:13s} {figures or alone.outcome}  {edit.words(str)}"[:200])
    valid = [r for r in made.results if r.ok]
    points = [point(r, objectives, floors(made.base, objectives)) for r in valid]
    print(f"{len(made.results)} subsets: {Counter(str(r.outcome) for r in made.results).most_common()}")
    print(f"{len({r.fingerprint for r in valid})} programs, {len(set(points))} points of {', '.join(objectives)}")
    print(f"{len({points[i] for i in non_dominated(points)})} of them are the true front")


def _bar(progress: Progress, name: str) -> Watch:
    task = progress.add_task(name, total=None)
    return lambda done, total: progress.update(task, completed=done, total=total)


if __name__ == "__main__":
    main()

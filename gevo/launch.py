"""A run's folder from a configuration, and the evaluators' context from a run's folder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fitness.choices import choices_text
from fitness.job import Context
from fitness.result import Result
from gevo.beginning import FILE as BEGINNING
from gevo.beginning import save_beginning
from gevo.config import CampaignConfig
from gevo.errors import BaseFails, CampaignError, NotFound, RunDamaged, RunExists, Unwritable
from gevo.files import write_text
from gevo.front import front
from gevo.genome import Genome
from gevo.ir_child import in_child
from gevo.limits import limits, slowest
from gevo.machine import machine, versions
from gevo.objectives import bounds, floors, not_finite
from gevo.pick import best_first
from gevo.record import Record, base_record
from gevo.scheduling import FILE as SCHEDULES
from gevo.scheduling import Schedules
from gevo.store import Run
from gevo.tuning_store import TuningStore
from workloads.cache import cache_folder
from workloads.errors import WorkloadError
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload, Signature

RUNS = Path("runs")  # where runs are, unless --run-dir says otherwise
TUNING = "tuning.json"  # the choices of kernels, frozen with the rest


@contextmanager
def new_folder(folder: Path) -> Generator[Path]:
    """A new folder for a run; taken away again if the run fails before its manifest is written."""
    if folder.exists():
        raise RunExists(
            "a run of this name exists", folder, f"Go on with `gevo resume {folder.name}`, or give another --name"
        )
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise Unwritable(
            f"cannot be made: {error.strerror}", folder, "Give a folder you may write to: --run-dir"
        ) from error
    try:
        yield folder
    finally:
        if not (folder / "manifest.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)


def context_for(config: CampaignConfig, prepared: PreparedWorkload, folder: Path) -> Context:
    """What evaluators of this run are given."""
    tuning = folder / TUNING
    return Context(
        prepared=str(prepared.folder),
        base=str((folder / "base.mlir").absolute()),
        cache=str(cache_folder() / "objects"),
        objectives=config.measured,
        target=config.target,
        slow_ratio=slowest(config),
        memory_budget=config.memory_budget,
        threads=config.threads,
        tuning=str(tuning.absolute()) if tuning.is_file() else "",
        page_dir=config.page_dir,
    )


def permitted(asked: Sequence[str], signature: Signature) -> tuple[str, ...]:
    """What variants may store values in: what is asked for, all that the workload permits if nothing is. Raises
    CampaignError where the workload does not permit it."""
    refused = [storage for storage in asked if storage not in signature.storage]
    if refused:
        raise CampaignError(
            f"the numerics rule of {signature.name} permits {', '.join(signature.storage)} between kernels, "
            f"not {refused[0]}",
            "--storage",
            f'To permit it, write Workload(..., storage=("f32", "{refused[0]}")) in the workload, or give another one',
        )
    return tuple(s for s in signature.storage if s == "f32" or not asked or s in asked)


def freeze_choices(folder: Path) -> int:
    """Copy this CPU's tuned choices into the run, so that they stay what they are; how many there are."""
    choices = TuningStore().choices()
    if choices:
        write_text(folder / TUNING, choices_text(choices))
    return len(choices)


def crowded(workers: int, threads: int, free: int) -> str:
    """What to tell who asks for more threads than there are `free` cores; "" if they fit."""
    if threads == 1 or workers * threads <= free:
        return ""
    wanted = f"{workers} worker{'s' * (workers > 1)} of {threads} threads"
    fits = free // threads
    todo = f"use --workers {fits}" if fits else f"use --threads {free}"
    return f"{wanted} want {workers * threads} cores, there are {free}: times will be noisy; {todo}"


def lay_out_schedules(config: CampaignConfig, context: Context, folder: Path) -> Schedules:
    """Schedules of the base for smaller budgets, into `folder`."""
    path = folder / SCHEDULES
    in_child(
        "write_schedules",
        prepared=context.prepared,
        base=context.base,
        cache=context.cache,
        tuning=context.tuning,
        threads=context.threads,
        profile=context.profile,
        paging=bool(config.page_dir),
        page_dir=config.page_dir,
        to=str(path),
    )
    return Schedules.load(path)


def lay_out_beginning(config: CampaignConfig, folder: Path) -> list[Genome]:
    """Genomes of the front of the run that the search begins with, into `folder`: as many as a population, those that
    span the front first.

    It is the front as that search knew it: what was confirmed would bring held-out data into this one. Storage and
    schedules that `config` does not permit are taken off. Raises CampaignError if that run edited another base.
    """
    earlier = Run(Path(config.beginning))
    was, where = earlier.manifest, f"--from {config.beginning}"
    if was["base_sha256"] != _digest(folder / "base.mlir"):
        todo = "Name a run of the same step, begun by this version of gevo"
        raise CampaignError(f"that run evolved another step, of {was['config']['workload']}", where, todo)
    found = front(earlier.records(), was["config"]["objectives"], was["floors"], limits=earlier.limits)
    if found is None:
        raise CampaignError("that run has no valid record yet", where, "Let it go on for a while")
    chosen = [r.genome for r in best_first(found) if not r.is_base][: config.search.population]
    genomes = list(dict.fromkeys(_as_permitted(genome, config) for genome in chosen))
    save_beginning(genomes, folder)
    return genomes


def lay_out(config: CampaignConfig, folder: Path) -> PreparedWorkload:
    """Prepare the workload and write base.mlir and space.json into `folder`."""
    prepared = prepare(config.workload)
    in_child("make_base", prepared=str(prepared.folder), folder=str(folder))
    return prepared


def manifest(config: CampaignConfig, context: Context, base: Result, folder: Path) -> dict[str, Any]:
    """All that is frozen when a campaign starts; raises BaseFails if the base cannot be ranked against."""
    problem = not_finite(base, config.measured) if base.ok else f"{base.outcome} in {base.stage}: {base.detail}"
    if problem:
        raise BaseFails(f"the base step cannot be measured: {problem}", config.workload, "Fix the step first")
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": config.to_json(),
        "context": context.to_json(),
        "step_sha256": _digest(Path(context.prepared) / "step.mlir"),
        "base_sha256": _digest(folder / "base.mlir"),
        "space_sha256": _digest(folder / "space.json"),
        "versions": versions(),
        "machine": machine(),
        "tuning_sha256": _digest(Path(context.tuning)) if context.tuning else "",
        "schedules_sha256": _digest(folder / SCHEDULES) if config.schedule else "",
        "beginning_sha256": _digest(folder / BEGINNING) if config.beginning else "",
        "base": base_record(base).to_row(),
        "floors": floors(base, config.measured),
        "bounds": bounds(base, config.measured),
        "limits": limits(base, config),
    }


def reopened(manifest: dict[str, Any], folder: Path) -> Context:
    """The context of an earlier run, here and now; the workload is prepared again if its folder is gone."""
    config = CampaignConfig.from_json(manifest["config"])
    for name in ("base.mlir", "space.json"):
        key = f"{name.partition('.')[0]}_sha256"
        if not (folder / name).is_file() or _digest(folder / name) != manifest[key]:
            raise RunDamaged(f"{name} is missing or was changed since the run began", folder, "Restore it from a copy")
    for name in (TUNING, SCHEDULES, BEGINNING):
        path = folder / name
        frozen = manifest.get(f"{path.stem}_sha256", "")
        if (_digest(path) if path.is_file() else "") != frozen:
            raise RunDamaged(f"{name} is missing or was changed since the run began", folder, "Restore it from a copy")
    try:
        prepared = PreparedWorkload.load(Path(manifest["context"]["prepared"]))
    except WorkloadError:
        prepared = prepare(config.workload)
    if _digest(prepared.folder / "step.mlir") != manifest["step_sha256"]:
        raise RunDamaged(f"{config.workload} is another step than when the run began", folder, "Start a new run")
    here = context_for(config, prepared, folder)
    then = Context.from_json(manifest["context"])
    places = {name: getattr(here, name) for name in ("prepared", "base", "cache", "tuning", "page_dir")}
    return replace(then, **places)


def base_result(manifest: dict[str, Any]) -> Result:
    """The base as measured when the run began: what every ratio of the run refers to."""
    return Record.from_row(manifest["base"]).result


def find_run(name: str, run_dir: Path) -> Path:
    """The folder that `name` means: a path, or a name in `run_dir`; raises NotFound listing the runs there are."""
    for folder in (Path(name), run_dir / name):
        if (folder / "manifest.json").is_file():
            return folder
    known = ", ".join(p.name for p in runs_in(run_dir)) or "none"
    raise NotFound(f"unknown run {name!r}; runs there: {known}", run_dir, "Start one with `gevo search`")


def run_name(folder: Path) -> str:
    """What to call a run on a command line: its name suffices in the default folder."""
    return folder.name if folder.parent == RUNS else str(folder)


def runs_in(run_dir: Path) -> list[Path]:
    """Folders of the runs in `run_dir`, the newest last."""
    found = [p.parent for p in run_dir.glob("*/manifest.json")]
    return sorted(found, key=lambda p: (p / "manifest.json").stat().st_mtime)


def _as_permitted(genome: Genome, config: CampaignConfig) -> Genome:
    storage = genome.storage if genome.storage in config.storage else "f32"
    return replace(genome, storage=storage, schedule=genome.schedule if config.schedule else ())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

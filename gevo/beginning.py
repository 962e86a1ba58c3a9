"""What a search may begin with: the front of an earlier run of the same step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gevo.config import CampaignConfig
from gevo.confirmed import load
from gevo.errors import CampaignError
from gevo.files import write_text
from gevo.front import front
from gevo.genome import Genome
from gevo.pick import best_first
from gevo.store import Run

FILE = "beginning.json"


def write_beginning(earlier: Run, config: CampaignConfig, base_sha256: str, folder: Path) -> list[Genome]:
    """Genomes of the front of `earlier` into `folder`: as many as a population, those that span the front first.

    Storage and schedules that `config` does not permit are taken off them. Raises CampaignError if that run edited
    another base than the one of `base_sha256`, or has no front yet.
    """
    manifest = earlier.manifest
    if manifest["base_sha256"] != base_sha256:
        was = manifest["config"]["workload"]
        todo = "Name a run of the same step, begun by this version of gevo"
        raise CampaignError(f"that run evolved another step, of {was}", f"--from {earlier.folder}", todo)
    confirmation = load(earlier.folder)
    objectives, floors = manifest["config"]["objectives"], manifest["floors"]
    found = front(earlier.records(), objectives, floors, confirmation, limits=earlier.limits)
    if found is None:
        raise CampaignError("that run has no valid record yet", f"--from {earlier.folder}", "Let it go on for a while")
    chosen = [r.genome for r in best_first(found, confirmation) if not r.is_base][: config.search.population]
    genomes = list(dict.fromkeys(_permitted(genome, config) for genome in chosen))
    write_text(folder / FILE, json.dumps([genome.to_json() for genome in genomes]))
    return genomes


def load_beginning(folder: Path) -> Sequence[Genome]:
    """The genomes that the run in `folder` begins with; none if it began with single edits only."""
    path = folder / FILE
    return [Genome.from_json(data) for data in json.loads(path.read_text())] if path.is_file() else ()


def _permitted(genome: Genome, config: CampaignConfig) -> Genome:
    storage = genome.storage if genome.storage in config.storage else "f32"
    return replace(genome, storage=storage, schedule=genome.schedule if config.schedule else ())

"""What an explanation is made with: seeds, timing, the folder that keeps it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fitness.job import Context, Timing
from gevo.errors import CampaignError
from gevo.explain.lab import ROUNDS, Plan
from gevo.record import Record
from gevo.store import Run
from workloads.workload import PreparedWorkload

FOLDER = "explain"  # in a run's folder
TIMING = Timing(rounds=60, least=24, enough=0.002)  # three times a search's: what is asked here is a percent or so


def kept_file(run: Run, record: Record) -> Path:
    """Where the evaluations for a record are kept; the folder is there."""
    folder = run.folder / FOLDER
    folder.mkdir(exist_ok=True)
    return folder / f"{record.id}.json"


def plan(context: Context, rounds: int = ROUNDS) -> Plan:
    """A round a seed, beginning with those that the search did not train from. Where seeds change nothing (no error
    is asked for, or nothing is trained), all rounds share one context."""
    prepared = PreparedWorkload.load(Path(context.prepared))
    context = replace(context, timing=TIMING)
    if "error" not in context.objectives or prepared.signature.is_prediction:
        return Plan((context,), rounds)
    used = prepared.signature.quality.seeds
    states = (re.fullmatch(r"init_(\d+)\.npz", path.name) for path in prepared.folder.iterdir())
    there = sorted(int(state[1]) for state in states if state is not None)
    seeds = [s for s in there if s not in used] or list(used)
    return Plan(tuple(replace(context, seeds=(seed,)) for seed in seeds[:rounds]), rounds)


def check_record(record: Record, run: Run) -> None:
    """Raise CampaignError where there is nothing to explain."""
    where = f"{run.folder.name} {record.id}"
    if record.is_base:
        raise CampaignError("the base itself has no edits: nothing to explain", where, "Give another record")
    if not record.result.ok:
        why = f"{record.result.outcome} in {record.result.stage}"
        raise CampaignError(
            f"this record failed ({why}): it has no objectives to explain",
            where,
            f"See `gevo show {run.folder.name} {record.id}`",
        )

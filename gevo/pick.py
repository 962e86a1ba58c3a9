"""A record by its id, or by what is wanted of it."""

from __future__ import annotations

from gevo.errors import NotFound
from gevo.objectives import figure
from gevo.record import Record
from gevo.store import Run

BASE = "base"
BEST = {"fastest": "runtime_s", "smallest": "peak_bytes", "cheapest": "energy_j", "most-accurate": "error"}


def pick(run: Run, wanted: str) -> Record:
    """The record `wanted` names: an id, a key, "base", or a word of `BEST`, which never costs accuracy.

    "fastest" is the valid record with the least runtime among those with no more error than the base; where
    several are equal in that, the one with the least error. Raises NotFound.
    """
    if wanted != BASE and wanted not in BEST:
        return run.record(wanted)
    records = [r for r in run.records() if r.result.ok]
    base = next((r for r in records if r.is_base), None)
    if base is None:
        raise NotFound("no valid record yet", run.folder, "Wait for the first evaluation")
    if wanted == BASE:
        return base
    objective, objectives = BEST[wanted], run.manifest["config"]["objectives"]
    if objective not in objectives:
        raise NotFound(f"this run did not measure {objective}", run.folder, f"It has {', '.join(objectives)}")
    if "error" not in objectives:
        return min(records, key=lambda r: figure(r.result, objective))
    fit = [r for r in records if r.value("error") <= base.value("error")]
    return min(fit, key=lambda r: (figure(r.result, objective), r.value("error")))

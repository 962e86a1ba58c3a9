"""A record by its id, or by what is wanted of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gevo.confirmed import Confirmation, Verdict, load
from gevo.errors import NotFound
from gevo.front import Front
from gevo.objectives import figure
from gevo.record import Record
from gevo.store import Run

BASE = "base"
BEST = {"fastest": "runtime_s", "smallest": "peak_bytes", "cheapest": "energy_j", "most-accurate": "error"}


def pick(run: Run, wanted: str) -> Record:
    """The record `wanted` names: an id, a key, "base", or a word of `BEST`, which never costs accuracy.

    "fastest" is the valid record with the least runtime among those with no more error than the base; where
    several are equal in that, the one with the least error, then with the fewest edits. What differs from the base by
    no more than the noise floor is equal to it. What was confirmed comes before what was not: once a
    record that fits holds, only such are picked, by what they were confirmed as. Raises NotFound.
    """
    if wanted != BASE and wanted not in BEST:
        return run.record(wanted)
    records = [r for r in run.records() if r.result.ok and (r.is_base or not run.over(r))]
    base = next((r for r in records if r.is_base), None)
    if base is None:
        raise NotFound("no valid record yet", run.folder, "Wait for the first evaluation")
    if wanted == BASE:
        return base
    objective, objectives = BEST[wanted], run.manifest["config"]["objectives"]
    if objective not in objectives:
        raise NotFound(f"this run did not measure {objective}", run.folder, f"It has {', '.join(objectives)}")
    return best(records, base, objective, load(run.folder), run.manifest["floors"].get(objective, 0.0))


def best(
    records: Sequence[Record], base: Record, objective: str, found: Confirmation | None, floor: float = 0.0
) -> Record:
    """The record that is least in `objective` among those with no more error than the base, on validation data and,
    where they are confirmed, on test data; the base is one of them, and whatever differs from it by no more than
    `floor` is no better."""
    scored = "error" in base.result.objectives
    fit = [r for r in records if not scored or r.value("error") <= base.value("error")]
    fit = [r for r in fit if found is None or not found.bad(r)]
    holding = [r for r in fit if not r.is_base and found is not None and _holds(r, found)]
    if holding:
        fit = [base, *holding]
    of_base = _figure(base, objective, found)

    def rank(record: Record) -> tuple[float, float, int]:
        mine = _figure(record, objective, found)
        like_base = abs(mine - of_base) <= floor
        return of_base if like_base else mine, record.value("error") if scored else 0.0, record.genome.size

    return min(fit, key=rank)


def best_first(front: Front, found: Confirmation | None = None) -> list[Record]:
    """All members of a front: the best in each objective without more error than the base, the least in each, then
    always the one that lies farthest from those before it, in shares of the front's extent; so the first few show
    what the front spans."""
    members = list(front.members)
    if not members:
        return []
    candidates = members if front.base in members else [*members, front.base]
    words = [objective for objective in BEST.values() if objective in front.objectives]
    first = [best(candidates, front.base, objective, found) for objective in words]
    least = [min(members, key=lambda r: figure(r.result, name)) for name in front.objectives]
    ordered = list(dict.fromkeys(r.id for r in (*first, *least) if r in members))
    by_id, places = {r.id: r for r in members}, _places(members, front.objectives)
    away = {r.id: min(math.dist(places[r.id], places[i]) for i in ordered) for r in members if r.id not in ordered}
    while away:
        farthest = max(away, key=lambda i: away[i])
        ordered.append(farthest)
        del away[farthest]
        away = {i: min(d, math.dist(places[i], places[farthest])) for i, d in away.items()}
    return [by_id[i] for i in ordered]


def _holds(record: Record, found: Confirmation) -> bool:
    """Whether it was confirmed, with no more error than the base on test data either as far as anyone can tell."""
    row = found.of(record)
    return row is not None and row.verdict is Verdict.HOLDS and (row.difference is None or row.difference.low <= 0.0)


def _figure(record: Record, objective: str, found: Confirmation | None) -> float:
    row = found.of(record) if found is not None else None
    if objective == "runtime_s" and row is not None and row.ratio is not None:
        return row.ratio.value
    return figure(record.result, objective)


def _places(members: Sequence[Record], objectives: Sequence[str]) -> dict[str, list[float]]:
    """Each member's figures, from 0 at the least to 1 at the greatest of all."""
    places: dict[str, list[float]] = {r.id: [] for r in members}
    for objective in objectives:
        figures = [figure(r.result, objective) for r in members]
        low, extent = min(figures), max(figures) - min(figures)
        for record, value in zip(members, figures, strict=True):
            places[record.id].append((value - low) / extent if extent else 0.0)
    return places

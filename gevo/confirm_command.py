"""`gevo confirm`, and what a search does at its end: wires a run's folder, the evaluators and the view."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from rich.console import Console

from fitness.errors import FitnessError
from fitness.job import Context
from fitness.result import Result
from gevo.campaign import Evaluator
from gevo.confirm import Confirming, confirm_front, wave
from gevo.confirm_setup import REPETITIONS, SPLIT, begin, setup
from gevo.confirm_view import ConfirmView
from gevo.confirmed import Confirmation, load
from gevo.errors import CampaignError, NotFound
from gevo.pick import BASE, pick
from gevo.record import Record
from gevo.store import Run
from gevo.units import span
from workloads.errors import WorkloadError

COUNT = 24  # variants of a front that are measured if nothing else is asked for
EVERY = 1 << 30
START_S = 6.0  # for workers to load the base and the data, twice
LEAST_S, SHARE = 60.0, 0.1  # what the end of a search may take: this share of it, or this long after a short one


def confirm(
    run: Run,
    context: Context,
    ids: Sequence[str],
    count: int,
    again: bool,
    workers: int,
    console: Console,
    timed: bool = False,
) -> None:
    """Measure records of a run that nobody writes to, and keep what is found; KeyboardInterrupt keeps what is done."""
    confirming, records = _confirming(run, context, workers, again, ids, timed)
    named = [_confirmable(run, name) for name in dict.fromkeys(ids)]
    todo = confirming.missing(named) if ids else wave(confirming, records, count)
    if not todo:
        console.print("All of it is confirmed already. To measure it anew: --again", highlight=False)
        return
    _say(confirming, todo, console)
    with confirming, ConfirmView(console) as view:
        confirming.watch = view
        _ = confirming.measure(todo) if ids else confirm_front(confirming, records, count)


def confirm_at_end(run: Run, context: Context, workers: int, console: Console) -> None:
    """The same for the front of a search that has just ended, in a time that fits it; a failure is said, no more."""
    seconds = max(LEAST_S, SHARE * run.spent().seconds)
    try:
        confirming, records = _confirming(run, context, workers)
        left = seconds - _start_s(confirming)
        todo = wave(confirming, records, COUNT, left)
        if not todo:
            return
        _say(confirming, todo, console)
        confirming.deadline = time.monotonic() + seconds
        with confirming, ConfirmView(console) as view:
            confirming.watch = view
            confirm_front(confirming, records, COUNT, left)
    except (CampaignError, FitnessError, WorkloadError) as error:
        console.print(f"Could not confirm: {error}", highlight=False, soft_wrap=True)


def _confirming(
    run: Run, context: Context, workers: int, again: bool = False, ids: Sequence[str] = (), timed: bool = False
) -> tuple[Confirming, list[Record]]:
    records = run.records()
    base = next((r for r in records if r.is_base and r.result.ok), None)
    if base is None:
        raise NotFound("no valid record yet", run.folder, "Wait for the first evaluation")
    earlier = load(run.folder) if not again or ids else None
    timed = timed or (earlier is not None and "runtime_s" in earlier.methods)
    this = setup(run.manifest, context, base, workers, timed)
    found = begin(this, earlier, run.folder, again)
    if again and ids:
        found = _without(found, [pick(run, name).id for name in ids])
    return Confirming(this, found, _open_pool, lambda new: new.save(run.folder)), records


def _without(found: Confirmation, ids: Sequence[str]) -> Confirmation:
    return replace(found, rows={name: row for name, row in found.rows.items() if name not in ids})


def _confirmable(run: Run, name: str) -> Record:
    record = pick(run, name)
    if record.is_base:
        raise CampaignError(
            f"{name} is the base, which others are compared with", run.folder, f"Leave {BASE} out, or name a variant"
        )
    if not record.result.ok:
        raise CampaignError(
            f"{record.id} ended as {record.result.outcome} in stage {record.result.stage!r}: nothing to confirm",
            run.folder,
            "Take a record of `gevo front`",
        )
    return record


def _start_s(confirming: Confirming) -> float:
    """Roughly what it takes until the first record: workers that load the base, and the base's error."""
    this, found = confirming.this, confirming.found
    return START_S + (0.0 if found.base_errors else this.scoring_s(this.base))


def _say(confirming: Confirming, todo: Sequence[Record], console: Console) -> None:
    this = confirming.this
    parts = [f"timed again in {REPETITIONS} processes each"] if this.timed else []
    if this.scored:
        told = f"trained from {len(this.seeds)} new seeds and " if set(this.seeds) - set(this.search_seeds) else ""
        parts.append(f"{told}scored on {SPLIT} data, which the search never saw")
    expected = _start_s(confirming) + math.fsum(this.expected_s(record) for record in todo)
    console.print(
        f"Confirming {len(todo)} variant{'s' * (len(todo) > 1)}: {', '.join(parts) or 'evaluated again'}; "
        f"about {span(expected)}. Ctrl-C stops it and keeps what is done",
        highlight=False,
        soft_wrap=True,
    )


def _open_pool(context: Context, workers: int, base: Result | None) -> AbstractContextManager[Evaluator]:
    from fitness.pool import Pool

    return Pool(context, workers, base)

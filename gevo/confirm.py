"""Measures records of a run again: timed anew in several processes, trained from new seeds, scored on held-out data.

The search never sees what comes out: it would fit the test data by choosing among many variants.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from fitness.job import Context
from fitness.result import Result
from gevo.campaign import Evaluator, TimeUp
from gevo.confirm_setup import REPETITIONS, SPLIT, Setup
from gevo.confirmed import Confirmation, Confirmed, Verdict, utc_now
from gevo.front import front
from gevo.intervals import (
    Estimate,
    around,
    binomial_interval,
    half_of_rows,
    mcnemar_interval,
    median_interval,
    paired_interval,
)
from gevo.pick import best_first
from gevo.record import Record
from gevo.verdict import judge

LEAST = 3  # repetitions that a verdict needs, where the time was too short for all
FEW = 4  # records at a time where there is a deadline
WAVES = 3  # how often the records that take the places of those that do not hold are measured too

OpenPool = Callable[[Context, int, Result | None], AbstractContextManager[Evaluator]]


@dataclass(frozen=True)
class Progress:
    """How far it is: evaluations done and planned, the record that was last."""

    done: int
    planned: int
    record: str


class Confirming:
    """Measures what is missing of some records; every finished piece is handed to `keep` at once. To be entered: the
    evaluators stay open until it is left."""

    def __init__(
        self,
        this: Setup,
        found: Confirmation,
        open_pool: OpenPool,
        keep: Callable[[Confirmation], None],
        watch: Callable[[Progress], None] = lambda progress: None,
        deadline: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.found = found
        self.this, self._open, self._keep, self.watch = this, open_pool, keep, watch
        self.deadline, self._clock = deadline, clock
        self._done = self._planned = 0
        self._stack = ExitStack()
        self._scorer: Evaluator | None = None
        self._timer: Evaluator | None = None

    def __enter__(self) -> Confirming:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, at)

    def measure(self, records: Sequence[Record]) -> bool:
        """Whether all of it was measured before the deadline; KeyboardInterrupt passes through, rows are kept.

        Without a deadline a record's repetitions are spread over the whole time; with one, a few records at a time
        are measured to their end, so that those that come first have their verdicts when it comes.
        """
        fresh = [record for record in records if record.id not in self.found.rows]
        self.found = self.found.put(Confirmed(r.id, r.result.fingerprint) for r in fresh)
        self._planned += sum(self._missing(record) for record in records)
        at_once = FEW if math.isfinite(self.deadline) else max(1, len(records))
        try:
            for first in range(0, len(records), at_once):
                self._score(records[first : first + at_once])
                self._time(records[first : first + at_once])
        except TimeUp:
            return False
        return True

    def missing(self, records: Sequence[Record]) -> list[Record]:
        """Those of `records` that are not wholly measured."""
        return [record for record in records if self._missing(record)]

    def _missing(self, record: Record) -> int:
        """Evaluations that are left of a record."""
        row = self.found.rows.get(record.id, Confirmed(record.id, ""))
        if row.outcome:
            return 0
        return self._timings_left(row) + (self.this.scored and not row.errors)

    def _timings_left(self, row: Confirmed) -> int:
        return max(0, REPETITIONS - len(row.ratios)) if self.this.timed and not row.outcome else 0

    def _score(self, records: Sequence[Record]) -> None:
        """Errors on the held-out split, of the base first."""
        todo = [r for r in records if not self._row(r).errors and not self._row(r).outcome]
        if not self.this.scored or not todo:
            return
        if self._scorer is None:
            self._scorer = self._stack.enter_context(self._open(self.this.scoring, self.this.workers, None))
            of_base = self._scorer.base.objectives["error"]
            each = of_base.each or (of_base.value,)
            self.found = replace(self.found, base_errors=each, base_right=of_base.right)
        self._evaluate(self._scorer, todo, self._scored)

    def _time(self, records: Sequence[Record]) -> None:
        """Repetitions, each over all records in an order of its own, so that a record's are at several moments."""
        todo = [r for r in records if self._timings_left(self._row(r))]
        if not todo:
            return
        if self._timer is None:
            context = replace(self.this.context, objectives=("runtime_s",), timing=self.this.timing)
            self._timer = self._stack.enter_context(self._open(context, 1, self.this.base.result))
        for repetition in range(REPETITIONS):
            turn = [r for r in todo if self._timings_left(self._row(r)) >= REPETITIONS - repetition]
            random.Random(f"{self.this.shuffle} {repetition}").shuffle(turn)
            self._evaluate(self._timer, turn, self._timed)

    def _evaluate(
        self, pool: Evaluator, records: Sequence[Record], enter: Callable[[Confirmed, Result], Confirmed]
    ) -> None:
        def on_event(event: Any) -> None:
            if event.kind == "finished":
                record = records[event.index]
                self._put(record, enter(self._row(record), event.result))
                self._done += 1
                self.watch(Progress(self._done, self._planned, record.id))
            if self._clock() > self.deadline:
                raise TimeUp

        if records:
            pool.evaluate([record.genome.to_json() for record in records], {}, on_event)

    def _scored(self, row: Confirmed, result: Result) -> Confirmed:
        if not result.ok:
            return _failed(row, result)
        error = result.objectives["error"]
        return replace(row, errors=error.each or (error.value,), right=error.right)

    def _timed(self, row: Confirmed, result: Result) -> Confirmed:
        return replace(row, ratios=(*row.ratios, result.runtime_ratio)) if result.ok else _failed(row, result)

    def _row(self, record: Record) -> Confirmed:
        return self.found.rows[record.id]

    def _put(self, record: Record, row: Confirmed) -> None:
        self.found = replace(self.found.put([judged(row, record, self.this, self.found)]), created=utc_now())
        self._keep(self.found)


def confirm_front(confirming: Confirming, records: Sequence[Record], count: int, seconds: float = math.inf) -> bool:
    """Measure up to `count` records of the front, the best first and spread over it, as many as `seconds` are likely to
    suffice for; whether all of them are measured. Where some do not hold, those that take their places come next."""
    for _ in range(WAVES):
        todo = wave(confirming, records, count, seconds)
        if not todo:
            return True
        seconds -= sum(confirming.this.expected_s(record) for record in todo)
        if not confirming.measure(todo):
            return False
    return not wave(confirming, records, count, seconds)


def wave(confirming: Confirming, records: Sequence[Record], count: int, seconds: float = math.inf) -> list[Record]:
    """What to measure next of the front as it is now: the first of its best `count` records that are not wholly
    measured and that take about `seconds`."""
    this = confirming.this
    found = front(records, this.objectives, this.floors, confirming.found, limits=this.limits)
    if found is None:
        return []
    best = [record for record in best_first(found, confirming.found) if not record.is_base][:count]
    chosen: list[Record] = []
    for record in confirming.missing(best):
        seconds -= this.expected_s(record)
        if seconds < 0:
            break
        chosen.append(record)
    return chosen


def judged(row: Confirmed, record: Record, this: Setup, found: Confirmation) -> Confirmed:
    """The row with its figures and its verdict, as far as they can be told."""
    if row.outcome:
        return row
    ratio = median_interval(row.ratios) if row.ratios else None
    difference = _difference(row, found, this.rows[SPLIT]) if row.errors else None
    row = replace(row, ratio=ratio, difference=difference)
    if (this.timed and len(row.ratios) < LEAST) or (this.scored and not row.errors):
        return row
    validation = _validation(row, record, this, found) if this.scored else None
    verdict, words = judge(record, this.base, this.objectives, this.floors, ratio, difference, validation, this.limits)
    return replace(row, verdict=verdict, words=words)


def _difference(row: Confirmed, found: Confirmation, rows: int) -> Estimate:
    """Paired by seed; of one scored state by rows."""
    if row.right and found.base_right and rows:
        return mcnemar_interval(row.right, found.base_right, rows)
    if len(row.errors) == 1 and rows:
        return binomial_interval(row.errors[0], found.base_errors[0], rows)
    return paired_interval(row.errors, found.base_errors, rows)


def _validation(row: Confirmed, record: Record, this: Setup, found: Confirmation) -> Estimate:
    """The error's difference as the search saw it, with the noise that it must have had there, by what it has now:
    fewer seeds, and other rows."""
    difference = record.value("error") - this.base.value("error")
    rows = this.rows["validation"]
    if len(row.errors) == 1 and row.difference is not None and rows:
        return around(difference, row.difference.half * math.sqrt(this.rows[SPLIT] / rows))
    of_seeds = paired_interval(row.errors, found.base_errors)
    half = of_seeds.half * math.sqrt(len(row.errors) / max(1, len(this.search_seeds)))
    return around(difference, math.hypot(half, half_of_rows(difference, rows)))


def _failed(row: Confirmed, result: Result) -> Confirmed:
    detail = f"{result.outcome} in {result.stage}: {result.detail}"
    return replace(row, outcome=str(result.outcome), detail=detail, verdict=Verdict.FAILED, words=detail)

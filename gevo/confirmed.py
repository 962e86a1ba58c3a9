"""What is known of records that were measured again: `confirmed.json` in a run's folder. The search never reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from gevo.errors import RunDamaged
from gevo.files import write_json
from gevo.intervals import Estimate
from gevo.record import Record

FILE = "confirmed.json"
FORMAT = 1


class Verdict(StrEnum):
    """What a record came to. The text after each is what a user should know."""

    HOLDS = "holds"  # its gains over the base are there, or one that suffices
    LUCKY = "lucky"  # measured again, its gain over the base is not there: no faster, or no more than noise
    OVERFITTED = "overfitted"  # its gain in error is lost on held-out data, or its loss is clearly larger there
    FAILED = "failed"  # evaluated again, it did not end well


@dataclass(frozen=True)
class Confirmed:
    """One record measured again.

    ratios: runtime over the base's, one a repetition, each the median of paired windows in a process of its own.
    errors: on the held-out split, one a seed. right: `fitness.result.Measure.right` where there is one state.
    outcome, detail: how an evaluation ended that did not end well.
    ratio, difference: from these, with intervals; the difference is to the base, paired by seed.
    verdict: None until there is enough to tell. words: why.
    """

    id: str
    fingerprint: str
    ratios: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    right: str = ""
    outcome: str = ""
    detail: str = ""
    ratio: Estimate | None = None
    difference: Estimate | None = None
    verdict: Verdict | None = None
    words: str = ""

    @property
    def bad(self) -> bool:
        """Whether it may not stand on a front."""
        return self.verdict not in (None, Verdict.HOLDS)

    @property
    def error(self) -> float | None:
        """Mean error on the held-out split."""
        return sum(self.errors) / len(self.errors) if self.errors else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Confirmed:
        known = {name: value for name, value in data.items() if name != "error"}
        known["ratios"], known["errors"] = tuple(known["ratios"]), tuple(known["errors"])
        for name in ("ratio", "difference"):
            known[name] = Estimate(**known[name]) if known[name] else None
        known["verdict"] = Verdict(known["verdict"]) if known["verdict"] else None
        return Confirmed(**known)


@dataclass(frozen=True)
class Confirmation:
    """All rows of a run, and how they were measured.

    created: the last change, UTC. seeds: of the initial states. base_errors: the base's on the same seeds and split;
    base_right: as a row's. rows_scored: rows of the split that an error is a share of, 0 for a loss.
    methods: what was done, in words, an objective.
    """

    created: str
    machine: Mapping[str, Any]
    split: str
    seeds: tuple[int, ...]
    methods: Mapping[str, str]
    base_errors: tuple[float, ...] = ()
    base_right: str = ""
    rows_scored: int = 0
    rows: Mapping[str, Confirmed] = field(default_factory=dict[str, Confirmed])

    def of(self, record: Record) -> Confirmed | None:
        """What is known of the record, from itself or from the same program."""
        if record.id in self.rows:
            return self.rows[record.id]
        same = record.result.fingerprint
        return next((row for row in self.rows.values() if same and row.fingerprint == same), None)

    def bad(self, record: Record) -> bool:
        found = self.of(record)
        return found is not None and found.bad

    def put(self, rows: Iterable[Confirmed]) -> Confirmation:
        return replace(self, rows={**self.rows, **{row.id: row for row in rows}})

    def save(self, folder: Path) -> None:
        """Whole or not at all."""
        write_json(folder / FILE, self.to_json())

    def about(self) -> dict[str, Any]:
        """All but the rows."""
        return {"format": FORMAT, **{name: value for name, value in asdict(self).items() if name != "rows"}}

    def to_json(self) -> dict[str, Any]:
        return {**self.about(), "records": [row.to_json() for row in self.rows.values()]}


def load(folder: Path) -> Confirmation | None:
    """The confirmation of the run in `folder`, None if there is none; raises RunDamaged."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text())
        if data.pop("format") > FORMAT:
            raise RunDamaged("is of a later format", path, "Use a newer gevo")
        rows = [Confirmed.from_json(row) for row in data.pop("records")]
        for name in ("seeds", "base_errors"):
            data[name] = tuple(data[name])
        return Confirmation(**data, rows={row.id: row for row in rows})
    except (ValueError, KeyError, TypeError) as error:
        todo = "Delete it and confirm again: nothing else depends on it"
        raise RunDamaged(f"cannot be read: {error!r}", path, todo) from error


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""One evaluated genome: a row of the log and of the Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fitness.job import OBJECTIVES
from fitness.result import Measure, Outcome, Result
from gevo.genome import IDENTITY, Genome
from gevo.objectives import figure
from gevo.units import OBJECTIVE_TEXT


@dataclass(frozen=True)
class Record:
    """A genome, where it came from and what its evaluation found.

    id: "r0001" and so on, in the order of asking. text: the genome's, read only where it is wanted, since
    a night makes a hundred thousand. parents: ids. elapsed_s: seconds of search before it ended. operator: how the
    search made it, as "add:scale" or "crossover" (see `search.Proposal`); "" in runs of older versions.
    """

    id: str
    generation: int
    key: str
    text: str
    parents: tuple[str, ...]
    elapsed_s: float
    result: Result
    operator: str = ""

    @cached_property
    def genome(self) -> Genome:
        return Genome.parse(self.text)

    @property
    def is_base(self) -> bool:
        return self.key == IDENTITY.key

    def value(self, objective: str) -> float:
        return self.result.objectives[objective].value

    def to_row(self) -> dict[str, Any]:
        """Flat plain data; None where there is no figure. The columns of `runs/README.md`."""
        result = self.result
        row: dict[str, Any] = {
            "id": self.id,
            "generation": self.generation,
            "key": self.key,
            "genome": self.text,
            "parents": list(self.parents),
            "operator": self.operator,
            "outcome": str(result.outcome),
            "stage": result.stage,
            "detail": result.detail,
            "fingerprint": result.fingerprint,
            "answered_by": result.answered_by,
            "elapsed_s": self.elapsed_s,
        }
        for name in OBJECTIVES:
            measure = result.objectives.get(name)
            row[name] = (
                None if measure is None else int(measure.value) if name == "peak_bytes" else float(measure.value)
            )
            row[f"{name}_method"] = None if measure is None else measure.method
            row[f"{name}_spread"] = None if measure is None else measure.spread
        row["runtime_ratio"] = result.runtime_ratio or None
        row["measured_s"] = result.measured_s or None
        row["stage_s"] = dict(result.stage_s)
        row["cache_hits"], row["cache_misses"] = result.cache_hits, result.cache_misses
        row["paged_bytes"] = result.paged_bytes
        return row

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Record:
        objectives = {
            name: Measure(row[name], row[f"{name}_method"], row[f"{name}_spread"])
            for name in OBJECTIVES
            if row[name] is not None
        }
        result = Result(
            outcome=Outcome(row["outcome"]),
            stage=row["stage"],
            detail=row["detail"],
            fingerprint=row["fingerprint"],
            objectives=objectives,
            runtime_ratio=row["runtime_ratio"] or 0.0,
            measured_s=row["measured_s"] or 0.0,
            stage_s=dict(row["stage_s"]),
            cache_hits=row["cache_hits"],
            cache_misses=row["cache_misses"],
            answered_by=row["answered_by"],
            paged_bytes=row.get("paged_bytes", 0),
        )
        return Record(
            row["id"],
            row["generation"],
            row["key"],
            row["genome"],
            tuple(row["parents"]),
            row["elapsed_s"],
            result,
            row.get("operator", ""),
        )


def base_record(result: Result) -> Record:
    """The base as a record: always the first that is asked for."""
    return Record(record_id(1), 0, IDENTITY.key, IDENTITY.text, (), 0.0, result, "base")


def versus(record: Record, base: Record | None, objective: str) -> str:
    """The record's value with its ratio to the base, or its difference for the error: "1.2 ms 0.870x"."""
    text = OBJECTIVE_TEXT[objective](record.value(objective))
    if base is None:
        return text
    if objective == "error":
        return f"{text} {record.value(objective) - base.value(objective):+.4f}"
    of_base = figure(base.result, objective)
    return f"{text} {figure(record.result, objective) / of_base:.3f}x" if of_base else text


def record_id(number: int) -> str:
    """The id of the `number`th genome that was asked for, from 1."""
    return f"r{number:04d}"


def id_number(identifier: str) -> int:
    return int(identifier[1:])

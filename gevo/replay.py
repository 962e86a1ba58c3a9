"""A recorded space: a few edits of a step and what every subset of them does. It answers evaluations at once.

Search algorithms are compared on it cheaply, and against the true front, which is known by enumeration.
A subset's result is that of its edits in the order of the list, whatever their order in a genome.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fitness.batch import FINGERPRINT
from fitness.job import PoolEvent
from fitness.result import Outcome, Result
from gevo.errors import NotFound, RunDamaged
from gevo.files import write_whole
from gevo.genome import Genome
from gevo.menu import Menu, menu
from mlir_passes.edits import Edit, edit_from_json
from mlir_passes.space import Space

OUTSIDE = Result(Outcome.REJECTED, "replay", "not in the recorded space")


@dataclass(frozen=True)
class Recording:
    """What was recorded. labels: what each edit does alone, as `gevo.recording` found it.

    results: by number of the subset; bit i of the number (1 << i) says whether edit i is in it.
    """

    workload: str
    space: Space
    edits: tuple[Edit, ...]
    labels: tuple[str, ...]
    base: Result
    results: tuple[Result, ...] = field(default=())

    @cached_property
    def _bits(self) -> dict[str, int]:
        return {_text(edit.to_json()): 1 << i for i, edit in enumerate(self.edits)}

    def number(self, genome: Mapping[str, Any]) -> int | None:
        """The number of a genome's subset, from its JSON form; None if it is not in the recorded space."""
        if genome.get("schedule") or genome.get("storage", "f32") != "f32":
            return None
        bits = [self._bits.get(_text(edit)) for edit in genome["edits"]]
        known = {bit for bit in bits if bit is not None}
        return sum(known) if len(known) == len(bits) else None

    def genome(self, number: int) -> Genome:
        """The genome of a subset, with its edits in the order of the list."""
        return Genome(tuple(edit for i, edit in enumerate(self.menu.entries) if number >> i & 1))

    @cached_property
    def menu(self) -> Menu:
        """The space to search: only recorded edits are drawn, each at most once."""
        return menu(self.space, self.edits)

    def save(self, path: Path) -> None:
        """Write it as gzipped JSON; equal results are written once. Floats have 6 significant digits."""
        texts = [json.dumps(_rounded(_packed(result))) for result in self.results]
        programs = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        head = {**head_json(self), "programs": [json.loads(text) for text in programs]}
        text = json.dumps({**head, "subsets": [programs[text] for text in texts]}, separators=(",", ":"))

        def fill(temporary: Path) -> None:
            temporary.write_bytes(gzip.compress(text.encode(), mtime=0))

        write_whole(path, fill)

    @staticmethod
    def load(path: Path) -> Recording:
        """Read what `save` wrote; raises NotFound or RunDamaged."""
        try:
            data = json.loads(gzip.decompress(path.read_bytes()))
            programs = [Result.from_json(row) for row in data["programs"]]
            found = replace(head_from_json(data), results=tuple(programs[index] for index in data["subsets"]))
        except FileNotFoundError as error:
            raise NotFound(
                "no such recorded space", path, "Record one: python benchmarks/record_space.py WORKLOAD --to FILE"
            ) from error
        except (OSError, EOFError, ValueError, KeyError, IndexError, TypeError) as error:
            raise RunDamaged(f"this is no recorded space: {error}", path, "Restore it, or record it again") from error
        if len(found.results) != 1 << len(found.edits):
            what = f"expected {1 << len(found.edits)} results for {len(found.edits)} edits, got {len(found.results)}"
            raise RunDamaged(what, path, "Restore it, or record it again")
        return found


class Replay:
    """The interface of `fitness.pool.Pool` over a recording: results come at once and are always the same.

    Variants with a fingerprint that is known, or that came before in the batch, are answered by it, as there.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @property
    def base(self) -> Result:
        return self._recording.base

    def evaluate(
        self,
        genomes: Sequence[Mapping[str, Any]],
        known: Mapping[str, Result] | None = None,
        on_event: Callable[[PoolEvent], None] | None = None,
    ) -> list[Result]:
        """The recorded results, in order; a genome that was not recorded is rejected as such."""
        seen = {**(known or {}), self.base.fingerprint: self.base}
        results: list[Result] = []
        for index, genome in enumerate(genomes):
            result = self._answer(genome, seen)
            results.append(result)
            if on_event is not None:
                on_event(PoolEvent("started", index))
                on_event(PoolEvent("finished", index, result=result))
        return results

    def _answer(self, genome: Mapping[str, Any], seen: dict[str, Result]) -> Result:
        number = self._recording.number(genome)
        if number is None:
            return OUTSIDE
        result = self._recording.results[number]
        if result.fingerprint in seen:
            return replace(seen[result.fingerprint], answered_by=FINGERPRINT)
        if result.fingerprint:
            seen[result.fingerprint] = result
        return result


def head_json(recording: Recording) -> dict[str, Any]:
    """All of a recording but its results, as plain data."""
    return {
        "workload": recording.workload,
        "space": json.loads(recording.space.text()),
        "edits": [edit.to_json() for edit in recording.edits],
        "labels": list(recording.labels),
        "base": _rounded(_packed(recording.base)),
    }


def head_from_json(data: Mapping[str, Any]) -> Recording:
    """The recording that `head_json` described, still without results."""
    edits = tuple(edit_from_json(edit) for edit in data["edits"])
    space, base = Space.from_json(data["space"]), Result.from_json(data["base"])
    return Recording(data["workload"], space, edits, tuple(data["labels"]), base)


def _packed(result: Result) -> dict[str, Any]:
    """A result without what only its own evaluation is described by: seconds of stages, cache hits, who answered."""
    kept = replace(result, stage_s={}, cache_hits=0, cache_misses=0, answered_by="").to_json()
    for name, measure in kept["objectives"].items():
        kept["objectives"][name] = {key: v for key, v in measure.items() if v or key == "value"}
    return {name: value for name, value in kept.items() if value or name == "outcome"}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))

"""A genome as data: edits and schedule genes, one JSON text form, one key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlir_passes.edits import Edit, edit_from_json


@dataclass(frozen=True)
class Genome:
    """What is done to the base module, in order. Schedule genes are plain JSON values.

    storage: what values between kernels are stored in; f32 is the base's, and is left out of the text.
    """

    edits: tuple[Edit, ...] = ()
    schedule: tuple[Any, ...] = ()
    storage: str = "f32"

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"edits": [e.to_json() for e in self.edits], "schedule": list(self.schedule)}
        return made if self.storage == "f32" else {**made, "storage": self.storage}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Genome:
        edits = tuple(edit_from_json(e) for e in data["edits"])
        return Genome(edits, tuple(_frozen(g) for g in data.get("schedule", ())), data.get("storage", "f32"))

    @cached_property
    def text(self) -> str:
        """The canonical text: equal genomes have equal texts and `parse` gives the genome back."""
        parts = [f'"edits":[{",".join(map(edit_text, self.edits))}]', f'"schedule":{_dumped(list(self.schedule))}']
        parts += [] if self.storage == "f32" else [f'"storage":{_dumped(self.storage)}']
        return f"{{{','.join(parts)}}}"

    @staticmethod
    def parse(text: str) -> Genome:
        return Genome.from_json(json.loads(text))

    @cached_property
    def key(self) -> str:
        """20 hex digits of the text's SHA-256: the genome's name in the store."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:20]

    @property
    def whole(self) -> tuple[str, ...]:
        """Names of the fields beside the edits that are not the base's: "storage", "schedule"."""
        return tuple(name for name in ("storage", "schedule") if getattr(self, name) != getattr(IDENTITY, name))

    @property
    def size(self) -> int:
        return len(self.edits) + len(self.schedule) + (self.storage != "f32")


IDENTITY = Genome()


def edit_text(edit: Edit) -> str:
    """The canonical text of an edit, by which tables know it. Made once an edit, since a search asks for it often."""
    kept = vars(edit)
    known = kept.get("_text")
    if known is None:
        known = kept["_text"] = _dumped(edit.to_json())  # an edit is frozen, so its text is, too
    return known


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value

"""What can be varied in a base module, as plain data: the search reads this and never holds IR."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlir_passes.edits.base import Edit


@dataclass(frozen=True)
class TensorType:
    """A static ranked tensor: shape and element type as MLIR spells it ("f32")."""

    shape: tuple[int, ...]
    element: str

    @property
    def bytes(self) -> int:
        """Size in the arena; i1 takes a byte an element."""
        bits = 64 if self.element == "index" else int(self.element.lstrip("bfisu"))
        count = 1
        for dim in self.shape:
            count *= dim
        return count * max(1, bits // 8)


GONE = "deleted"


@dataclass(frozen=True)
class SpaceOp:
    """One op of the step. operands holds value names ("arg3", "op17#0"); slots are the operand
    indices that may be rewired (destinations that are only written to are left out). `name` is
    `GONE` once an edit deleted the op: its values then mean what replaced them. where: the user's line that it
    came from ("model.py:17"), "" where the frontend does not know."""

    site: str
    name: str
    operands: tuple[str, ...]
    slots: tuple[int, ...]
    results: tuple[str, ...]
    editable: bool
    where: str = ""


@dataclass(frozen=True)
class Activation:
    """A value that lives from the forward part to the backward part of the step."""

    value: str
    bytes: int
    first_use: str
    last_use: str


@dataclass(frozen=True)
class Parameter:
    """A state leaf and the ops from which its new value alone is made (its update chain, last op last)."""

    arg: str
    name: str
    bytes: int
    result: int
    update: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """Ops in dominance order, the type of every value, arguments, activations and parameters of a base module."""

    ops: tuple[SpaceOp, ...]
    types: dict[str, TensorType]
    args: tuple[str, ...]
    returns: tuple[str, ...]
    activations: tuple[Activation, ...] = ()
    parameters: tuple[Parameter, ...] = ()

    @cached_property
    def by_site(self) -> dict[str, SpaceOp]:
        return {op.site: op for op in self.ops}

    def after(self, edits: Iterable[Edit]) -> Space:
        """The space as it is once `edits` were applied, each of which applies."""
        space = self
        for edit in edits:
            space = edit.extend(space)
        return space

    def insert(self, before: str, op: SpaceOp, types: dict[str, TensorType]) -> Space:
        """This space with `op` placed just before the op at site `before`."""
        at = next(i for i, o in enumerate(self.ops) if o.site == before)
        return replace(self, ops=(*self.ops[:at], op, *self.ops[at:]), types={**self.types, **types})

    def without(self, site: str) -> Space:
        """This space after the op at `site` was deleted."""
        gone = replace(self.by_site[site], name=GONE, operands=(), slots=(), editable=False)
        return replace(self, ops=tuple(gone if o.site == site else o for o in self.ops))

    def present(self, site: str) -> bool:
        """Whether there is an op at `site`."""
        return site in self.by_site and self.by_site[site].name != GONE

    def values_before(self, site: str) -> list[str]:
        """Names of the tensor values that dominate the op at `site`, in order."""
        names, before = self._values
        return names[: before[site]]

    @cached_property
    def _values(self) -> tuple[list[str], dict[str, int]]:
        """All tensor values in order, and for each site how many of them dominate it."""
        names = [a for a in self.args if a in self.types]
        before: dict[str, int] = {}
        for op in self.ops:
            before[op.site] = len(names)
            names += [r for r in op.results if r in self.types]
        return names, before

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def load(path: Path) -> Space:
        return Space.from_json(json.loads(path.read_text()))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Space:
        """The space that `save` wrote, from its parsed text."""

        def tup(item: dict[str, Any]) -> dict[str, Any]:
            return {k: tuple(v) if isinstance(v, list) else v for k, v in item.items()}

        return Space(
            ops=tuple(SpaceOp(**tup(o)) for o in data["ops"]),
            types={k: TensorType(**tup(t)) for k, t in data["types"].items()},
            args=tuple(data["args"]),
            returns=tuple(data["returns"]),
            activations=tuple(Activation(**tup(a)) for a in data["activations"]),
            parameters=tuple(Parameter(**tup(p)) for p in data["parameters"]),
        )


def dangling(space: Space, edits: Sequence[Edit]) -> list[int]:
    """Indices of the edits that point at a copy which no earlier edit makes, or at a value that does not dominate."""
    bad: list[int] = []
    for index, edit in enumerate(edits):
        if not edit.applies(space):
            bad.append(index)
            continue
        space = edit.extend(space)
    return bad

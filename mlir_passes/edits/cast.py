"""Round a value to a narrower element type for all that read it, so that it can be kept in less memory."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import plausible
from mlir_passes.edits.base import Edit, Name, unless_same
from mlir_passes.space import Space

if TYPE_CHECKING:
    from mlir_passes.repair import Editor

WIDE = "f32"  # what is rounded: the only float type that the shipped steps compute in


@dataclass(frozen=True)
class Cast(Edit):
    """Round each element of `value`, the f32 result of an op, to `to` (f16 or bf16, nearest, ties to even).

    Its readers get the rounded number as f32 again. The numerics rule of the workload must permit `to`.
    """

    kind: ClassVar[str] = "cast"
    value: str
    to: str

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Cast | None:
        narrow = _narrow(space)
        values = [v for v in space.made_at if _may_be(space, v) and v in space.users] if narrow else []
        if not values:
            return None
        elements = {v: math.prod(space.types[v].shape) for v in values}
        large = [v for v in values if elements[v] >= plausible.CAST_LEAST_ELEMENTS]
        if large and plausible.semantic("cast", rng):
            kept = {a.value for a in space.activations} & set(large)
            values = [v for v in large if v in kept] or large
            value = plausible.by_weight(values, [elements[v] for v in values], rng) or values[0]
        else:
            value = rng.choice(values)
        return Cast(value, rng.choice(narrow))

    def perturb(self, space: Space, rng: random.Random) -> Cast | None:
        """The same value in another type; where no other is permitted, a value of the same type instead."""
        if not self.applies(space):
            return None
        others = [t for t in _narrow(space) if t != self.to]
        if others:
            return replace(self, to=rng.choice(others))
        alike = [v for v in space.made_at if _may_be(space, v) and space.types[v] == space.types[self.value]]
        return unless_same(self, replace(self, value=rng.choice(alike)))

    def words(self, name: Name) -> str:
        return f"{name(self.value)} is rounded to {self.to}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.value.partition("#")[0],)

    def applies(self, space: Space) -> bool:
        return self.to in _narrow(space) and _may_be(space, self.value)

    def apply(self, editor: Editor) -> None:
        editor.round(self.value, self.to)


def _narrow(space: Space) -> list[str]:
    return [t for t in space.storage if t != WIDE]


def _may_be(space: Space, value: str) -> bool:
    return space.alive(value) and space.op_of(value) is not None and space.types[value].element == WIDE

"""Multiply a value inside a body by a constant."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import bodies, plausible
from mlir_passes.edits.base import Edit, Name
from mlir_passes.edits.body_drop import inner_words
from mlir_passes.space import GONE, Space, SpaceOp

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class BodyScale(Edit):
    """In the linalg.generic at `site`, multiply `value` by `factor` for all of the body that reads it.

    value: "a1" (block argument 1), "b0" (result of inner op 0), or a scalar of the step that the body reads; a float
    that does not hang on an accumulator.
    """

    kind: ClassVar[str] = "body_scale"
    site: str
    value: str
    factor: float

    @staticmethod
    def draw(space: Space, rng: random.Random) -> BodyScale | None:
        found = [(op.site, value) for op in bodies.some(space, rng) for value in _values(space, op)]
        return BodyScale(*rng.choice(found), plausible.draw_factor(rng)) if found else None

    def perturb(self, space: Space, rng: random.Random) -> BodyScale | None:
        """The same value, scaled by a little more or less."""
        return replace(self, factor=plausible.near_factor(self.factor, rng)) if self.applies(space) else None

    def words(self, name: Name) -> str:
        return f"in {name(self.site)}, {inner_words(self.value, name)} is scaled by {self.factor:g}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        return space.present(self.site) and self.value in _values(space, space.by_site[self.site])

    def apply(self, editor: Editor) -> None:
        editor.body(self.site, self.value).scale(self.value, self.factor)


def _values(space: Space, op: SpaceOp) -> list[str]:
    """Floats that ops of a body read, but for what hangs on an accumulator."""
    if not bodies.editable(op):
        return []
    read = dict.fromkeys(n for i in op.body if i.name != GONE for n in i.operands if n)
    free = [n for n in read if n not in bodies.bound(op)]
    return [n for n in free if bodies.type_of(space, op, n) in ("f16", "bf16", "f32", "f64")]

"""Replace an op of a body by another of the same signature."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import bodies
from mlir_passes.edits.base import Edit, Name
from mlir_passes.space import Space

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class BodyReplace(Edit):
    """In the linalg.generic at `site`, let inner op `inner` be a `by`, as "arith.subf" or "arith.cmpf olt".

    An op that accumulates may only become another one whose order does not matter.
    """

    kind: ClassVar[str] = "body_replace"
    site: str
    inner: int
    by: str

    @staticmethod
    def draw(space: Space, rng: random.Random) -> BodyReplace | None:
        found = [(op, i) for op in bodies.some(space, rng) for i in bodies.indices(op) if bodies.becomes(op, i)]
        if not found:
            return None
        op, index = rng.choice(found)
        return BodyReplace(op.site, index, rng.choice(bodies.becomes(op, index)))

    def perturb(self, space: Space, rng: random.Random) -> BodyReplace | None:
        """The same op, replaced by another."""
        if not self.applies(space):
            return None
        others = [name for name in bodies.becomes(space.by_site[self.site], self.inner) if name != self.by]
        return replace(self, by=rng.choice(others)) if others else None

    def words(self, name: Name) -> str:
        return f"in {name(self.site)}, inner op {self.inner} is {self.by} instead"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        return space.present(self.site) and self.by in bodies.becomes(space.by_site[self.site], self.inner)

    def extend(self, space: Space) -> Space:
        op = space.by_site[self.site]
        new = replace(op.body[self.inner], name=self.by)
        return space.change(replace(op, body=(*op.body[: self.inner], new, *op.body[self.inner + 1 :])))

    def apply(self, editor: Editor) -> None:
        editor.body(self.site).become(self.inner, self.by)

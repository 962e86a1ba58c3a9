"""Rewire an operand of an op to another value."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits.base import Edit, Name, Use, all_fit, draw_use, given, unless_same, use_words
from mlir_passes.space import Space

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Rewire(Edit):
    """Give operand `slot` of the op at `site` another value."""

    kind: ClassVar[str] = "rewire"
    site: str
    slot: int
    use: Use

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Rewire | None:
        sites = [op for op in space.ops if any(op.operands[s] in space.types for s in op.slots)]
        if not sites:
            return None
        op = rng.choice(sites)
        slot = rng.choice([s for s in op.slots if op.operands[s] in space.types])
        old = op.operands[slot]
        use = draw_use(space, op.site, space.types[old], rng, exclude=old)
        return Rewire(op.site, slot, use) if use else None

    def perturb(self, space: Space, rng: random.Random) -> Rewire | None:
        op = space.by_site.get(self.site)
        if op is None or self.slot not in op.slots:
            return None
        old = op.operands[self.slot]
        use = draw_use(space, self.site, space.types[old], rng, exclude=old)
        return unless_same(self, Rewire(self.site, self.slot, use)) if use else None

    def words(self, name: Name) -> str:
        return f"{name(self.site)} reads {use_words(self.use, name)} as operand {self.slot}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        op = space.by_site.get(self.site)
        if op is None or self.slot not in op.slots:
            return False
        return all_fit(space, self.site, [self.use], [op.operands[self.slot]])

    def extend(self, space: Space) -> Space:
        op = space.by_site[self.site]
        name, types = given(space, self.use, space.types[op.operands[self.slot]])
        operands = (*op.operands[: self.slot], name, *op.operands[self.slot + 1 :])
        return space.change(replace(op, operands=operands), types)

    def apply(self, editor: Editor) -> None:
        editor.rewire(self.site, self.slot, self.use)

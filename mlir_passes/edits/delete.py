"""Delete an op: every use of each of its results is given another value."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits.base import Edit, Name, Use, all_fit, draw_use, unless_same, use_words
from mlir_passes.edits.plausible import semantic
from mlir_passes.space import Space, SpaceOp

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Delete(Edit):
    """Remove the op at `site`; `instead` has one use for each result."""

    kind: ClassVar[str] = "delete"
    site: str
    instead: tuple[Use, ...]

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Delete | None:
        sites = [op for op in space.ops if op.editable]
        if not sites:
            return None
        if semantic("delete", rng):
            passed = [(op, v) for op in sites for v in _passed(space, op)]
            if passed:
                op, value = rng.choice(passed)
                return Delete(op.site, (Use(value),))
        op = rng.choice(sites)
        uses = [draw_use(space, op.site, space.types[r], rng) for r in op.results]
        if any(u is None for u in uses):
            return None
        return Delete(op.site, tuple(u for u in uses if u))

    def perturb(self, space: Space, rng: random.Random) -> Delete | None:
        if not space.present(self.site):
            return None
        uses = [draw_use(space, self.site, space.types[r], rng) for r in space.by_site[self.site].results]
        return None if any(u is None for u in uses) else unless_same(self, Delete(self.site, tuple(filter(None, uses))))

    def words(self, name: Name) -> str:
        return f"{name(self.site)} is deleted; {' and '.join(use_words(u, name) for u in self.instead)} takes its place"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        if not space.present(self.site) or not space.by_site[self.site].editable:
            return False
        return all_fit(space, self.site, self.instead, space.by_site[self.site].results)

    def extend(self, space: Space) -> Space:
        return space.without(self.site)

    def apply(self, editor: Editor) -> None:
        editor.remove(self.site, self.instead)


def _passed(space: Space, op: SpaceOp) -> list[str]:
    """Operands that an op of one result can be passed by with."""
    if len(op.results) != 1:
        return []
    read = [op.operands[slot] for slot in op.slots]
    return [v for v in read if "|" not in v and space.types.get(v) == space.types[op.results[0]]]

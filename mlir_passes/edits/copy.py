"""Copy an op to another place, with operands drawn anew and its result wired into one later operand."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits.base import (
    Edit,
    Name,
    Use,
    all_fit,
    cloned,
    draw_use,
    fixed_stand_before,
    unless_same,
    use_words,
)
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.space import Space

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Copy(Edit):
    """Clone the op at `site` just before `before`, as site `<site>'<tag>`.

    operands has one use for each rewirable slot of the op. The first result goes to operand
    `into_slot` of the op at `into`, which has exactly its type, as mlir-mutate does.
    """

    kind: ClassVar[str] = "copy"
    site: str
    tag: int
    before: str
    operands: tuple[Use, ...]
    into: str
    into_slot: int

    @property
    def new_site(self) -> str:
        return f"{self.site.split(chr(39))[0]}'{self.tag}"

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Copy | None:
        sites = [op for op in space.ops if op.editable]
        if not sites:
            return None
        op = rng.choice(sites)
        at = rng.choice([i for i, o in enumerate(space.ops) if o.editable and o.name != "arith.constant"] or [0])
        wanted = space.types[op.results[0]]
        targets = [(o.site, s) for o in space.ops[at:] for s in o.slots if space.types.get(o.operands[s]) == wanted]
        if not targets:
            return None
        before = space.ops[at].site
        uses = [
            draw_use(space, before, space.types[op.operands[s]], rng) for s in op.slots if op.operands[s] in space.types
        ]
        if any(u is None for u in uses):
            return None
        into, slot = rng.choice(targets)
        return Copy(op.site, rng.randrange(1 << 31), before, tuple(u for u in uses if u), into, slot)

    def perturb(self, space: Space, rng: random.Random) -> Copy | None:
        """The same copy, wired into another place behind it."""
        if not self.applies(space):
            return None
        wanted = space.types[space.by_site[self.site].results[0]]
        behind = space.ops[next(i for i, o in enumerate(space.ops) if o.site == self.before) :]
        targets = [(o.site, s) for o in behind for s in o.slots if space.types.get(o.operands[s]) == wanted]
        into, slot = rng.choice(targets)
        return unless_same(self, replace(self, into=into, into_slot=slot))

    def words(self, name: Name) -> str:
        read = ", ".join(use_words(use, name) for use in self.operands)
        return f"{name(self.site)} is computed again, of {read}, for operand {self.into_slot} of {name(self.into)}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.new_site, self.into)

    def applies(self, space: Space) -> bool:
        sites = space.by_site
        if not all(map(space.present, (self.site, self.before, self.into))) or self.new_site in sites:
            return False
        op, into = sites[self.site], sites[self.into]
        if not op.editable or self.into_slot not in into.slots:
            return False
        if space.types.get(into.operands[self.into_slot]) != space.types[op.results[0]]:
            return False
        order = space.position
        wanted = [op.operands[s] for s in op.slots]
        if not fixed_stand_before(space, op, order[self.before]):
            return False
        return order[self.into] >= order[self.before] and all_fit(space, self.before, self.operands, wanted)

    def extend(self, space: Space) -> Space:
        new, types = cloned(space, self.site, self.new_site, self.operands)
        into = space.by_site[self.into]
        operands = (*into.operands[: self.into_slot], new.results[0], *into.operands[self.into_slot + 1 :])
        return space.insert(self.before, new, types).change(replace(into, operands=operands))

    def apply(self, editor: Editor) -> None:
        new = editor.clone(self.site, self.new_site, self.before, self.operands)
        target = editor.op(self.into)
        if target.operands[self.into_slot].type != new.results[0].type:
            raise EditDoesNotApply("edit", f"{self.site} has not the type of operand {self.into_slot} of {self.into}")
        target.operands[self.into_slot] = new.results[0]

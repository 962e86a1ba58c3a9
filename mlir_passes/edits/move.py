"""Move an op to another place in the step."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import plausible
from mlir_passes.edits.base import (
    Edit,
    Name,
    Use,
    all_fit,
    draw_use,
    fixed_stand_before,
    given,
    stands_before,
    unless_same,
    use_words,
)
from mlir_passes.space import GONE, Space, SpaceOp, TensorType

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Move(Edit):
    """Put the op at `site`, of one result, just before the op at `before`.

    Towards the front, `operands` has (slot, use) for each operand that is not there yet at the new place. Towards the
    back, what reads the result before the new place gets `instead`, which is there at the old place.
    """

    kind: ClassVar[str] = "move"
    site: str
    before: str
    operands: tuple[tuple[int, Use], ...] = ()
    instead: Use | None = None

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Move | None:
        ops = [op for op in space.ops if _may(op)]
        return _drawn(space, rng.choice(ops), rng) if ops else None

    def perturb(self, space: Space, rng: random.Random) -> Move | None:
        """The same op, moved to another place or given other values."""
        return unless_same(self, _drawn(space, space.by_site[self.site], rng)) if self.applies(space) else None

    def words(self, name: Name) -> str:
        read = [f"it reads {use_words(use, name)} as operand {slot}" for slot, use in self.operands]
        left = [f"what is before that reads {use_words(self.instead, name)}"] if self.instead else []
        return "; ".join([f"{name(self.site)} is done just before {name(self.before)}", *read, *left])

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        if not space.present(self.site) or not space.present(self.before) or self.site == self.before:
            return False
        op, to = space.by_site[self.site], space.position[self.before]
        if not _may(op):
            return False
        if to > space.position[self.site]:
            return self.instead is not None and all_fit(space, self.site, [self.instead], op.results)
        slots = [slot for slot, _ in self.operands]
        if self.instead is not None or set(slots) - set(op.slots) or not set(_missing(space, op, to)) <= set(slots):
            return False
        wanted = [op.operands[slot] for slot in slots]
        uses = [use for _, use in self.operands]
        return fixed_stand_before(space, op, to) and all_fit(space, self.before, uses, wanted)

    def extend(self, space: Space) -> Space:
        at, to = space.position[self.site], space.position[self.before]
        if self.instead is not None:
            value = space.by_site[self.site].results[0]
            space = space.renamed({value: self.instead.value}, after=at, until=to)
        operands, types = list(space.by_site[self.site].operands), dict[str, TensorType]()
        for slot, use in self.operands:
            operands[slot], found = given(space, use, space.types[operands[slot]])
            types.update(found)
        moved = replace(space.by_site[self.site], operands=tuple(operands))
        rest = replace(space, ops=tuple(op for op in space.ops if op.site != self.site))
        return rest.insert(self.before, moved, types)

    def apply(self, editor: Editor) -> None:
        editor.move(self.site, self.before, self.operands, self.instead)


def _may(op: SpaceOp) -> bool:
    return op.editable and len(op.results) == 1 and op.name != "arith.constant"


def _missing(space: Space, op: SpaceOp, to: int) -> list[int]:
    """Slots of `op` whose operand is not there before position `to`; one made for this op alone never is."""
    return [slot for slot in op.slots if "|" in op.operands[slot] or not stands_before(space, op.operands[slot], to)]


def _drawn(space: Space, op: SpaceOp, rng: random.Random) -> Move | None:
    at = space.position[op.site]
    near = range(max(0, at - plausible.MOVE_NEAR), min(len(space.ops), at + plausible.MOVE_NEAR + 1))
    places = range(len(space.ops)) if rng.random() < plausible.MOVE_FAR else near
    to = rng.choice([p for p in places if p not in (at, at + 1) and space.ops[p].name != GONE] or [at])
    before = space.ops[to].site
    if to > at:
        readers = [space.position[s] for s, _ in space.users.get(op.results[0], ()) if s]
        instead = draw_use(space, op.site, space.types[op.results[0]], rng)
        return Move(op.site, before, (), instead) if instead and any(p < to for p in readers) else None
    if to == at or not fixed_stand_before(space, op, to):
        return None
    wanted = [(slot, space.types[op.operands[slot]]) for slot in _missing(space, op, to)]
    uses = [(slot, draw_use(space, before, type_, rng)) for slot, type_ in wanted]
    found = tuple((slot, use) for slot, use in uses if use is not None)
    return Move(op.site, before, found) if found and len(found) == len(uses) else None

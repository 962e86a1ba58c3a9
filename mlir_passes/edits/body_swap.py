"""Swap the operands of an op of a body, or two values of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import bodies
from mlir_passes.edits.base import Edit, Name
from mlir_passes.space import Inner, Space, SpaceOp

if TYPE_CHECKING:
    from mlir_passes.repair import Editor

OPERANDS = -1


@dataclass(frozen=True)
class BodySwap(Edit):
    """In the linalg.generic at `site`, swap the last two operands of inner op `inner` (`other` -1), or exchange the
    results of the inner ops `inner` and `other`, which comes later, for all that comes behind `other`."""

    kind: ClassVar[str] = "body_swap"
    site: str
    inner: int
    other: int = OPERANDS

    @staticmethod
    def draw(space: Space, rng: random.Random) -> BodySwap | None:
        found = [edit for op in bodies.some(space, rng) for edit in _all(space, op)]
        return rng.choice(found) if found else None

    def perturb(self, space: Space, rng: random.Random) -> BodySwap | None:
        """Another swap in the same body; None where there is no other."""
        if not self.applies(space):
            return None
        others = [e for e in _all(space, space.by_site[self.site]) if e != self]
        return rng.choice(others) if others else None

    def words(self, name: Name) -> str:
        if self.other == OPERANDS:
            return f"in {name(self.site)}, the last two operands of inner op {self.inner} are swapped"
        return f"in {name(self.site)}, inner values {self.inner} and {self.other} are exchanged"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        return space.present(self.site) and self in _all(space, space.by_site[self.site])

    def extend(self, space: Space) -> Space:
        op = space.by_site[self.site]
        body = list(op.body)
        if self.other == OPERANDS:
            body[self.inner] = _turned(body[self.inner])
        else:
            names = {f"b{self.inner}": f"b{self.other}", f"b{self.other}": f"b{self.inner}"}
            for index in range(self.other + 1, len(body)):
                operands = tuple(names.get(n, n) for n in body[index].operands)
                body[index] = Inner(body[index].name, operands, body[index].type)
        return space.change(replace(op, body=tuple(body)))

    def apply(self, editor: Editor) -> None:
        body = editor.body(self.site)
        if self.other == OPERANDS:
            count = len(body.op(self.inner).operands)
            body.exchange_operands(self.inner, count - 2, count - 1)
        else:
            body.exchange(f"b{self.inner}", f"b{self.other}")


def _turned(inner: Inner) -> Inner:
    *first, one, two = inner.operands
    return Inner(inner.name, (*first, two, one), inner.type)


def _all(space: Space, op: SpaceOp) -> list[BodySwap]:
    """Every swap in a body that changes something and leaves accumulators alone."""
    if not bodies.editable(op):
        return []
    bound = bodies.bound(op)
    free = [i for i in bodies.indices(op) if f"b{i}" not in bound]
    operands = [BodySwap(op.site, i) for i in free if _may_turn(op.body[i])]
    pairs = [(i, j) for i in free for j in free if i < j and op.body[i].type == op.body[j].type]
    read = {name: n for n, inner in enumerate(op.body) for name in inner.operands}  # by whom last
    late = [(i, j) for i, j in pairs if max(read.get(f"b{i}", 0), read.get(f"b{j}", 0)) > j]
    return [*operands, *(BodySwap(op.site, i, j) for i, j in late)]


def _may_turn(inner: Inner) -> bool:
    known = any(inner.name in family for family in bodies.FAMILIES) or inner.name in ("arith.select", "math.powf")
    return known and not bodies.commutes(inner)

"""Drop an op of a body: its result is one of its operands, or a block argument, instead."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import bodies, plausible
from mlir_passes.edits.base import Edit, Name, unless_same
from mlir_passes.space import GONE, Space, SpaceOp

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class BodyDrop(Edit):
    """In the linalg.generic at `site`, let all that reads the result of inner op `inner` read `by` instead.

    by: "a1" (block argument 1), "b0" (result of inner op 0), or a scalar of the step that the inner op reads; of the
    same type. The op that feeds an accumulator may only be dropped for that accumulator: then nothing is accumulated.
    """

    kind: ClassVar[str] = "body_drop"
    site: str
    inner: int
    by: str

    @staticmethod
    def draw(space: Space, rng: random.Random) -> BodyDrop | None:
        places = [(op, i) for op in bodies.some(space, rng) for i in bodies.indices(op) if _choices(space, op, i)]
        return _drawn(space, *rng.choice(places), rng) if places else None

    def perturb(self, space: Space, rng: random.Random) -> BodyDrop | None:
        """The same op, dropped for another value."""
        if not self.applies(space):
            return None
        return unless_same(self, _drawn(space, space.by_site[self.site], self.inner, rng))

    def words(self, name: Name) -> str:
        return f"in {name(self.site)}, inner op {self.inner} is dropped: {inner_words(self.by, name)} takes its place"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def applies(self, space: Space) -> bool:
        return space.present(self.site) and self.by in _choices(space, space.by_site[self.site], self.inner)

    def extend(self, space: Space) -> Space:
        op = space.by_site[self.site]
        gone, old = f"b{self.inner}", op.body[self.inner]
        body = [replace(i, operands=tuple(self.by if n == gone else n for n in i.operands)) for i in op.body]
        body[self.inner] = replace(old, name=GONE)
        return space.change(replace(op, body=tuple(body)))

    def apply(self, editor: Editor) -> None:
        body = editor.body(self.site, self.by)
        body.op(self.inner)
        body.replace(f"b{self.inner}", body.value(self.by))


def inner_words(value: str, name: Name) -> str:
    """What a value of a body is called: "block argument 1", "inner value 0", or as the step calls it."""
    if value[1:].isdigit():
        return f"{'block argument' if value[0] == 'a' else 'inner value'} {value[1:]}"
    return name(value)


def _choices(space: Space, op: SpaceOp, index: int) -> list[str]:
    found = bodies.inner(op, index)
    if found is None or not bodies.editable(op):
        return []
    bound = bodies.bound(op)
    names = list(dict.fromkeys((*found.operands, *bodies.arguments(op))))
    if f"b{index}" in bound:
        names = [n for n in found.operands if n in bound and n[0] == "a"] if _feeds_result(op, index) else []
    else:
        names = [n for n in names if n not in bound]
    return [n for n in names if n and bodies.type_of(space, op, n) == found.type and _is_there(op, n)]


def _feeds_result(op: SpaceOp, index: int) -> bool:
    """Whether the body yields an inner op's result and nothing else reads it."""
    readers = [i for i in op.body if f"b{index}" in i.operands]
    return len(readers) == 1 and readers[0] is op.body[-1] and readers[0].operands.count(f"b{index}") == 1


def _is_there(op: SpaceOp, name: str) -> bool:
    return not (name[0] == "b" and name[1:].isdigit()) or op.body[int(name[1:])].name != GONE


def _drawn(space: Space, op: SpaceOp, index: int, rng: random.Random) -> BodyDrop:
    names = _choices(space, op, index)
    own = [n for n in names if n in op.body[index].operands]
    return BodyDrop(op.site, index, rng.choice(own if own and rng.random() < plausible.BODY_OWN_OPERAND else names))

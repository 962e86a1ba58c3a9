"""Skip what lies between a value and one that it is computed from: a residual branch, a layer, an update."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import plausible
from mlir_passes.edits.base import Edit, Name, Use, draw_how, unless_same, use_words
from mlir_passes.space import Space, source

if TYPE_CHECKING:
    from mlir_passes.repair import Editor

_TRIED = 8  # not every value has an ancestor that can take its place, and not every ancestor is far enough


@dataclass(frozen=True)
class Skip(Edit):
    """Give all that reads `value` an earlier value that `value` is computed from, by a contraction or by several ops.

    The name of `value` keeps its meaning: a later edit may read it.
    """

    kind: ClassVar[str] = "skip"
    far: ClassVar[bool] = True  # whether one value is computed from another, the ops between them decide
    value: str
    instead: Use

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Skip | None:
        values = [r for op in space.ops if op.editable and len(op.results) == 1 for r in op.results if r in space.users]
        if not values:
            return None
        resized = rng.random() < plausible.SKIP_RESIZED
        for value in rng.sample(values, min(_TRIED, len(values))):
            found = _drawn(space, value, resized, rng)
            if found is not None:
                return found
        return None

    def perturb(self, space: Space, rng: random.Random) -> Skip | None:
        """The same value, given another of its ancestors."""
        if not self.applies(space):
            return None
        resized = self.instead.value not in _alike(space, self.value)
        return unless_same(self, _drawn(space, self.value, resized, rng))

    def words(self, name: Name) -> str:
        return f"what computes {name(self.value)} is skipped: its readers get {use_words(self.instead, name)}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.value.partition("#")[0],)

    def applies(self, space: Space) -> bool:
        if not space.alive(self.value) or not space.alive(self.instead.value) or space.op_of(self.value) is None:
            return False
        if space.types[self.value].element != space.types[self.instead.value].element:
            return False
        return _is_ancestor(space, self.value, self.instead.value)

    def extend(self, space: Space) -> Space:
        return space.renamed({self.value: self.instead.value}, after=space.made_at[self.value])

    def apply(self, editor: Editor) -> None:
        editor.bypass(self.value, self.instead)


def _drawn(space: Space, value: str, resized: bool, rng: random.Random) -> Skip | None:
    same = _alike(space, value)
    found = [v for v in _ancestors(space, value) if (v not in same) == resized]
    if resized:
        found = rng.sample(found, min(_TRIED, len(found)))
    dead = {v: _between(space, space.made_at[value], v) for v in found}
    weights = {v: float(n) for v, n in dead.items() if n is not None}
    if not weights:
        return None
    weighed = plausible.semantic("skip", rng) and any(weights.values())
    instead = plausible.pick(weights, rng) if weighed else rng.choice(list(weights))
    return Skip(value, draw_how(space, instead, space.types[value], rng))


def _alike(space: Space, value: str) -> set[str]:
    return {v for v, t in space.types.items() if t == space.types[value]}


def _ancestors(space: Space, value: str) -> list[str]:
    """Values of the same element type that `value` is computed from."""
    at, element = space.made_at[value], space.types[value].element
    needed = space.ancestry[at]
    ops = [op for index, op in enumerate(space.ops[:at]) if needed >> index & 1]
    names = [*(n for op in (*ops, space.ops[at]) for n in map(source, op.operands) if n in space.args)]
    names += [r for op in ops for r in op.results]
    return [v for v in dict.fromkeys(names) if space.alive(v) and space.types[v].element == element]


def _is_ancestor(space: Space, value: str, other: str) -> bool:
    at, made = space.made_at[value], space.made_at[other]
    if made >= at or (made >= 0 and not space.ancestry[at] >> made & 1):
        return False
    return _between(space, at, other) is not None


def _between(space: Space, at: int, other: str) -> int | None:
    """Iterations of the ops that lead from `other` to the op at `at`; None for a few ops without a reduction."""
    made = space.made_at[other]
    path = _path(space, at, other) if made < 0 else _through(space, made, at)
    ops = [space.ops[i] for i in range(max(made, -1) + 1, at + 1) if path >> i & 1]
    if not ops:
        return None
    if not any("r" in op.loops for op in ops) and len(ops) < plausible.SKIP_LEAST_OPS:
        return None
    return sum(op.volume for op in ops)


def _through(space: Space, made: int, at: int) -> int:
    """Bit set of the ops that need op `made` and that op `at` needs."""
    bits = 0
    for index in range(made + 1, at + 1):
        if space.ancestry[at] >> index & 1 and space.ancestry[index] >> made & 1:
            bits |= 1 << index
    return bits


def _path(space: Space, at: int, argument: str) -> int:
    """Bit set of the ops that read `argument`, directly or not, and that op `at` needs."""
    readers = [space.position[site] for site, _ in space.users.get(argument, ()) if site]
    direct = sum(1 << p for p in dict.fromkeys(readers))
    return sum(1 << i for i in range(at + 1) if space.ancestry[at] >> i & 1 and space.ancestry[i] & direct)

"""Scale a value by a constant, for all that read it or for one reader."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import plausible
from mlir_passes.edits.base import Edit, Name, is_float
from mlir_passes.space import Space, part

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Scale(Edit):
    """Multiply `value`, a float tensor, by `factor` for everything that reads it; with `user`, for its operand `slot`
    only, which reads `value`."""

    kind: ClassVar[str] = "scale"
    value: str
    factor: float
    user: str = ""
    slot: int = -1

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Scale | None:
        value = _likely(space, rng) if plausible.semantic("scale", rng) else None
        if value is None:
            values = [v for v in space.made_at if is_float(space, v) and space.alive(v) and v in space.users]
            value = rng.choice(values) if values else None
        if value is None:
            return None
        readers = _readers(space, value)
        factor = plausible.draw_factor(rng)
        if readers and rng.random() < plausible.SCALE_ONE_USER:
            return Scale(value, factor, *rng.choice(readers))
        return Scale(value, factor)

    def perturb(self, space: Space, rng: random.Random) -> Scale | None:
        """The same value, scaled by a little more or less."""
        return replace(self, factor=plausible.near_factor(self.factor, rng)) if self.applies(space) else None

    def words(self, name: Name) -> str:
        where = f" where {name(self.user)} reads it" if self.user else ""
        return f"{name(self.value)} is scaled by {self.factor:g}{where}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.user,) if self.user else (self.value.partition("#")[0],)

    def applies(self, space: Space) -> bool:
        if not (space.alive(self.value) and is_float(space, self.value)):
            return False
        return not self.user or (self.user, self.slot) in _readers(space, self.value)

    def extend(self, space: Space) -> Space:
        if not self.user:
            return space
        op = space.by_site[self.user]
        name = part(self.value, space.types[op.operands[self.slot]])
        operands = (*op.operands[: self.slot], name, *op.operands[self.slot + 1 :])
        return space.change(replace(op, operands=operands), {name: space.types[op.operands[self.slot]]})

    def apply(self, editor: Editor) -> None:
        if self.user:
            editor.scale_operand(self.user, self.slot, self.factor)
        else:
            editor.scale(self.value, self.factor)


def _readers(space: Space, value: str) -> list[tuple[str, int]]:
    """Operands that may be scaled for themselves."""
    return [(s, i) for s, i in space.users.get(value, ()) if s and i in space.by_site[s].slots]


def _likely(space: Space, rng: random.Random) -> str | None:
    """A value of an update chain that has the parameter's shape (a gradient, an update), a weight, or a constant."""
    found = {kind: _targets(space, kind) for kind in plausible.SCALE_TARGET}
    weights = {kind: w for kind, w in plausible.SCALE_TARGET.items() if found[kind]}
    return rng.choice(found[plausible.pick(weights, rng)]) if weights else None


def _targets(space: Space, kind: str) -> list[str]:
    if kind == "gradient":
        updates = ((p, space.by_site[s]) for p in space.parameters for s in p.update if space.present(s))
        names = [op.results[0] for p, op in updates if space.types.get(op.results[0]) == space.types[p.arg]]
    elif kind == "weight":
        names = [p.arg for p in space.parameters] or list(space.args)
    else:
        names = [o.results[0] for o in space.ops if o.name == "arith.constant"]
    return [v for v in dict.fromkeys(names) if is_float(space, v) and space.alive(v) and v in space.users]

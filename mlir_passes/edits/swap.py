"""Swap two values of one type: from the later one on, what read the one reads the other."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits.base import Edit, Name
from mlir_passes.space import Space

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Swap(Edit):
    """Exchange the readers of `one` and of `two`, which is made later, behind the op that makes `two`.

    What reads `one` before that place, or to make `two`, still does. Both names keep their meaning.
    """

    kind: ClassVar[str] = "swap"
    one: str
    two: str

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Swap | None:
        values = [v for v in space.made_at if space.made_at[v] >= 0 and space.alive(v)]
        rng.shuffle(values)
        for two in values[:_TRIED]:
            others = _partners(space, two)
            if others:
                return Swap(rng.choice(others), two)
        return None

    def perturb(self, space: Space, rng: random.Random) -> Swap | None:
        """The same later value, exchanged with another one."""
        others = [v for v in _partners(space, self.two) if v != self.one] if self.applies(space) else []
        return replace(self, one=rng.choice(others)) if others else None

    def words(self, name: Name) -> str:
        return f"{name(self.one)} and {name(self.two)} are exchanged for what comes behind both"

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(v.partition("#")[0] for v in (self.one, self.two))

    def applies(self, space: Space) -> bool:
        if not (space.alive(self.one) and space.alive(self.two)) or space.types[self.one] != space.types[self.two]:
            return False
        return space.made_at[self.one] < space.made_at[self.two]

    def extend(self, space: Space) -> Space:
        return space.renamed({self.one: self.two, self.two: self.one}, after=space.made_at[self.two])

    def apply(self, editor: Editor) -> None:
        editor.exchange(self.one, self.two)


_TRIED = 16


def _partners(space: Space, two: str) -> list[str]:
    """Values before `two` of its type such that one of both is read behind it: else nothing would change."""
    at = space.made_at[two]
    found = [v for v, t in space.types.items() if t == space.types[two] and space.made_at.get(v, at) < at]
    return [v for v in found if space.alive(v) and (_read_behind(space, v, at) or _read_behind(space, two, at))]


def _read_behind(space: Space, value: str, at: int) -> bool:
    return any(not site or space.position[site] > at for site, _ in space.users.get(value, ()))

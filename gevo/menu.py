"""A space whose edits are those of a list: what is searched where every variant was evaluated before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from mlir_passes.edits import Edit
from mlir_passes.edits.base import Name
from mlir_passes.space import Space

if TYPE_CHECKING:
    from mlir_passes.repair import Editor


@dataclass(frozen=True)
class Listed(Edit):
    """An edit of a menu: the edit itself in all but two things. It applies once, and is perturbed into another one
    of the list. Its JSON form is the edit's own."""

    edit: Edit

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  the only edit that has any kind
        return self.edit.kind

    @property
    def far(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.edit.far

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Listed | None:
        return rng.choice(space.free()) if isinstance(space, Menu) and space.free() else None

    def perturb(self, space: Space, rng: random.Random) -> Listed | None:
        others = [e for e in space.free(self.kind) if e != self] if isinstance(space, Menu) else []
        return rng.choice(others) if others else None

    def words(self, name: Name) -> str:
        return self.edit.words(name)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.edit.sites

    def applies(self, space: Space) -> bool:
        return not (isinstance(space, Menu) and self in space.taken) and self.edit.applies(space)

    def extend(self, space: Space) -> Space:
        space = self.edit.extend(space)
        return replace(space, taken=space.taken | {self}) if isinstance(space, Menu) else space

    def apply(self, editor: Editor) -> None:
        self.edit.apply(editor)

    def to_json(self) -> dict[str, Any]:
        return self.edit.to_json()


@dataclass(frozen=True)
class Menu(Space):
    """A space in which only `entries` are drawn, each at most once in a genome; `taken` are those that a genome has."""

    entries: tuple[Listed, ...] = ()
    taken: frozenset[Listed] = frozenset()

    def free(self, kind: str = "") -> list[Listed]:
        """The entries that are not taken; of one kind if it is given."""
        return [e for e in self.entries if e not in self.taken and kind in ("", e.kind)]

    def draw(self, kind: str, rng: random.Random) -> Listed | None:
        """A random free entry of a kind, or None."""
        free = self.free(kind)
        return rng.choice(free) if free else None


def menu(space: Space, edits: Sequence[Edit]) -> Menu:
    """`space` with these edits for all that can be drawn."""
    plain = {f.name: getattr(space, f.name) for f in fields(Space)}
    return Menu(**plain, entries=tuple(Listed(e) for e in edits))


def entry(space: Space, edit: Edit) -> Edit:
    """The entry of a menu that is this edit; the edit itself in another space, or if the menu does not have it."""
    return Listed(edit) if isinstance(space, Menu) and Listed(edit) in space.entries else edit

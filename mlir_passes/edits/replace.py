"""Replace an op: its result is computed by a copy of another op instead."""

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
    cloned,
    draw_use,
    fixed_stand_before,
    use_words,
)
from mlir_passes.edits.plausible import FILL, HOW, SAME_TYPE, pick
from mlir_passes.space import Space, SpaceOp

if TYPE_CHECKING:
    from mlir_passes.repair import Editor

_TRIED = 8


@dataclass(frozen=True)
class Replace(Edit):
    """Put a copy of the op at `by`, as site `<by>'<tag>`, in the place of the op at `site`, which is removed.

    operands has one use for each rewirable slot of the copy. how, fill: how its result is made to fit, see `Use`.
    """

    kind: ClassVar[str] = "replace"
    site: str
    by: str
    tag: int
    operands: tuple[Use, ...]
    how: str = "pad"
    fill: float = 0.0

    @property
    def new_site(self) -> str:
        return f"{self.by.split(chr(39))[0]}'{self.tag}"

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Replace | None:
        ops = [op for op in space.ops if _may(op)]
        return _drawn(space, rng.choice(ops), rng) if ops else None

    def perturb(self, space: Space, rng: random.Random) -> Replace | None:
        """The same op, replaced by another one."""
        return _drawn(space, space.by_site[self.site], rng) if self.applies(space) else None

    def words(self, name: Name) -> str:
        read = ", ".join(use_words(use, name) for use in self.operands)
        return f"{name(self.site)} is computed as {name(self.by)} is, of {read}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site, self.new_site)

    def applies(self, space: Space) -> bool:
        if not (space.present(self.site) and space.present(self.by)) or self.new_site in space.by_site:
            return False
        op, by = space.by_site[self.site], space.by_site[self.by]
        if not _may(op) or not _may(by) or self.site == self.by:
            return False
        if space.types[op.results[0]].element != space.types[by.results[0]].element:
            return False
        wanted = [by.operands[s] for s in by.slots]
        return fixed_stand_before(space, by, space.position[self.site]) and all_fit(
            space, self.site, self.operands, wanted
        )

    def extend(self, space: Space) -> Space:
        new, types = cloned(space, self.by, self.new_site, self.operands)
        return space.insert(self.site, new, types).without(self.site)

    def apply(self, editor: Editor) -> None:
        editor.clone(self.by, self.new_site, self.site, self.operands)
        editor.remove(self.site, [Use(f"{self.new_site}#0", self.how, self.fill)])


def _may(op: SpaceOp) -> bool:
    return op.editable and len(op.results) == 1


def _drawn(space: Space, op: SpaceOp, rng: random.Random) -> Replace | None:
    by = _other(space, op, rng)
    if by is None:
        return None
    wanted = space.types[op.results[0]]
    kept = [source for source in (op.operands[s] for s in op.slots) if "|" not in source]
    uses: list[Use] = []
    for slot in by.slots:
        type_ = space.types[by.operands[slot]]
        own = next((v for v in kept if space.types[v] == type_), None)
        use = Use(own) if own is not None else draw_use(space, op.site, type_, rng)
        if use is None:
            return None
        kept = [v for v in kept if v != own] or kept
        uses.append(use)
    fits = space.types[by.results[0]] == wanted
    how, fill = ("pad", 0.0) if fits else (pick(HOW, rng), pick(FILL, rng))
    return Replace(op.site, by.site, rng.randrange(1 << 31), tuple(uses), how, fill)


def _other(space: Space, op: SpaceOp, rng: random.Random) -> SpaceOp | None:
    """Another op whose result has the element type of this one's: mostly the whole type, and operands of its types."""
    wanted = space.types[op.results[0]]
    others = [o for o in space.ops if _may(o) and o.site != op.site]
    others = [o for o in others if space.types[o.results[0]].element == wanted.element]
    alike = [o for o in others if space.types[o.results[0]] == wanted]
    if plausible.semantic("replace", rng):
        reads = _types(space, op)
        alike = [o for o in alike if o.slots and all(t in reads for t in _types(space, o))] or alike
    chosen = alike if alike and rng.random() < SAME_TYPE else others
    at = space.position[op.site]
    sample = rng.sample(chosen, min(_TRIED, len(chosen)))
    return next((o for o in sample if not _same(o, op) and fixed_stand_before(space, o, at)), None)


def _types(space: Space, op: SpaceOp) -> list[object]:
    return [space.types[op.operands[s]] for s in op.slots]


def _same(one: SpaceOp, two: SpaceOp) -> bool:
    """Whether two ops compute the same of their operands, as far as the space knows."""
    blank = {"site": "", "operands": (), "results": (), "where": ""}
    return replace(one, **blank) == replace(two, **blank) and one.name != "arith.constant"

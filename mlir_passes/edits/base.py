"""The edit family: one frozen dataclass a kind, one file each, one literal table.

An edit is plain data that names sites and values of the base module (`space.json`). Drawing and
checking need the space only; `apply` is called in a worker with an `Editor` over real IR.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mlir_passes.edits.plausible import FILL, HOW, SAME_TYPE, pick
from mlir_passes.space import Space, SpaceOp, TensorType, captures, part, source

if TYPE_CHECKING:
    from mlir_passes.repair import Editor

KINDS: dict[str, str] = {
    "delete": "mlir_passes.edits.delete:Delete",
    "copy": "mlir_passes.edits.copy:Copy",
    "rewire": "mlir_passes.edits.rewire:Rewire",
    "move": "mlir_passes.edits.move:Move",
    "replace": "mlir_passes.edits.replace:Replace",
    "swap": "mlir_passes.edits.swap:Swap",
    "scale": "mlir_passes.edits.scale:Scale",
    "cast": "mlir_passes.edits.cast:Cast",
    "shrink": "mlir_passes.edits.shrink:Shrink",
    "skip": "mlir_passes.edits.skip:Skip",
    "body_drop": "mlir_passes.edits.body_drop:BodyDrop",
    "body_swap": "mlir_passes.edits.body_swap:BodySwap",
    "body_replace": "mlir_passes.edits.body_replace:BodyReplace",
    "body_scale": "mlir_passes.edits.body_scale:BodyScale",
}
RESIZE = tuple(HOW)
FILLS = tuple(FILL)  # mlir-mutate pads with 1 in its last commit, with 0 before: both are choices here


@dataclass(frozen=True)
class Use:
    """A value put where another type may be wanted, with the repair choices that make it fit.

    how: "pad" (centred crop and pad), "broadcast" (like pad, but dims of 1 are repeated),
    "reshape" (row-major, equal element counts; falls back to pad). fill: what padding holds.
    """

    value: str
    how: str = "pad"
    fill: float = 0.0


Name = Callable[[str], str]  # what a reader calls a site ("op17") or a value ("op17#0", "arg3")


class Edit(ABC):
    """One change of the IR. Members are frozen dataclasses; their fields are their JSON form."""

    kind: ClassVar[str]
    far: ClassVar[bool] = False  # whether it may depend on edits of ops that it does not name

    @staticmethod
    @abstractmethod
    def draw(space: Space, rng: random.Random) -> Edit | None:
        """A random edit that applies to `space`, or None if this draw found none."""

    @abstractmethod
    def perturb(self, space: Space, rng: random.Random) -> Edit | None:
        """An edit near this one, of the same kind at the same site, that applies to `space`; None if this draw found
        none."""

    @abstractmethod
    def words(self, name: Name) -> str:
        """What it does, as a sentence without its full stop."""

    @property
    @abstractmethod
    def sites(self) -> tuple[str, ...]:
        """The sites that are not what they were once it was applied; for a changed argument, its name."""

    @abstractmethod
    def applies(self, space: Space) -> bool:
        """Whether every site and value named exists in `space`, dominance holds and element types agree."""

    def extend(self, space: Space) -> Space:
        """The space as later edits see it: with what this edit inserts, without what it deletes."""
        return space

    @abstractmethod
    def apply(self, editor: Editor) -> None:
        """Change the IR; raises EditDoesNotApply."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


E = TypeVar("E", bound=Edit)


def unless_same(edit: E, near: E | None) -> E | None:
    """`near`, an edit drawn near `edit`; None where it is `edit` itself."""
    return None if near == edit else near


def use_words(use: Use, name: Name) -> str:
    """What is put in: "op3#0, padded with 0 where it is smaller"."""
    how = {"pad": f"cropped or padded with {use.fill:g}", "broadcast": "cropped or repeated", "reshape": "reshaped"}
    return f"{name(use.value)} ({how[use.how]} where shapes differ)"


def edit_class(kind: str) -> type[Edit]:
    """The class of an edit kind; raises ValueError naming the known kinds."""
    if kind not in KINDS:
        raise ValueError(f"unknown edit kind {kind!r}; known: {', '.join(KINDS)}")
    module, _, name = KINDS[kind].partition(":")
    return getattr(import_module(module), name)


def edit_from_json(data: Mapping[str, Any]) -> Edit:
    """The edit that `to_json` wrote."""
    fields = {k: _plain(v) for k, v in data.items() if k != "kind"}
    return edit_class(data["kind"])(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_plain(v) for v in value)
    if isinstance(value, dict):
        return Use(**value)
    return value


def all_fit(space: Space, site: str, uses: Sequence[Use], wanted: Sequence[str]) -> bool:
    """Whether there is one use for each value of `wanted`, which dominates `site` and has the same element type."""
    known = set(space.values_before(site))
    return len(uses) == len(wanted) and all(
        use.value in known and space.types[use.value].element == space.types[name].element
        for use, name in zip(uses, wanted, strict=True)
    )


def draw_use(space: Space, site: str, wanted: TensorType, rng: random.Random, exclude: str = "") -> Use | None:
    """A random value that dominates `site` and can be made a `wanted`: same type first, else resizable."""
    values = [v for v in space.values_before(site) if v != exclude and space.types[v].element == wanted.element]
    if not values:
        return None
    same = [v for v in values if space.types[v].shape == wanted.shape]
    return draw_how(space, rng.choice(same if same and rng.random() < SAME_TYPE else values), wanted, rng)


def draw_how(space: Space, value: str, wanted: TensorType, rng: random.Random) -> Use:
    """A use of `value` where a `wanted` is read; how it is made to fit is drawn if its shape is another."""
    return Use(value) if space.types[value].shape == wanted.shape else Use(value, pick(HOW, rng), pick(FILL, rng))


def given(space: Space, use: Use, wanted: TensorType) -> tuple[str, dict[str, TensorType]]:
    """The name of an operand that is `use` made a `wanted`, and the types that name needs."""
    if space.types[use.value] == wanted:
        return use.value, {}
    name = part(use.value, wanted)
    return name, {name: wanted}


def is_float(space: Space, value: str) -> bool:
    """Whether `value` is a tensor of floating-point numbers."""
    return value in space.types and space.types[value].element in ("f16", "bf16", "f32", "f64")


def stands_before(space: Space, name: str, at: int) -> bool:
    """Whether an operand is there before position `at`; storage is, for it is made anew where it is wanted."""
    made = space.made_at.get(name, len(space.ops))
    return made < at or (made < len(space.ops) and space.ops[made].name == "tensor.empty")


def fixed_stand_before(space: Space, op: SpaceOp, at: int) -> bool:
    """Whether all that `op` reads beside its slots, also from within its body, is there before position `at`."""
    fixed = [name for i, name in enumerate(op.operands) if i not in op.slots]
    return all(stands_before(space, name, at) for name in (*map(source, fixed), *captures(op)))


def cloned(space: Space, site: str, new_site: str, uses: Sequence[Use]) -> tuple[SpaceOp, dict[str, TensorType]]:
    """A copy of the op at `site` that reads `uses` in its slots, and the types of what it makes and reads."""
    old = space.by_site[site]
    operands, types = list(old.operands), dict[str, TensorType]()
    for slot, use in zip(old.slots, uses, strict=True):
        operands[slot], found = given(space, use, space.types[operands[slot]])
        types.update(found)
    results = tuple(f"{new_site}#{i}" for i in range(len(old.results)))
    types.update({n: space.types[r] for n, r in zip(results, old.results, strict=True) if r in space.types})
    return replace(old, site=new_site, operands=tuple(operands), results=results, editable=True), types

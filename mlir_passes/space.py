"""What can be varied in a base module, as plain data: the search reads this and never holds IR."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlir_passes.edits.base import Edit


@dataclass(frozen=True)
class TensorType:
    """A static ranked tensor: shape and element type as MLIR spells it ("f32")."""

    shape: tuple[int, ...]
    element: str

    @property
    def bytes(self) -> int:
        """Size in the arena; i1 takes a byte an element."""
        bits = 64 if self.element == "index" else int(self.element.lstrip("bfisu"))
        count = 1
        for dim in self.shape:
            count *= dim
        return count * max(1, bits // 8)


GONE = "deleted"


@dataclass(frozen=True)
class Inner:
    """One op in the body of a linalg.generic.

    name: as MLIR spells it, with the predicate of a comparison ("arith.cmpf ogt"). operands: "a0" is the first block
    argument, "b1" the result of the body's second op, another name a value of the step. type: its result's, "" if none.
    """

    name: str
    operands: tuple[str, ...]
    type: str


@dataclass(frozen=True)
class SpaceOp:
    """One op of the step. operands holds value names ("arg3", "op17#0"); slots are the operand
    indices that may be rewired (destinations that are only written to are left out). `name` is
    `GONE` once an edit deleted the op: its values then mean what replaced them. where: the user's line that it
    came from ("model.py:17"), "" where the frontend does not know.

    A linalg op has loops ("ppr": two parallel ones, one reduction) and their sizes; with a reduction among them, the
    maps through which it reads and writes its operands (see `edits.loops`); a linalg.generic has its body, other ops
    with regions what they read of the step `within` these. An operand that an edit resized, cut or scaled for this op
    alone is named after its value: "arg3|16x4", see `source`."""

    site: str
    name: str
    operands: tuple[str, ...]
    slots: tuple[int, ...]
    results: tuple[str, ...]
    editable: bool
    where: str = ""
    loops: str = ""
    sizes: tuple[int, ...] = ()
    maps: tuple[str, ...] = ()
    body: tuple[Inner, ...] = ()
    within: tuple[str, ...] = ()

    @property
    def volume(self) -> int:
        """Iterations of all its loops; 0 for what is no linalg op."""
        return math.prod(self.sizes) if self.name.startswith("linalg.") else 0


@dataclass(frozen=True)
class Activation:
    """A value that lives from the forward part to the backward part of the step."""

    value: str
    bytes: int
    first_use: str
    last_use: str


@dataclass(frozen=True)
class Parameter:
    """A state leaf and the ops from which its new value alone is made (its update chain, last op last)."""

    arg: str
    name: str
    bytes: int
    result: int
    update: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """Ops in dominance order, the type of every value, arguments, activations and parameters of a base module.

    storage: element types that its values may be rounded to, of the workload's numerics rule."""

    ops: tuple[SpaceOp, ...]
    types: dict[str, TensorType]
    args: tuple[str, ...]
    returns: tuple[str, ...]
    activations: tuple[Activation, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    storage: tuple[str, ...] = ("f32",)

    @cached_property
    def position(self) -> dict[str, int]:
        """Where in `ops` the op at a site stands."""
        return {op.site: i for i, op in enumerate(self.ops)}

    @cached_property
    def made_at(self) -> dict[str, int]:
        """Where in `ops` the maker of a value stands; -1 for arguments. Scalars have makers too."""
        made = dict.fromkeys(self.args, -1)
        for index, op in enumerate(self.ops):
            made.update(dict.fromkeys(op.results, index))
        return made

    @cached_property
    def users(self) -> dict[str, list[tuple[str, int]]]:
        """Operands that read a value: (site, operand index), index -1 for reads within a body; site "" for results of
        the step."""
        found: dict[str, list[tuple[str, int]]] = {}
        for op in self.ops:
            for index, name in enumerate(op.operands):
                found.setdefault(source(name), []).append((op.site, index))
            for name in captures(op):
                found.setdefault(name, []).append((op.site, -1))
        for index, name in enumerate(self.returns):
            found.setdefault(source(name), []).append(("", index))
        return found

    @cached_property
    def ancestry(self) -> list[int]:
        """For each op a bit set of the positions of ops that it needs, its own among them."""
        needs: list[int] = []
        for index, op in enumerate(self.ops):
            bits = 1 << index
            for name in (*map(source, op.operands), *captures(op)):
                made = self.made_at.get(name, -1)
                if 0 <= made < index:
                    bits |= needs[made]
            needs.append(bits)
        return needs

    @cached_property
    def by_site(self) -> dict[str, SpaceOp]:
        return {op.site: op for op in self.ops}

    def after(self, edits: Iterable[Edit]) -> Space:
        """The space as it is once `edits` were applied, each of which applies."""
        space = self
        for edit in edits:
            space = edit.extend(space)
        return space

    def insert(self, before: str, op: SpaceOp, types: dict[str, TensorType]) -> Space:
        """This space with `op` placed just before the op at site `before`."""
        at = next(i for i, o in enumerate(self.ops) if o.site == before)
        return replace(self, ops=(*self.ops[:at], op, *self.ops[at:]), types={**self.types, **types})

    def without(self, site: str) -> Space:
        """This space after the op at `site` was deleted."""
        gone = replace(self.by_site[site], name=GONE, operands=(), slots=(), editable=False)
        return replace(self, ops=tuple(gone if o.site == site else o for o in self.ops))

    def present(self, site: str) -> bool:
        """Whether there is an op at `site`."""
        return site in self.by_site and self.by_site[site].name != GONE

    def alive(self, value: str) -> bool:
        """Whether `value` is a tensor that is an argument or the result of an op that is there."""
        made = self.made_at.get(value)
        return made is not None and value in self.types and (made < 0 or self.ops[made].name != GONE)

    def op_of(self, value: str) -> SpaceOp | None:
        """The op that makes `value`, None for an argument."""
        made = self.made_at[value]
        return None if made < 0 else self.ops[made]

    def change(self, op: SpaceOp, types: Mapping[str, TensorType] | None = None) -> Space:
        """This space with `op` in the place of the op at its site."""
        return replace(
            self, ops=tuple(op if o.site == op.site else o for o in self.ops), types={**self.types, **(types or {})}
        )

    def renamed(self, names: Mapping[str, str], after: int, until: int | None = None) -> Space:
        """This space where ops behind position `after` (and before `until`) read other values; without `until` also
        the step's results. Where the other value has another type, it is resized."""
        types = dict(self.types)

        def new(name: str) -> str:
            there = names.get(source(name))
            if there is None:
                return name
            if name in types and types[name] != types.get(there):
                made = part(there, types[name])
                types[made] = types[name]
                return made
            return there

        def read(op: SpaceOp) -> SpaceOp:
            if not any(source(name) in names for name in (*op.operands, *captures(op))):
                return op
            body = tuple(replace(i, operands=tuple(names.get(n, n) for n in i.operands)) for i in op.body)
            within = tuple(names.get(name, name) for name in op.within)
            return replace(op, operands=tuple(map(new, op.operands)), body=body, within=within)

        end = len(self.ops) if until is None else until
        ops = tuple(read(op) if after < index < end else op for index, op in enumerate(self.ops))
        returns = self.returns if until is not None else tuple(map(new, self.returns))
        return replace(self, ops=ops, types=types, returns=returns)

    def values_before(self, site: str) -> list[str]:
        """Names of the tensor values that dominate the op at `site`, in order."""
        names, before = self._values
        return names[: before[site]]

    @cached_property
    def _values(self) -> tuple[list[str], dict[str, int]]:
        """All tensor values in order, and for each site how many of them dominate it."""
        names = [a for a in self.args if a in self.types]
        before: dict[str, int] = {}
        for op in self.ops:
            before[op.site] = len(names)
            names += [r for r in op.results if r in self.types]
        return names, before

    def save(self, path: Path) -> None:
        path.write_text(self.text())

    def text(self) -> str:
        """It as JSON, an op or another item a line; fields that are empty are left out."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return "{" + ",\n".join(f"{json.dumps(k)}: {_lines(v)}" for k, v in parts.items()) + "}\n"

    @staticmethod
    def load(path: Path) -> Space:
        return Space.from_json(json.loads(path.read_text()))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Space:
        """The space that `save` wrote, from its parsed text."""

        def tup(item: dict[str, Any]) -> dict[str, Any]:
            return {k: tuple(v) if isinstance(v, list) else v for k, v in item.items()}

        def op(item: dict[str, Any]) -> SpaceOp:
            body = tuple(Inner(name, tuple(operands), type_) for name, operands, type_ in item.get("body", ()))
            plain: dict[str, Any] = {**tup(item), "body": body}
            return SpaceOp(**plain)

        return Space(
            ops=tuple(map(op, data["ops"])),
            types={k: TensorType(**tup(t)) for k, t in data["types"].items()},
            args=tuple(data["args"]),
            returns=tuple(data["returns"]),
            activations=tuple(Activation(**tup(a)) for a in data["activations"]),
            parameters=tuple(Parameter(**tup(p)) for p in data["parameters"]),
            storage=tuple(data.get("storage", ("f32",))),
        )


def source(name: str) -> str:
    """The value that an operand is made from: of "arg3|16x4", a part of arg3, arg3."""
    return name.partition("|")[0]


def part(value: str, type_: TensorType) -> str:
    """The name of an operand of type `type_` that is made from `value` for one op alone."""
    return f"{source(value)}|{'x'.join(map(str, type_.shape))}"


def captures(op: SpaceOp) -> list[str]:
    """Values of the step that the body of `op` reads."""
    read = [name for inner in op.body for name in inner.operands if name[:1] not in ("a", "b") or name[:3] == "arg"]
    return [*read, *op.within]


def _lines(value: Any) -> str:
    """JSON of a field: a line an item where it holds dataclasses, else one line."""
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(_plain(v))}" for k, v in value.items()) + "}"
    if value and not isinstance(value[0], str):
        return "[\n" + ",\n".join(f" {json.dumps(_plain(v))}" for v in value) + "]"
    return json.dumps(value)


def _plain(item: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not as by default."""
    made = {f.name: getattr(item, f.name) for f in fields(item) if getattr(item, f.name) != f.default}
    if made.get("body"):
        made["body"] = [(inner.name, inner.operands, inner.type) for inner in made["body"]]
    return made


def dangling(space: Space, edits: Sequence[Edit]) -> list[int]:
    """Indices of the edits that point at a copy which no earlier edit makes, or at a value that does not dominate."""
    bad: list[int] = []
    for index, edit in enumerate(edits):
        if not edit.applies(space):
            bad.append(index)
            continue
        space = edit.extend(space)
    return bad

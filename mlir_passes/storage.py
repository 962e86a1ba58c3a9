"""Values between kernels in fewer bits: rounded where they are made, widened where they are read.

One rule decides who sees what: the kernel that makes a value uses it as f32, every other kernel reads what was
stored, the value rounded once to nearest, ties to even. Arithmetic is f32 everywhere. Arguments and results of
the step stay as they are. Kernels are cut as without this, so that nothing but the storage differs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mlir_passes.errors import PassError
from mlir_passes.groups import Group
from mlir_passes.llvm import host
from mlir_passes.step_text import VIEWS, OpText, StepText, tensor_of

STORAGES = ("f32", "f16", "bf16")
_MOVES = ("tensor.pad", "tensor.extract_slice")  # they keep elements as they are, so they run on narrow ones
_LEAST = 1024  # elements of a value worth it: fewer are next to no memory, and conversions cost time
_DECIMAL = re.compile(r"value = (-?\d[\d.]*(?:e[+-]\d+)?) : f32")
_INFINITY = re.compile(r"value = 0x([7F])F800000 : f32")
_INFINITIES = {"f16": ("0x7C00", "0xFC00"), "bf16": ("0x7F80", "0xFF80")}


def check_storage(storage: str) -> None:
    """Raise PassError unless values can be stored so on this CPU."""
    if storage not in STORAGES:
        raise PassError("partition", f"unknown storage {storage!r}", f"The known ones are {', '.join(STORAGES)}")
    if storage == "f16" and "+f16c" not in host().features.split(","):
        raise PassError("partition", "this CPU cannot convert f16: it lacks F16C", "Store bf16, which needs nothing")


def store_narrow(step: StepText, groups: Sequence[Group], storage: str) -> None:
    """Let what goes from one group to another be stored as `storage`; changes the step's ops and the groups."""
    check_storage(storage)
    if storage == "f32":
        return
    work = _Narrowing(step, groups, storage)
    for number, group in enumerate(groups):
        for op in list(group.ops):
            for value in op.results if op.kind else ():
                work.narrow(value, op, number)
    for group in groups:
        group.ops = [step.ops[op.position] for op in group.ops]


@dataclass
class _Readers:
    """What reads a value outside its kernel: (op, value) of generics, where the value may be a view; and the views
    and moves, the ones that others read first."""

    reads: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    carriers: list[int] = field(default_factory=list[int])


class _Narrowing:
    """`step.ops` has each op at its position; what is changed here is replaced there."""

    def __init__(self, step: StepText, groups: Sequence[Group], storage: str) -> None:
        self._step, self._groups, self._element = step, groups, storage
        self._home = {op.position: number for number, group in enumerate(groups) for op in group.ops}
        self._users: dict[str, list[int]] = {}
        for op in step.ops:
            for value in dict.fromkeys((*op.operands, *op.captures)):
                self._users.setdefault(value, []).append(op.position)

    def narrow(self, value: str, maker: OpText, group: int) -> None:
        """Store a value of a group narrow, if it is large, leaves its kernel, and nothing outside needs f32."""
        found, readers = tensor_of(self._step.types[value]), _Readers()
        if found is None or found.element != "f32" or math.prod(found.shape) < _LEAST:
            return
        if not self._collect(value, group, readers) or not readers.reads:
            return
        rounded = self._rounded(value)
        self._insert(self._groups[group], maker, rounded)
        new = {value: rounded.results[0]}
        for position in readers.carriers:
            self._carry(position, new)
        for position, read in readers.reads:
            self._put(_widened(self._step.ops[position], read, new.get(read, read), self._element))

    def _collect(self, value: str, group: int, readers: _Readers) -> bool:
        """Note all that reads `value`, and views of it, outside a group; False where some of it needs f32."""
        if value in self._step.returns:
            return False
        for position in self._users.get(value, []):
            op = self._step.ops[position]
            if self._home.get(position, -1) == group:
                continue
            if op.name in VIEWS or (op.name in _MOVES and op.operands == (value,) and self._moves(op)):
                readers.carriers.append(position)
                if not self._collect(op.results[0], -2, readers):
                    return False
            elif _can_widen(op, value):
                readers.reads.append((position, value))
            else:
                return False
        return True

    def _moves(self, op: OpText) -> bool:
        return op.name != "tensor.pad" or self._padding(op) is not None

    def _padding(self, op: OpText) -> str | None:
        """The constant that a pad is of, as an attribute of narrow type; None where it is something else."""
        maker = self._step.makers.get(op.captures[0]) if len(op.captures) == 1 else None
        if maker is None or maker.name != "arith.constant" or op.body != ("tensor.yield",):
            return None
        decimal, infinity = _DECIMAL.search(maker.rest), _INFINITY.search(maker.rest)
        if infinity:
            return _INFINITIES[self._element]["7F".index(infinity[1])]
        return decimal[1] if decimal else None

    def _carry(self, position: int, new: dict[str, str]) -> None:
        """Let a view or a move give narrow elements, as it gets them."""
        op = self._step.ops[position]
        types = tuple(_narrow_type(t, self._element) for t in (*op.operand_types, *op.result_types))
        rest, captures = op.rest, op.captures
        if op.name == "tensor.pad":
            (wide,), constant = op.captures, self._constant(self._padding(op) or "0.0")
            rest = rest.replace(f'"tensor.yield"({wide}) : (f32)', f'"tensor.yield"({constant}) : ({self._element})')
            captures = (constant,)
        count = len(op.operands)
        made = replace(
            op,
            operands=tuple(new.get(v, v) for v in op.operands),
            rest=f"{rest[: rest.rindex(' : (')]} : ({', '.join(types[:count])}) -> {types[count]}",
            operand_types=types[:count],
            result_types=types[count:],
            captures=captures,
        )
        self._put(made)

    def _constant(self, text: str) -> str:
        name = f"%narrow{len(self._step.ops)}"
        rest = f" <{{value = {text} : {self._element}}}> : () -> {self._element}"
        self._append(OpText(len(self._step.ops), "arith.constant", (name,), (), rest, (), (self._element,)))
        return name

    def _rounded(self, value: str) -> OpText:
        """A generic that rounds each element of `value`."""
        step, element, wide = self._step, self._element, self._step.types[value]
        narrow, rank = _narrow_type(wide, element), len(step.tensor(value).shape)
        name = f"{value.replace('#', '_')}_{element}"
        dims = ", ".join(f"d{i}" for i in range(rank))
        maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * 2)
        kinds = ", ".join(["#linalg.iterator_type<parallel>"] * rank)
        given, start, made = (f"{name}_{part}" for part in ("wide", "old", "new"))
        rest = (
            f" <{{indexing_maps = [{maps}], iterator_types = [{kinds}], operandSegmentSizes = array<i32: 1, 1>}}> ({{\n"
            f"  ^bb0({given}: f32, {start}: {element}):\n"
            f'    {made} = "arith.truncf"({given}) : (f32) -> {element}\n'
            f'    "linalg.yield"({made}) : ({element}) -> ()\n  }}) : ({wide}, {narrow}) -> {narrow}'
        )
        empty = f"{name}_empty"
        self._append(OpText(len(step.ops), "tensor.empty", (empty,), (), f" : () -> {narrow}", (), (narrow,)))
        inner, types = (given, start, made), (wide, narrow)
        op = OpText(len(step.ops), "linalg.generic", (name,), (value, empty), rest, types, (narrow,), inner)
        self._append(op)
        return op

    def _insert(self, group: Group, maker: OpText, op: OpText) -> None:
        """Put the rounding behind the op that makes the value; behind all sums where those are the first phase."""
        at = next(i for i, other in enumerate(group.ops, 1) if other.position == maker.position)
        if group.kind in ("contraction", "reduction"):
            at = max(at, sum("r" in other.kinds for other in group.ops))
        group.ops.insert(at, op)

    def _append(self, op: OpText) -> None:
        self._step.ops.append(op)
        self._note(op)

    def _put(self, op: OpText) -> None:
        self._step.ops[op.position] = op
        self._note(op)

    def _note(self, op: OpText) -> None:
        self._step.types.update(zip(op.results, op.result_types, strict=True))
        self._step.makers.update(dict.fromkeys(op.results, op))


def _can_widen(op: OpText, value: str) -> bool:
    """Whether a generic reads `value` as an input, or extracts elements of it in its body, and nothing else."""
    if op.name != "linalg.generic" or value in op.operands[op.inputs :]:
        return False
    return len(_extractions(op, value)) == len(re.findall(rf"{re.escape(value)}(?![\w#])", op.rest))


def _extractions(op: OpText, value: str) -> list[str]:
    return re.findall(rf'"tensor\.extract"\({re.escape(value)}, ', op.rest)


def _widened(op: OpText, value: str, new: str, element: str) -> OpText:
    """A generic that reads `new`, which is narrow, wherever it read `value`, and widens what it gets."""
    rest, types = op.rest, list(op.operand_types)
    front, head, tail = rest.partition("^bb0(")
    arguments, end, body = tail.partition("):\n")
    names = [argument.partition(": ")[0] for argument in arguments.split(", ")]
    inner, lines, declared = list(op.inner), "", arguments.split(", ")
    for number in _places(op, value):
        short = f"{names[number]}_{element}"
        declared[number] = f"{short}: {element}"
        lines += f'    {names[number]} = "arith.extf"({short}) : ({element}) -> f32\n'
        types[number] = _narrow_type(types[number], element)
        inner.append(short)
    body = _extracting(body, value, new, element)
    cut = body.rindex(" : (")
    body = f"{body[:cut]} : ({', '.join(types)}) -> {body[cut:].partition(') -> ')[2]}"
    return replace(
        op,
        operands=tuple(new if v == value else v for v in op.operands),
        rest=f"{front}{head}{', '.join(declared)}{end}{lines}{body}",
        operand_types=tuple(types),
        inner=tuple(inner),
        captures=tuple(new if v == value else v for v in op.captures),
    )


def _places(op: OpText, value: str) -> Iterator[int]:
    return (number for number, operand in enumerate(op.operands) if operand == value)


def _extracting(body: str, value: str, new: str, element: str) -> str:
    """A body whose extractions from `value` are from `new` instead, widened."""
    form = rf'(%\w+) = "tensor\.extract"\({re.escape(value)}, (.*?)\) : \((\S+), (.*?)\) -> f32'

    def narrow(found: re.Match[str]) -> str:
        result, indices, type_, kinds = found.groups()
        short = f"{result}_{element}"
        given = f"({_narrow_type(type_, element)}, {kinds})"
        extract = f'{short} = "tensor.extract"({new}, {indices}) : {given} -> {element}'
        return f'{extract}\n      {result} = "arith.extf"({short}) : ({element}) -> f32'

    return re.sub(form, narrow, body)


def _narrow_type(type_: str, element: str) -> str:
    return type_.replace("f32", element)

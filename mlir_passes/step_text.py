"""A fused step read from its text: one record an op. Asking the bindings for the same costs ten times as much.

MLIR prints generic forms alike for every op, and gives every value of the step a name of its own, inner ones too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from mlir_passes.errors import PassError
from mlir_passes.space import TensorType

VIEWS = ("tensor.expand_shape", "tensor.collapse_shape")
HELPERS = ("arith.constant", "tensor.empty", "linalg.fill")
_HEAD = re.compile(r'(?:(%\w+)(?::(\d+))? = )?"([\w.]+)"\(([^)]*)\)(.*)', re.DOTALL)
_TYPES = re.compile(r" : \((.*?)\) -> (?:\((.*)\)|(.*))$")
_MAP = re.compile(r"affine_map<\((.*?)\) -> \((.*?)\)>")
_DIM = re.compile(r"d\d+")
_USED = re.compile(r"%\w+(?:#\d+)?")
_NAMES = re.compile(r'"([\w.]+)"\(')
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(\w+)>")
_PLAIN = ("arith.", "math.", "linalg.index", "linalg.yield", "tensor.extract")
_FREE = (
    "linalg.yield", "linalg.index", "arith.constant", "tensor.extract", "arith.index_cast", "arith.bitcast",
    "arith.extf", "arith.truncf",
)  # fmt: skip


@dataclass(frozen=True)
class OpText:
    """One op of a step's block. `rest` is its text after the operands, regions and types included.

    inner: the values that stand in its regions, its own and those of the step.
    """

    position: int
    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    rest: str
    operand_types: tuple[str, ...] = ()
    result_types: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()  # values of the step that its regions use

    def text(self, operands: Sequence[str] = (), result: str = "") -> str:
        """The op as MLIR, with other operands or another result if given."""
        base = result or (self.results[0].partition("#")[0] if self.results else "")
        count = f":{len(self.results)}" if len(self.results) > 1 else ""
        return f'{base}{count} = "{self.name}"({", ".join(operands or self.operands)}){self.rest}'

    @cached_property
    def maps(self) -> tuple[tuple[str, ...], ...]:
        """For each operand, the index expressions that it is read or written at."""
        head = self.rest.partition("iterator_types")[0]
        return tuple(tuple(found[1].split(", ")) if found[1] else () for found in _MAP.findall(head))

    @cached_property
    def kinds(self) -> str:
        """A letter a loop: p or r."""
        head = self.rest.partition("iterator_types = [")[2].partition("]")[0]
        return "".join(kind[0] for kind in re.findall("parallel|reduction", head))

    @cached_property
    def body(self) -> tuple[str, ...]:
        """Names of the ops in its regions, in order of the text."""
        return tuple(_NAMES.findall(self.rest))

    @property
    def inputs(self) -> int:
        """How many operands it only reads."""
        return len(self.operands) - len(self.results)

    @cached_property
    def identity(self) -> tuple[str, ...]:
        return tuple(f"d{i}" for i in range(len(self.kinds)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Trip count of each loop of a generic."""
        found = [1] * len(self.kinds)
        for type_, places in zip(self.operand_types, self.maps, strict=False):
            tensor = tensor_of(type_)
            for size, place in zip(tensor.shape if tensor else (), places, strict=False):
                if _DIM.fullmatch(place):
                    found[int(place[1:])] = size
        return tuple(found)

    @cached_property
    def flops(self) -> int:
        """Arithmetic ops on elements that it performs, from its static loop nest; 0 where it only moves data."""
        if self.name != "linalg.generic":
            return 0
        return math.prod(self.sizes) * sum(name not in _FREE for name in self.body)

    @cached_property
    def is_contraction(self) -> bool:
        """Whether it sums products of two inputs: out += a * b."""
        work = [name for name in self.body if name not in ("arith.extf", "arith.constant")]
        return len(self.operands) == 3 and "r" in self.kinds and work == ["arith.mulf", "arith.addf", "linalg.yield"]

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether it is a generic over parallel loops with one result, written once in row-major order."""
        alone = self.name == "linalg.generic" and "r" not in self.kinds and len(self.results) == 1
        return alone and self.maps[-1] == self.identity

    @cached_property
    def kind(self) -> str:
        """ "elementwise", "reduction", "contraction", or "" for what shares a kernel with nothing."""
        if self.name != "linalg.generic" or not all(name.startswith(_PLAIN) for name in self.body):
            return ""
        written = self.maps[self.inputs :]
        if any(w != written[0] for w in written) or not all(_DIM.fullmatch(d) for d in written[0]):
            return ""
        if "r" not in self.kinds:
            return "elementwise" if written[0] == self.identity and not self._reads_start() else ""
        return "contraction" if self.is_contraction else "reduction"

    def _reads_start(self) -> bool:
        """Whether the body reads what stood in the result before."""
        head, _, rest = self.rest.partition("):\n")
        arguments = re.findall(r"(%\w+): ", head[head.rfind("^bb0(") :])
        used = _USED.findall(rest)
        return any(name in used for name in arguments[self.inputs :])


@dataclass
class StepText:
    """A step's block: arguments and returned values by name, types of all values, ops in order."""

    arguments: tuple[str, ...]
    returns: tuple[str, ...]
    ops: list[OpText]
    types: dict[str, str] = field(default_factory=dict[str, str])
    makers: dict[str, OpText] = field(default_factory=dict[str, OpText])

    def __post_init__(self) -> None:
        for op in self.ops:
            self._note(op)

    def _note(self, op: OpText) -> None:
        self.types.update(zip(op.results, op.result_types, strict=True))
        self.makers.update(dict.fromkeys(op.results, op))

    def tensor(self, value: str) -> TensorType:
        found = tensor_of(self.types[value])
        assert found is not None, f"{value} is no tensor"
        return found

    def bytes(self, value: str) -> int:
        found = tensor_of(self.types[value])
        return found.bytes if found else 0

    def storage_of(self, value: str) -> str:
        """The value whose memory `value` is a view of."""
        op = self.makers.get(value)
        while op is not None and op.name in VIEWS:
            value = op.operands[0]
            op = self.makers.get(value)
        return value

    def reads_of(self, value: str) -> list[str]:
        """The values whose memory a kernel reads where it needs `value`: its own, or what its helpers read."""
        found: dict[str, None] = {}
        left = [value]
        while left:
            source = self.storage_of(left.pop())
            op = self.makers.get(source)
            if op is not None and self.is_helper(op):
                left += [*op.operands, *op.captures]
            else:
                found[source] = None
        return list(found)

    def is_helper(self, op: OpText) -> bool:
        """Whether kernels that need its result compute it themselves: constants, fills, scalars, views of such."""
        if op.name in VIEWS:
            source = self.makers.get(self.storage_of(op.results[0]))
            return source is not None and self.is_helper(source)
        return op.name in HELPERS or not any(tensor_of(t) for t in op.result_types)

    def copy(self, value: str) -> str:
        """A new value with the content of `value`, made at the end of the block."""
        type_, rank = self.types[value], len(self.tensor(value).shape)
        element = self.tensor(value).element
        empty, made = f"%copy{len(self.ops)}e", f"%copy{len(self.ops)}"
        dims = ", ".join(f"d{i}" for i in range(rank))
        maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * 2)
        kinds = ", ".join(["#linalg.iterator_type<parallel>"] * rank)
        inside = (f"{made}i", f"{made}o")
        storage = OpText(len(self.ops), "tensor.empty", (empty,), (), f" : () -> {type_}", (), (type_,))
        rest = (
            f" <{{indexing_maps = [{maps}], iterator_types = [{kinds}], operandSegmentSizes = array<i32: 1, 1>}}> ({{\n"
            f"    ^bb0({inside[0]}: {element}, {inside[1]}: {element}):\n"
            f'      "linalg.yield"({inside[0]}) : ({element}) -> ()\n    }}) : ({type_}, {type_}) -> {type_}'
        )
        op = OpText(len(self.ops) + 1, "linalg.generic", (made,), (value, empty), rest, (type_,) * 2, (type_,), inside)
        for new in (storage, op):
            self.ops.append(new)
            self._note(new)
        return made


@cache
def tensor_of(type_: str) -> TensorType | None:
    """The plain form of a static ranked tensor type, None for any other type."""
    found = _TENSOR.fullmatch(type_)
    return TensorType(tuple(int(d) for d in found[1].split("x")[:-1]), found[2]) if found else None


def read_step(text: str) -> StepText:
    """The block of the first function of a module printed in generic form with local scope; raises PassError."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith("^bb0(")), 0)
    indent = len(lines[start + 1]) - len(lines[start + 1].lstrip())
    first = next(i for i, line in enumerate(lines) if '"func.func"' in line)
    arguments: tuple[str, ...] = ()
    types: dict[str, str] = {}
    if start == first + 1:
        pairs = [pair.split(": ") for pair in lines[start].strip()[5:-2].split(", ")]
        arguments, types = tuple(name for name, _ in pairs), {name: type_ for name, type_ in pairs}
    else:
        start = first
        indent = len(lines[first + 1]) - len(lines[first + 1].lstrip())
    ops: list[OpText] = []
    known = set(arguments)
    for position, chunk in enumerate(_chunks(lines[start + 1 :], indent)):
        op = _read_op(chunk, position, known)
        if op.name == "func.return":
            return StepText(arguments, op.operands, ops, types)
        known.update(op.results)
        ops.append(op)
    raise PassError("partition", "the function has no return")


def _chunks(lines: Sequence[str], indent: int) -> Iterator[str]:
    """The text of each op of a block: a line at its indent that begins one, and what belongs to it."""
    held: list[str] = []
    for line in lines:
        begins = line[indent : indent + 1] in ("%", '"') and not line[:indent].strip()
        if begins and held:
            yield "\n".join(held)
            held = []
        if not held and not begins:
            return
        held.append(line)
        if begins and '"func.return"' in line:
            yield line
            return


def _read_op(chunk: str, position: int, known: set[str]) -> OpText:
    found = _HEAD.match(chunk.lstrip())
    if found is None:
        raise PassError("partition", f"cannot read {chunk[:80]!r}")
    base, count, name, operands, rest = found.groups()
    results = () if base is None else tuple(f"{base}#{i}" for i in range(int(count))) if count else (base,)
    types = _TYPES.search(chunk[chunk.rfind("\n") + 1 :])
    given, several, one = types.groups() if types else ("", "", "")
    result_types = tuple(t for t in (several or one or "").split(", ") if t and t != "()")
    inner = tuple(dict.fromkeys(_USED.findall(rest)))
    return OpText(
        position,
        name,
        results,
        tuple(o for o in operands.split(", ") if o),
        rest,
        tuple(t for t in given.split(", ") if t),
        result_types,
        inner,
        tuple(value for value in inner if value in known),
    )


def substituted(text: str, names: Mapping[str, str]) -> str:
    """Text with whole values, one of several results too, named otherwise."""
    return _USED.sub(lambda found: names.get(found[0], found[0]), text)


def renamed(text: str, name: Callable[[int], str]) -> str:
    """Text with its values named by order of appearance."""
    names: dict[str, str] = {}

    def new(found: re.Match[str]) -> str:
        return names.setdefault(found[0], name(len(names)))

    return re.sub(r"%\w+", new, text)

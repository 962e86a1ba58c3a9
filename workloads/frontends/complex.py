"""Takes complex numbers out of a StableHLO module: each value becomes two, its real and its imaginary part."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from workloads.errors import Kind, WorkloadError
from workloads.frontends.fourier import transform
from workloads.frontends.ops import compare, constant, create, ints, select, splat, tensor, walk

Parts = tuple[Any, Any]
Place = Callable[[Any], str]

COMPLEX = re.compile(r"\(([^(),]+), *([^(),]+)\)")  # a number in a printed constant
SHAPES = (
    *("reshape", "transpose", "broadcast_in_dim", "slice", "dynamic_slice", "dynamic_update_slice", "concatenate"),
    *("pad", "reverse", "gather", "add", "subtract", "negate", "select"),
)  # ops that do the same to both parts
PRODUCTS = ("multiply", "dot_general", "convolution")
HOLD_REGIONS = ("stablehlo.while", "stablehlo.case", "stablehlo.if", "stablehlo.optimization_barrier")


def split_complex(module: Any, where: Place) -> None:
    """Rewrites the module in place; raises WorkloadError for an op that is not known on complex numbers."""
    ops = walk(module, outer_first=True)
    if not any(map(_is_complex, (v for op in ops for v in _values(op)))):
        return
    split = _Split(where)
    for op in ops:
        split.visit(op)
    split.finish()


def _values(op: Any) -> list[Any]:
    return [*op.results, *(a for region in op.regions for block in region for a in block.arguments)]


def _is_complex(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and isinstance(tensor(value).element_type, ir.ComplexType)


def _part(type_: Any) -> Any:
    """The type of a part of a complex value."""
    found = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get(found.shape, ir.ComplexType(found.element_type).element_type)


class _Split:
    def __init__(self, where: Place) -> None:
        self._where = where
        self._parts: dict[Any, Parts] = {}
        self._done: list[Any] = []
        self._inside: set[Any] = set()  # ops of regions that go with their op

    def finish(self) -> None:
        for op in reversed(self._done):
            op.erase()

    def visit(self, op: Any) -> None:
        if op.name == "func.func":
            self._function(op)
        elif op in self._inside or not any(map(_is_complex, [*op.operands, *_values(op)])):
            return
        elif op.name in ("func.call", "func.return", "stablehlo.return", *HOLD_REGIONS):
            self._flatten(op)
        else:
            with ir.InsertionPoint(op), op.location:
                self._rewrite(op)

    def _function(self, op: Any) -> None:
        found = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        if ir.StringAttr(op.attributes["sym_name"]).value == "main":
            if any(_complex_type(t) for t in [*found.inputs, *found.results]):
                raise WorkloadError(
                    "a complex array goes into the step or comes out of it", self._where(op), "Pass its parts", Kind.OP
                )
            return
        if not any(_complex_type(t) for t in [*found.inputs, *found.results]):
            return
        self._arguments(op.regions[0].blocks[0])
        inputs, results = (_flat_types(types) for types in (found.inputs, found.results))
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        for name in ("arg_attrs", "res_attrs"):
            if name in op.attributes:
                del op.attributes[name]

    def _arguments(self, block: Any) -> None:
        """Gives the block one argument for each part, in the old order."""
        old = list(block.arguments)
        if not any(map(_is_complex, old)):
            return
        for argument in old:
            location = argument.location
            if _is_complex(argument):
                part = _part(argument.type)
                self._parts[argument] = block.add_argument(part, location), block.add_argument(part, location)
            else:
                argument.replace_all_uses_with(block.add_argument(argument.type, location))
        self._old_arguments(block, len(old))

    def _old_arguments(self, block: Any, count: int) -> None:
        """The first `count` arguments go when nothing reads them any more."""
        self._done.append(_Arguments(block, count))

    def _flat(self, values: Any) -> list[Any]:
        return [part for value in values for part in self._parts.get(value, (value,))]

    def _flatten(self, op: Any) -> None:
        """The same op with each complex operand, result and block argument in two."""
        with ir.InsertionPoint(op), op.location:
            new = ir.Operation.create(
                op.name,
                results=_flat_types([r.type for r in op.results]),
                operands=self._flat(op.operands),
                attributes={name: op.attributes[name] for name in op.attributes},
                regions=len(op.regions),
            )
        for old, region in zip(op.regions, new.regions, strict=True):
            block = old.blocks[0]
            block.append_to(region)
            self._arguments(region.blocks[0])
        results = iter(new.results)
        for result in op.results:
            if _is_complex(result):
                self._parts[result] = next(results), next(results)
            else:
                result.replace_all_uses_with(next(results))
        self._done.append(op)

    def _rewrite(self, op: Any) -> None:
        kind = op.name.partition(".")[2]
        made = self._both(op) if kind in SHAPES else self._known(op, kind)
        if made is None:
            raise WorkloadError(
                f"unsupported op {op.name} on complex numbers", self._where(op), "Write it with real numbers", Kind.OP
            )
        if _is_complex(op.results[0]):
            self._parts[op.results[0]] = made
        else:
            op.results[0].replace_all_uses_with(made)
        self._done.append(op)

    def _both(self, op: Any) -> Parts:
        attributes = {name: op.attributes[name] for name in op.attributes}
        real, other = (
            create(
                op.name, [self._parts.get(v, (v, v))[k] for v in op.operands], _part(op.results[0].type), **attributes
            )
            for k in (0, 1)
        )
        return real, other

    def _known(self, op: Any, kind: str) -> Any:
        """The parts of a complex result, a real result, or None."""
        given = [self._parts.get(v, (v, None)) for v in op.operands]
        parts: tuple[Any, Any] = given[0] if given else (None, None)
        (a, b), result = parts, op.results[0]
        match kind:
            case "complex":
                return op.operands[0], op.operands[1]
            case "real":
                return a
            case "imag":
                return b
            case "constant":
                values = _numbers(str(op), result)
                return constant(values.real), constant(values.imag)
            case "convert":
                return _converted(a, b, result)
            case "abs":
                return _magnitude(a, b)
            case "exponential":
                size = _op("exponential", a)
                return _op("multiply", size, _op("cosine", b)), _op("multiply", size, _op("sine", b))
            case "log":
                return _op("log", _magnitude(a, b)), create("stablehlo.atan2", [b, a], a.type)
            case "divide":
                return _quotient(given[0], given[1])
            case "compare":
                return _compared(op, given)
            case "fft":
                name = str(op.attributes["fft_type"]).removesuffix(">").rpartition(" ")[2]
                made = transform(name, ints(op, "fft_length"), a, b)
                return made[0] if len(made) == 1 else (made[0], made[1])
            case "reduce" | "scatter":
                return self._joined(op)
            case _ if kind in PRODUCTS:
                return _product(op, given[0], given[1])
            case _:
                return None

    def _joined(self, op: Any) -> Parts | None:
        """A reduction or scatter that adds, or a scatter that replaces: the same to both parts."""
        block = op.regions[0].blocks[0]
        body = [inner.operation for inner in block.operations]
        adds = len(body) == 2 and body[0].name == "stablehlo.add"
        replaces = len(body) == 1 and body[0].operands[0] == block.arguments[1]
        if len(op.results) != 1 or not (adds or replaces):
            return None
        parts = [_join_parts(op, [self._parts.get(v, (v, v))[k] for v in op.operands], adds) for k in (0, 1)]
        self._inside.update(body)
        return parts[0], parts[1]


class _Arguments:
    """Block arguments to be erased, as if they were an op."""

    def __init__(self, block: Any, count: int) -> None:
        self._block, self._count = block, count

    def erase(self) -> None:
        for _ in range(self._count):
            self._block.erase_argument(0)


def _complex_type(type_: Any) -> bool:
    return isinstance(type_, ir.RankedTensorType) and isinstance(type_.element_type, ir.ComplexType)


def _flat_types(types: Any) -> list[Any]:
    return [part for t in types for part in ([_part(t)] * 2 if _complex_type(t) else [t])]


def _op(name: str, *operands: Any) -> Any:
    return create(f"stablehlo.{name}", operands, operands[0].type)


def _numbers(text: str, result: Any) -> Any:
    """The values of a complex constant: the bindings give them in the printed op only."""
    sizes, wide = tuple(tensor(result).shape), "f64" in str(result.type)
    if packed := re.search(r'"0x([0-9A-Fa-f]+)"', text):
        values = np.frombuffer(bytes.fromhex(packed[1]), np.complex128 if wide else np.complex64)
    else:
        values = np.array([complex(_float(a, wide), _float(b, wide)) for a, b in COMPLEX.findall(text)])
    return np.resize(values, sizes).astype(np.complex128 if wide else np.complex64)


def _float(text: str, wide: bool) -> float:
    if not text.startswith("0x"):
        return float(text)
    bits = np.uint64(int(text, 16)) if wide else np.uint32(int(text, 16))
    return float(bits.view(np.float64 if wide else np.float32))


def _converted(a: Any, b: Any | None, result: Any) -> Any:
    if not _is_complex(result):
        return create("stablehlo.convert", [a], result.type)
    part = _part(result.type)
    real = create("stablehlo.convert", [a], part)
    return real, splat(0, part) if b is None else create("stablehlo.convert", [b], part)


def _magnitude(a: Any, b: Any) -> Any:
    """|a + ib| without overflow on the way."""
    a, b = _op("abs", a), _op("abs", b)
    most, least = _op("maximum", a, b), _op("minimum", a, b)
    ratio = select(compare("EQ", most, least), splat(1, a.type), _op("divide", least, most))  # 0 / 0, inf / inf
    length = _op("sqrt", _op("add", _op("multiply", ratio, ratio), splat(1, a.type)))
    return select(compare("EQ", most, splat(0, a.type)), most, _op("multiply", most, length))


def _product(op: Any, x: Parts, y: Parts) -> Parts:
    attributes = {name: op.attributes[name] for name in op.attributes}

    def times(a: Any, b: Any) -> Any:
        return create(op.name, [a, b], _part(op.results[0].type), **attributes)

    (a, b), (c, d) = x, y
    return _op("subtract", times(a, c), times(b, d)), _op("add", times(a, d), times(b, c))


def _quotient(x: Parts, y: Parts) -> Parts:
    """x / y, by the larger part of y (Smith 1962)."""
    (a, b), (c, d) = x, y
    flat = compare("GE", _op("abs", c), _op("abs", d))
    large, small = select(flat, c, d), select(flat, d, c)
    ratio = _op("divide", small, large)
    under = _op("add", large, _op("multiply", small, ratio))
    p, q = select(flat, a, b), select(flat, b, a)
    real = _op("divide", _op("add", p, _op("multiply", q, ratio)), under)
    other = _op("divide", _op("subtract", q, _op("multiply", p, ratio)), under)
    return real, select(flat, other, _op("negate", other))


def _compared(op: Any, given: list[Any]) -> Any:
    (a, b), (c, d) = given
    equal = create("stablehlo.and", [compare("EQ", a, c), compare("EQ", b, d)], op.results[0].type)
    direction = str(op.attributes["comparison_direction"])
    return create("stablehlo.not", [equal], equal.type) if "NE" in direction else equal if "EQ" in direction else None


def _join_parts(op: Any, operands: list[Any], adds: bool) -> Any:
    """The reduction or scatter `op` of one part of its operands."""
    part = _part(op.results[0].type)
    made = ir.Operation.create(
        op.name,
        results=[part],
        operands=operands,
        attributes={name: op.attributes[name] for name in op.attributes},
        regions=1,
    )
    scalar = ir.RankedTensorType.get([], part.element_type)
    block = made.regions[0].blocks.append(scalar, scalar, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block), op.location:
        old, new = block.arguments
        joined = create("stablehlo.add", [old, new], scalar) if adds else new
        ir.Operation.create("stablehlo.return", operands=[joined])
    return made.result

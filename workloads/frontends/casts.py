"""Arithmetic that the stock legaliser leaves open or has otherwise: floats beyond an integer type, sums of booleans,
unsigned integers that become wider in a product or an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jaxlib.mlir import ir

from workloads.frontends.ops import compare, create, element, is_unsigned, like, replace, select, splat, tensor, walk

MANTISSA = {"f32": 24, "f64": 53}
ON_BOOLEANS = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}

INDEXED = {"gather": 1, "scatter": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}  # where their indices begin


def make_casts_exact(module: Any) -> None:
    """Rewrites what would otherwise depend on how it is compiled; in place."""
    for op in walk(module, "stablehlo.convert"):
        if element(op.operands[0])[0] in "fb" and element(op.results[0])[0] == "i" and element(op.results[0]) != "i1":
            _saturate(op)
    for name, other in ON_BOOLEANS.items():
        for op in walk(module, f"stablehlo.{name}"):
            if element(op.results[0]) == "i1":
                _at(op, lambda op, other=other: [create(f"stablehlo.{other}", op.operands, op.results[0].type)])
    for name in ("dot_general", "dot", "convolution"):
        for op in walk(module, f"stablehlo.{name}"):
            if element(op.results[0]) == "i1":
                _at(op, _count)
            else:
                _widen(op, range(2), tensor(op.results[0]).element_type)
    for name, first in INDEXED.items():
        for op in walk(module, f"stablehlo.{name}"):
            indices = (first,) if name in ("gather", "scatter") else range(first, len(op.operands))
            _widen(op, indices, ir.IntegerType.get_signless(64))


def _widen(op: Any, numbers: Iterable[int], wanted: Any) -> None:
    """Converts unsigned and narrow operands to the type that they are used in: later they would be taken as signed, or
    what they are compared with would not fit in theirs."""
    for k in numbers:
        value = op.operands[k]
        if (is_unsigned(value) or element(value) in ("i8", "i16")) and tensor(value).element_type != wanted:
            with ir.InsertionPoint(op), op.location:
                op.operands[k] = create("stablehlo.convert", [value], like(value, wanted))


def _saturate(op: Any) -> None:
    """A conversion that is defined for every float, as XLA has it: the nearest integer of the type, and 0 for NaN."""

    def build(op: Any) -> list[Any]:
        x, wanted = op.operands[0], op.results[0].type
        if element(x) not in MANTISSA:  # every other float type is a part of f32
            x = create("stablehlo.convert", [x], like(x, ir.F32Type.get()))
        width = ir.IntegerType(tensor(op.results[0]).element_type).width
        unsigned = is_unsigned(op.results[0])
        bits = width if unsigned else width - 1
        lowest, highest = (0 if unsigned else -(2**bits)), 2**bits - 1
        most = 2**bits - 2 ** max(0, bits - MANTISSA[element(x)])  # the greatest float that the type holds
        low, high = splat(lowest, x.type), splat(most, x.type)
        bounded = select(compare("GT", x, low), x, low)
        bounded = select(compare("LT", bounded, high), bounded, high)
        made = create("stablehlo.convert", [bounded], wanted)
        if most != highest:
            made = select(compare("GE", x, splat(2.0**bits, x.type)), splat(highest, wanted), made)
        if not unsigned:
            made = select(compare("EQ", x, x), made, splat(0, wanted))
        return [made]

    _at(op, build)


def _count(op: Any) -> list[Any]:
    """A product or convolution of booleans: whether any of the products is true."""
    i32 = ir.IntegerType.get_signless(32)
    operands = [create("stablehlo.convert", [x], like(x, i32)) for x in op.operands]
    attributes = {name: op.attributes[name] for name in op.attributes}
    total = create(op.name, operands, like(op.results[0], i32), **attributes)
    return [compare("NE", total, splat(0, total.type))]


def _at(op: Any, build: Callable[[Any], list[Any]]) -> None:
    with ir.InsertionPoint(op), op.location:
        made = build(op)
    replace(op, made)

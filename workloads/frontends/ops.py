"""What every rewriting of StableHLO needs: finding, making and replacing ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir


def walk(module: Any, name: str | None = None, outer_first: bool = False) -> list[Any]:
    """All operations (named `name`) of the module, inner ones first unless asked otherwise."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if name is None or op.name == name:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER if outer_first else ir.WalkOrder.POST_ORDER)
    return found


def tensor(value: Any) -> Any:
    """The tensor type of `value`."""
    return ir.RankedTensorType(value.type)


def shape(value: Any) -> tuple[int, ...]:
    return tuple(tensor(value).shape)


def element(value: Any) -> str:
    """The element type of `value` as core dialects spell it: without a sign."""
    return str(tensor(value).element_type).removeprefix("u").removeprefix("s")


def is_unsigned(value: Any) -> bool:
    return str(tensor(value).element_type).startswith("ui")


def like(value: Any, element_type: Any) -> Any:
    """The type of `value` with other elements."""
    return ir.RankedTensorType.get(tensor(value).shape, element_type)


def ints(op: Any, key: str) -> tuple[int, ...]:
    """An i64 array attribute; where it is absent, all ones for the rank of the first operand."""
    rank: int = tensor(op.operands[0]).rank
    return tuple(ir.DenseI64ArrayAttr(op.attributes[key])) if key in op.attributes else (1,) * rank


def pairs(op: Any, key: str) -> tuple[tuple[int, int], ...]:
    """An attribute of (low, high) a dimension; zeros where it is absent."""
    if key not in op.attributes:
        return ((0, 0),) * len(shape(op.operands[0]))
    flat = [int(v) for v in ir.DenseIntElementsAttr(op.attributes[key])]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def number(op: Any, key: str, default: int) -> int:
    return ir.IntegerAttr(op.attributes[key]).value if key in op.attributes else default


def flag(op: Any, key: str) -> bool:
    return key in op.attributes and ir.BoolAttr(op.attributes[key]).value


def create(name: str, operands: Sequence[Any], type_: Any, **attributes: Any) -> Any:
    """The one result of a new op at the current insertion point."""
    return ir.Operation.create(name, results=[type_], operands=list(operands), attributes=attributes).results[0]


def splat(value: float | int, type_: Any) -> Any:
    """A constant of a tensor type, all of whose elements are `value`."""
    found = ir.RankedTensorType(type_)
    inner = found.element_type
    if isinstance(inner, ir.ComplexType):
        part = ir.RankedTensorType.get(found.shape, inner.element_type)
        return create("stablehlo.complex", [splat(value, part), splat(0, part)], type_)
    if isinstance(inner, ir.FloatType):
        attribute = ir.FloatAttr.get(inner, float(value))
    else:
        width = ir.IntegerType(inner).width
        bits = int(value) & ((1 << width) - 1)
        signed = bits - (1 << width) if bits >> (width - 1) and width > 1 else bits
        attribute = ir.IntegerAttr.get(inner, signed if width == 64 or not str(inner).startswith("ui") else bits)
    return create("stablehlo.constant", [], type_, value=ir.DenseElementsAttr.get_splat(type_, attribute))


def constant(values: Any) -> Any:
    """A constant with the values of a NumPy array."""
    array: Any = np.ascontiguousarray(values).reshape(values.shape)
    attribute = ir.DenseElementsAttr.get(array)
    return create("stablehlo.constant", [], attribute.type, value=attribute)


def broadcast(scalar: Any, type_: Any) -> Any:
    """A tensor of `type_`, all of whose elements are that of a tensor without dimensions."""
    return create("stablehlo.broadcast_in_dim", [scalar], type_, broadcast_dimensions=ir.DenseI64ArrayAttr.get([]))


def compare(direction: str, a: Any, b: Any) -> Any:
    attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
    bits = like(a, ir.IntegerType.get_signless(1))
    return create("stablehlo.compare", [a, b], bits, comparison_direction=attribute)


def select(mask: Any, a: Any, b: Any) -> Any:
    return create("stablehlo.select", [mask, a, b], a.type)


def replace(op: Any, values: Sequence[Any]) -> None:
    """Gives the readers of an op's results `values` instead, and erases it."""
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.erase()

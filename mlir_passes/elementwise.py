"""Elementwise ops that edits and passes insert: a factor, a rounding, a fill; and slices of operands.

Each function makes its ops at the current insertion point and location.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from mlir_passes.edits.loops import Part


def constant(attribute: Any, result: Any) -> Any:
    """An arith.constant of type `result`."""
    return ir.Operation.create("arith.constant", results=[result], attributes={"value": attribute}).result


def product(value: Any, factor: float) -> Any:
    """`value`, a float scalar, multiplied by a constant of its type."""
    number = constant(ir.FloatAttr.get(value.type, factor), value.type)
    return ir.Operation.create("arith.mulf", results=[value.type], operands=[value, number]).result


def scaled(value: Any, factor: float) -> Any:
    """Each element of a float tensor multiplied by a constant."""
    return elementwise(value, ir.RankedTensorType(value.type).element_type, lambda element: product(element, factor))


def rounded(value: Any, element: str) -> tuple[Any, Any]:
    """Each element of a float tensor rounded to a narrower type; and that widened again."""
    wide, narrow = ir.RankedTensorType(value.type).element_type, ir.Type.parse(element, value.type.context)
    small = elementwise(value, narrow, lambda e: _converted("arith.truncf", e, narrow))
    return small, elementwise(small, wide, lambda e: _converted("arith.extf", e, wide))


def elementwise(value: Any, element: Any, compute: Callable[[Any], Any]) -> Any:
    """A tensor of `element`s, each `compute`d from the scalar at its place in `value`."""
    found = ir.RankedTensorType(value.type)
    result = ir.RankedTensorType.get(list(found.shape), element)
    empty = ir.Operation.create("tensor.empty", results=[result]).result
    context = value.type.context
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(found.rank, context=context))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", context)
    op = ir.Operation.create(
        "linalg.generic",
        results=[result],
        operands=[value, empty],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([identity, identity], context),
            "iterator_types": ir.ArrayAttr.get([parallel] * found.rank, context),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1], context),
        },
        regions=1,
    )
    block = ir.Block.create_at_start(op.regions[0], [found.element_type, element])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[compute(block.arguments[0])])
    return op.result


def filled(scalar: Any, start: Any) -> Any:
    """`start` with a scalar in every place; made by hand, for the bindings' own builder takes ten times as long."""
    segments = ir.DenseI32ArrayAttr.get([1, 1])
    fill = ir.Operation.create(
        "linalg.fill", [start.type], [scalar, start], {"operandSegmentSizes": segments}, regions=1
    )
    inner = ir.Block.create_at_start(fill.regions[0], [scalar.type, scalar.type])
    with ir.InsertionPoint(inner):
        ir.Operation.create("linalg.yield", operands=[inner.arguments[0]])
    return fill.result


def sliced(value: Any, part: Part) -> Any:
    """What `part` keeps of `value`; of storage that nothing was written to, new storage."""
    found = ir.RankedTensorType(value.type)
    result = ir.RankedTensorType.get(list(part.sizes), found.element_type)
    if result == value.type:
        return value
    if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tensor.empty":
        return ir.Operation.create("tensor.empty", results=[result]).result
    attributes = slice_attributes(part.offsets, part.sizes, part.strides, operands=1)
    return ir.Operation.create("tensor.extract_slice", results=[result], operands=[value], attributes=attributes).result


def slice_attributes(
    offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int], operands: int
) -> dict[str, Any]:
    """Static attributes of tensor.extract_slice (one operand) and tensor.insert_slice (two)."""
    return {
        "static_offsets": ir.DenseI64ArrayAttr.get(list(offsets)),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
        "static_strides": ir.DenseI64ArrayAttr.get(list(strides)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1] * operands + [0, 0, 0]),
    }


def _converted(name: str, value: Any, to: Any) -> Any:
    return ir.Operation.create(name, results=[to], operands=[value]).result

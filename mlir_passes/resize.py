"""A tensor made to fit where another shape is wanted: centred crop, centred pad, broadcast, reshape.

As in mlir-mutate: ranks are aligned at the back, missing leading dims are repeated, extra ones keep their middle.
"""

from __future__ import annotations

import math
from typing import Any

from mlir import ir
from mlir.dialects import linalg

from mlir_passes.edits.base import Use
from mlir_passes.elementwise import slice_attributes
from mlir_passes.space import TensorType


def resize(value: Any, have: TensorType, want: TensorType, use: Use) -> Any:
    """`value` of type `have` made a `want`, by ops at the current insertion point."""
    if use.how == "reshape" and math.prod(have.shape) == math.prod(want.shape):
        return _reshape(value, want.shape)
    shape = have.shape
    if len(shape) > len(want.shape):
        extra = len(shape) - len(want.shape)
        value = _slice(value, (*[1] * extra, *shape[extra:]))
        shape = shape[extra:]
        value = _reshape(value, shape)
    elif len(shape) < len(want.shape):
        missing = want.shape[: len(want.shape) - len(shape)]
        value = _broadcast(value, range(len(missing)), (*missing, *shape))
        shape = (*missing, *shape)
    value = _slice(value, tuple(map(min, shape, want.shape)))
    shape = tuple(map(min, shape, want.shape))
    if use.how == "broadcast":
        repeat = [i for i, (a, b) in enumerate(zip(shape, want.shape, strict=True)) if a == 1 and b > 1]
        if repeat:
            kept = tuple(d for i, d in enumerate(shape) if i not in repeat)
            grown = tuple(b if i in repeat else a for i, (a, b) in enumerate(zip(shape, want.shape, strict=True)))
            value, shape = _broadcast(_reshape(value, kept), repeat, grown), grown
    return _pad(value, shape, want.shape, use.fill)


def _ranked(value: Any, shape: tuple[int, ...]) -> Any:
    return ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)


def _reshape(value: Any, shape: tuple[int, ...]) -> Any:
    """Row-major reshape through one flat dimension (rank 0 and 1 need a single step)."""
    now = tuple(ir.RankedTensorType(value.type).shape)
    if now == shape:
        return value
    flat = (math.prod(now),)
    if len(now) > 1:
        value = _reassociate("tensor.collapse_shape", value, flat, [list(range(len(now)))])
    elif len(now) == 0:
        value = _reassociate("tensor.expand_shape", value, flat, [])
    if len(shape) > 1:
        return _reassociate("tensor.expand_shape", value, shape, [list(range(len(shape)))])
    return _reassociate("tensor.collapse_shape", value, shape, []) if len(shape) == 0 else value


def _reassociate(name: str, value: Any, shape: tuple[int, ...], groups: list[list[int]]) -> Any:
    i64 = ir.IntegerType.get_signless(64)
    group_attrs = [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, i) for i in group]) for group in groups]
    attributes: dict[str, Any] = {"reassociation": ir.ArrayAttr.get(group_attrs)}
    if name == "tensor.expand_shape":
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape))
    return ir.Operation.create(name, results=[_ranked(value, shape)], operands=[value], attributes=attributes).result


def _slice(value: Any, shape: tuple[int, ...]) -> Any:
    """The centred slice of `shape`."""
    now = tuple(ir.RankedTensorType(value.type).shape)
    if now == shape:
        return value
    offsets = [(a - b) // 2 for a, b in zip(now, shape, strict=True)]
    attributes = slice_attributes(offsets, shape, [1] * len(shape), operands=1)
    return ir.Operation.create(
        "tensor.extract_slice", results=[_ranked(value, shape)], operands=[value], attributes=attributes
    ).result


def _pad(value: Any, now: tuple[int, ...], shape: tuple[int, ...], fill: float) -> Any:
    """`value` centred in a tensor of `shape` full of `fill`."""
    if now == shape:
        return value
    full = _filled(value, shape, fill)
    offsets = [(b - a) // 2 for a, b in zip(now, shape, strict=True)]
    attributes = slice_attributes(offsets, now, [1] * len(now), operands=2)
    return ir.Operation.create(
        "tensor.insert_slice", results=[full.type], operands=[value, full], attributes=attributes
    ).result


def _filled(value: Any, shape: tuple[int, ...], fill: float) -> Any:
    element = ir.RankedTensorType(value.type).element_type
    if isinstance(element, ir.FloatType):
        number: Any = ir.FloatAttr.get(element, fill)
    else:
        number = ir.IntegerAttr.get(element, int(fill))
    content = ir.DenseElementsAttr.get_splat(_ranked(value, shape), number)
    return ir.Operation.create("arith.constant", results=[_ranked(value, shape)], attributes={"value": content}).result


def _broadcast(value: Any, new_dims: Any, shape: tuple[int, ...]) -> Any:
    """`value` repeated along `new_dims` of `shape`."""
    empty = ir.Operation.create("tensor.empty", results=[_ranked(value, shape)]).result
    return linalg.broadcast(value, outs=[empty], dimensions=list(new_dims)).results[0]

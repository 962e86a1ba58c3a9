"""An editor over a numbered step: looks sites up, repairs operands so that any value fits any place.

The resizing follows mlir-mutate (centred crop, centred pad, broadcast of missing leading dims), with the
choices written in the edit, so that a replay is exact.
"""

from __future__ import annotations

import math
from typing import Any

from mlir import ir
from mlir.dialects import linalg

from mlir_passes.edits.base import Use
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.ir_tools import is_block_argument, operations, producer, set_site, site_of, tensor_type
from mlir_passes.sites import rewirable, value_table
from mlir_passes.space import TensorType


class Editor:
    """The IR of one variant while its edits are applied; the name of a deleted op's value means its replacement."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._ops = {site_of(op): op for op in operations(block)[:-1]}
        self._values = value_table(block)

    def op(self, site: str) -> Any:
        """The op at `site`; raises EditDoesNotApply where an earlier edit removed it."""
        if site not in self._ops:
            raise EditDoesNotApply("edit", f"no op at {site}")
        return self._ops[site]

    def rewirable(self, op: Any) -> list[int]:
        return rewirable(op)

    def clone(self, site: str, new_site: str, before: str) -> Any:
        """A copy of the op at `site` placed just before the op at `before`, numbered `new_site`."""
        source, place = self.op(site), self.op(before)
        new = source.clone(ip=ir.InsertionPoint(place)).operation
        for index, operand in enumerate(new.operands):
            storage = producer(operand)
            if storage is not None and storage.name == "tensor.empty":
                new.operands[index] = storage.clone(ip=ir.InsertionPoint(new)).results[0]
        set_site(new, new_site)
        self._ops[new_site] = new
        for index, result in enumerate(new.results):
            self._values[f"{new_site}#{index}"] = result
        return new

    def replace_value(self, name: str, new: Any) -> None:
        """Give every use of `name` the value `new`; names that meant the old value mean `new` from here on."""
        old = self._values[name]
        old.replace_all_uses_with(new)
        self._values.update({other: new for other, value in self._values.items() if value == old})

    def erase(self, site: str) -> None:
        """Remove an op without uses."""
        op = self._ops.pop(site)
        if any(True for result in op.results for _ in result.uses):
            raise EditDoesNotApply("edit", f"{site} is still used")
        op.erase()

    def fitted(self, use: Use, wanted: Any, before: Any) -> Any:
        """The value of `use` made a `wanted` (an MLIR tensor type), with repair ops placed before `before`."""
        value = self._values.get(use.value)
        if value is None:
            raise EditDoesNotApply("edit", f"no value {use.value}")
        self._check_dominance(use.value, value, before)
        have, want = tensor_type(value.type), tensor_type(wanted)
        if have is None or want is None or have.element != want.element:
            raise EditDoesNotApply("edit", f"{use.value} of type {value.type} cannot become {wanted}")
        if have == want:
            return value
        with ir.InsertionPoint(before), ir.Location.unknown(before.context):
            return _resize(value, have, want, use)

    def _check_dominance(self, name: str, value: Any, before: Any) -> None:
        if is_block_argument(value):
            return
        for op in operations(self._block):
            if op == before:
                raise EditDoesNotApply("edit", f"{name} does not dominate the place of its new use")
            if op == value.owner.operation:
                return


def _resize(value: Any, have: TensorType, want: TensorType, use: Use) -> Any:
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
    attributes = _slice_attributes(offsets, shape, operands=1)
    return ir.Operation.create(
        "tensor.extract_slice", results=[_ranked(value, shape)], operands=[value], attributes=attributes
    ).result


def _slice_attributes(offsets: list[int], sizes: tuple[int, ...], operands: int) -> dict[str, Any]:
    return {
        "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1] * operands + [0, 0, 0]),
    }


def _pad(value: Any, now: tuple[int, ...], shape: tuple[int, ...], fill: float) -> Any:
    """`value` centred in a tensor of `shape` full of `fill`."""
    if now == shape:
        return value
    full = _filled(value, shape, fill)
    offsets = [(b - a) // 2 for a, b in zip(now, shape, strict=True)]
    attributes = _slice_attributes(offsets, now, operands=2)
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

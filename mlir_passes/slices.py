"""Compute only what is read: where all readers take the same slice of a value, the value is made as that slice.

An edit that lets a sum run over every second channel leaves slices of its operands. Pushed up through what made
these, they take half of the work out of the layers before, which no removal of whole ops would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlir import ir

from mlir_passes.affine import simplified
from mlir_passes.ir_tools import attribute_names, operations, producer, tensor_type, walk
from mlir_passes.linalg_ops import indexing_map

_STARTS = ("tensor.empty", "linalg.fill")
_COUNTING = "linalg.index"  # a body that asks where it is would ask at other places


@dataclass(frozen=True)
class Slice:
    """offset, size and stride in each dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def along(self, dim: int, shape: tuple[int, ...]) -> bool:
        """Whether it takes less than everything in a dimension."""
        return (self.offsets[dim], self.sizes[dim], self.strides[dim]) != (0, shape[dim], 1)

    @staticmethod
    def of(op: Any) -> Slice | None:
        """That of a tensor.extract_slice with static bounds which keeps the rank."""
        if op.name != "tensor.extract_slice" or len(op.operands) != 1:
            return None
        found = Slice(
            *(tuple(ir.DenseI64ArrayAttr(op.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides"))
        )
        result = tensor_type(op.results[0].type)
        return found if result is not None and result.shape == found.sizes else None


def push_slices(block: Any) -> bool:
    """Make values as the slice that all their readers take, from the last op to the first; whether any was."""
    waiting = [op for op in operations(block) if op.name == "tensor.extract_slice"]
    if not waiting:
        return False
    with ir.Location.unknown(waiting[0].context):
        return _push(waiting)


def _push(waiting: list[Any]) -> bool:
    changed = False
    while waiting:
        op = waiting.pop()
        taken = Slice.of(op)
        if taken is None:
            continue
        source = op.operands[0]
        maker = producer(source)
        made = _made_smaller(maker, taken)
        if maker is None or made is None:
            continue
        value, new = made
        for use in list(source.uses):
            reader = use.owner.operation
            reader.results[0].replace_all_uses_with(value)
            if reader in waiting:
                waiting.remove(reader)
            reader.erase()
        maker.erase()
        waiting += new
        changed = True
    return changed


def _made_smaller(op: Any, taken: Slice) -> tuple[Any, list[Any]] | None:
    """What `op` makes, made as the slice only, and the slices of operands that this takes; None where it cannot be."""
    if op is None or len(op.results) != 1:
        return None
    if any(Slice.of(use.owner.operation) != taken for use in op.results[0].uses):
        return None
    if op.name in _STARTS:
        return _start(op, taken)
    if op.name == "linalg.generic":
        return _generic(op, taken)
    if op.name in ("tensor.pad", "tensor.insert_slice"):
        return _padded(op, taken)
    return None


def _start(op: Any, taken: Slice) -> tuple[Any, list[Any]] | None:
    type_ = _type(op.results[0], taken.sizes)
    with ir.InsertionPoint(op):
        if op.name == "tensor.empty":
            return ir.Operation.create("tensor.empty", results=[type_]).result, []
        empty = ir.Operation.create("tensor.empty", results=[type_]).result
    return _copied(op, [op.operands[0], empty], type_).results[0], []


def _generic(op: Any, taken: Slice) -> tuple[Any, list[Any]] | None:
    written = indexing_map(op, len(op.operands) - 1)
    loops = [e.position for e in written.results if isinstance(e, ir.AffineDimExpr)]
    if len(loops) != written.n_dims - _reductions(op) or len(loops) != len(written.results):
        return None
    if any(inner.name == _COUNTING for inner in walk(op)[1:]):
        return None
    by_loop = {loop: (taken.offsets[i], taken.sizes[i], taken.strides[i]) for i, loop in enumerate(loops)}
    shape = _shape(op.results[0])
    cut = {loop for i, loop in enumerate(loops) if taken.along(i, shape)}
    maps = [indexing_map(op, i) for i in range(len(op.operands))]
    operands, slices, new_maps = list[Any](), list[Any](), list[Any]()
    for operand, map_ in zip(op.operands, maps, strict=True):
        sliced, cut_map, made = _read(op, operand, map_, by_loop, cut)
        operands.append(sliced)
        new_maps.append(ir.AffineMapAttr.get(cut_map))
        slices += [made] if made is not None else []
    new = _copied(op, operands, _type(op.results[0], taken.sizes))
    new.attributes["indexing_maps"] = ir.ArrayAttr.get(new_maps, op.context)
    return new.results[0], slices


def _read(
    op: Any, operand: Any, map_: Any, by_loop: dict[int, tuple[int, int, int]], cut: set[int]
) -> tuple[Any, Any, Any | None]:
    """An operand as a smaller `op` reads it: sliced where a cut loop indexes a dimension alone, else by its map."""
    context = op.context
    if tensor_type(operand.type) is None:
        return operand, map_, None
    shape = _shape(operand)
    offsets, sizes, strides = [0] * len(shape), list(shape), [1] * len(shape)
    results: list[Any] = []
    steps = [_step(loop, by_loop.get(loop), loop in cut, context) for loop in range(map_.n_dims)]
    walked = ir.AffineMap.get(map_.n_dims, 0, steps, context)
    for dim, expression in enumerate(map_.results):
        if isinstance(expression, ir.AffineDimExpr) and expression.position in cut:
            offsets[dim], sizes[dim], strides[dim] = by_loop[expression.position]
            results.append(expression)
        else:
            results.append(simplified(expression.compose(walked), context))
    new_map = ir.AffineMap.get(map_.n_dims, 0, results, context)
    taken = Slice(tuple(offsets), tuple(sizes), tuple(strides))
    if not any(taken.along(dim, shape) for dim in range(len(shape))):
        return operand, new_map, None
    made = _slice(operand, taken, op)
    return made.results[0], new_map, made


def _step(loop: int, taken: tuple[int, int, int] | None, cut: bool, context: Any) -> Any:
    """What a loop of the whole op is, by the loop of the smaller one."""
    dim = ir.AffineDimExpr.get(loop, context)
    if taken is None or not cut:
        return dim
    offset, _, stride = taken
    scaled = ir.AffineExpr.get_mul(dim, ir.AffineConstantExpr.get(stride, context))
    return ir.AffineExpr.get_add(scaled, ir.AffineConstantExpr.get(offset, context))


def _padded(op: Any, taken: Slice) -> tuple[Any, list[Any]] | None:
    """A padding (tensor.pad, or insertion into a constant tensor) that is cut only in dimensions without padding."""
    whole = _shape(op.results[0])
    inner = _shape(op.operands[0])
    cut = [dim for dim in range(len(whole)) if taken.along(dim, whole)]
    if len(whole) != len(inner) or any(whole[dim] != inner[dim] for dim in cut):
        return None
    sizes = tuple(taken.sizes[dim] if dim in cut else size for dim, size in enumerate(inner))
    part = Slice(taken.offsets, sizes, taken.strides)
    if op.name == "tensor.pad":
        if len(op.operands) != 1:
            return None
        made = _slice(op.operands[0], part, op)
        return _copied(op, [made.results[0]], _type(op.results[0], taken.sizes)).results[0], [made]
    strides = tuple(ir.DenseI64ArrayAttr(op.attributes["static_strides"]))
    if len(op.operands) != 2 or any(stride != 1 for stride in strides):
        return None
    made, into = _slice(op.operands[0], part, op), _slice(op.operands[1], taken, op)
    new = _copied(op, [made.results[0], into.results[0]], _type(op.results[0], taken.sizes))
    new.attributes["static_sizes"] = ir.DenseI64ArrayAttr.get(list(sizes), op.context)
    return new.results[0], [made, into]


def _slice(value: Any, taken: Slice, before: Any) -> Any:
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(list(taken.offsets), before.context),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(taken.sizes), before.context),
        "static_strides": ir.DenseI64ArrayAttr.get(list(taken.strides), before.context),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0], before.context),
    }
    with ir.InsertionPoint(before):
        return ir.Operation.create(
            "tensor.extract_slice", results=[_type(value, taken.sizes)], operands=[value], attributes=attributes
        )


def _copied(op: Any, operands: list[Any], result: Any) -> Any:
    """`op` with other operands and another type of its result, in its place."""
    attributes = {name: op.attributes[name] for name in attribute_names(op)}
    with ir.InsertionPoint(op):
        regions = len(op.regions)
        new = ir.Operation.create(op.name, results=[result], operands=operands, attributes=attributes, regions=regions)
        if regions:
            source = op.clone().operation
            source.regions[0].blocks[0].append_to(new.regions[0])
            source.erase()
    return new


def _reductions(op: Any) -> int:
    return str(op.attributes["iterator_types"]).count("reduction")


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _type(value: Any, shape: tuple[int, ...]) -> Any:
    return ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)

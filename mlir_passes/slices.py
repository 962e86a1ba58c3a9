"""Compute only what is read: where all readers take the same slice of a value, the value is made as that slice.

An edit that lets a sum run over every second channel leaves slices of its operands. Pushed up through what made
these, they take half of the work out of the layers before, which no removal of whole ops would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from mlir_passes.affine import linear, simplified
from mlir_passes.elementwise import slice_attributes
from mlir_passes.ir_tools import operations, producer, retyped, tensor_type, walk
from mlir_passes.linalg_ops import indexing_map, loop_sizes

_STARTS = ("tensor.empty", "linalg.fill")
Range = tuple[int, int, int]  # offset, count, stride
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
    made: list[Any] = []
    while waiting:
        op = waiting.pop()
        taken = Slice.of(op)
        maker = producer(op.operands[0])
        smaller = None if taken is None else _made_smaller(maker, taken)
        if maker is None or smaller is None:
            made.append(op)
            continue
        value, new = smaller
        for use in list(maker.results[0].uses):
            reader = use.owner.operation
            if Slice.of(reader) != taken:  # a start, which costs nothing to make twice
                continue
            reader.results[0].replace_all_uses_with(value)
            for kept in (waiting, made):
                if reader in kept:
                    kept.remove(reader)
            reader.erase()
        if not any(True for _ in maker.results[0].uses):
            maker.erase()
        waiting += new
        changed = True
    for op in made:
        changed |= _read_in_place(op)
    return changed


def _read_in_place(op: Any) -> bool:
    """Let the windows that read a slice of what is made whole anyway read that itself, by shifted maps."""
    taken = Slice.of(op)
    uses = list(op.results[0].uses)
    if taken is None or not uses:
        return False
    cut = [dim for dim, _ in enumerate(taken.sizes) if taken.along(dim, _shape(op.operands[0]))]
    for use in uses:
        reader = use.owner.operation
        if reader.name != "linalg.generic" or use.operand_number >= len(reader.operands) - 1:
            return False
        read, sizes = indexing_map(reader, use.operand_number), loop_sizes(reader)
        if any(_counts(read.results[dim], sizes) for dim in cut):
            return False
    for use in uses:
        reader, number = use.owner.operation, use.operand_number
        maps = list(reader.attributes["indexing_maps"])
        read = ir.AffineMapAttr(maps[number]).value
        results = list(read.results)
        for dim in cut:
            results[dim] = _walked(results[dim], taken.offsets[dim], taken.strides[dim], op.context)
        maps[number] = ir.AffineMapAttr.get(ir.AffineMap.get(read.n_dims, 0, results, op.context))
        reader.operands[number] = op.operands[0]
        reader.attributes["indexing_maps"] = ir.ArrayAttr.get(maps, op.context)
    op.erase()
    return True


def _counts(expression: Any, sizes: Sequence[int]) -> bool:
    """Whether it is one loop by itself, or will be without the loops that run once: the operand says its trip count."""
    form = linear(expression)
    loops = [] if form is None else [loop for loop in form[0] if sizes[loop] > 1] or list(form[0])
    return form is not None and form[1] == 0 and [form[0][loop] for loop in loops] == [1]


def _made_smaller(op: Any, taken: Slice) -> tuple[Any, list[Any]] | None:
    """What `op` makes, made as the slice only, and the slices of operands that this takes; None where it cannot be."""
    if op is None or len(op.results) != 1:
        return None
    if op.name in _STARTS:
        return _start(op, taken)
    if any(Slice.of(use.owner.operation) != taken for use in op.results[0].uses):
        return None
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
    shape, sizes = _shape(op.results[0]), loop_sizes(op)
    cut = {
        loop: (taken.offsets[i], taken.sizes[i], taken.strides[i])
        for i, loop in enumerate(loops)
        if taken.along(i, shape)
    }
    for loop, (_, size, _) in cut.items():
        sizes[loop] = size
    operands, slices, maps = list[Any](), list[Any](), list[Any]()
    for number, operand in enumerate(op.operands):
        sliced, map_, made = _read(op, operand, indexing_map(op, number), cut, sizes)
        operands.append(sliced)
        maps.append(ir.AffineMapAttr.get(map_))
        slices += [made] if made is not None else []
    new = _copied(op, operands, _type(op.results[0], taken.sizes))
    new.attributes["indexing_maps"] = ir.ArrayAttr.get(maps, op.context)
    return new.results[0], slices


def _read(op: Any, operand: Any, map_: Any, cut: dict[int, Range], loops: list[int]) -> tuple[Any, Any, Any | None]:
    """An operand as a smaller `op` with these trip counts reads it: the slice that it needs, its map, the op that
    makes the slice if there is one."""
    context = op.context
    if tensor_type(operand.type) is None:
        return operand, map_, None
    shape = _shape(operand)
    offsets, sizes, strides = [0] * len(shape), list(shape), [1] * len(shape)
    results: list[Any] = []
    dims = [ir.AffineDimExpr.get(loop, context) for loop in range(map_.n_dims)]
    steps = [_walked(dim, cut[k][0], cut[k][2], context) if k in cut else dim for k, dim in enumerate(dims)]
    walked = ir.AffineMap.get(map_.n_dims, 0, steps, context)
    for dim, expression in enumerate(map_.results):
        if isinstance(expression, ir.AffineDimExpr) and expression.position in cut:
            offsets[dim], sizes[dim], strides[dim] = cut[expression.position]
            results.append(expression)
            continue
        shifted = simplified(expression.compose(walked), context)
        form = linear(shifted)
        if (
            form and form[0].keys() & cut.keys() and min(form[0].values()) > 0
        ):  # a window: what lies between first and last
            offsets[dim] = form[1]
            sizes[dim] = 1 + sum(c * (loops[loop] - 1) for loop, c in form[0].items())
            shifted = simplified(_walked(shifted, -form[1], 1, context), context)
        results.append(shifted)
    new_map = ir.AffineMap.get(map_.n_dims, 0, results, context)
    taken = Slice(tuple(offsets), tuple(sizes), tuple(strides))
    if not any(taken.along(dim, shape) for dim in range(len(shape))):
        return operand, new_map, None
    made = _slice(operand, taken, op)
    return made.results[0], new_map, made


def _walked(expression: Any, offset: int, stride: int, context: Any) -> Any:
    """offset + stride * expression."""
    scaled = ir.AffineExpr.get_mul(expression, ir.AffineConstantExpr.get(stride, context))
    return simplified(ir.AffineExpr.get_add(scaled, ir.AffineConstantExpr.get(offset, context)), context)


def _padded(op: Any, taken: Slice) -> tuple[Any, list[Any]] | None:
    """A padding (tensor.pad, or insertion into a constant tensor), of which less is left, of the smaller inner part."""
    whole, inner = _shape(op.results[0]), _shape(op.operands[0])
    pads = op.name == "tensor.pad"
    if len(whole) != len(inner) or len(op.operands) != (1 if pads else 2):
        return None
    if not pads and any(stride != 1 for stride in ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
        return None
    before = list(ir.DenseI64ArrayAttr(op.attributes["static_low" if pads else "static_offsets"]))
    offsets, sizes, low = list[int](), list[int](), list[int]()
    for dim, size in enumerate(inner):
        offset, count, stride = taken.offsets[dim], taken.sizes[dim], taken.strides[dim]
        if stride != 1 and whole[dim] != size:
            return None
        first = max(0, offset - before[dim])
        last = min(size, offset + count - before[dim]) if stride == 1 else size
        if last <= first:
            return None
        offsets.append(first)
        sizes.append(last - first if stride == 1 else count)
        low.append(max(0, before[dim] - offset))
    made = _slice(op.operands[0], Slice(tuple(offsets), tuple(sizes), taken.strides), op)
    type_ = _type(op.results[0], taken.sizes)
    if pads:
        new = _copied(op, [made.results[0]], type_)
        high = [count - first - size for count, first, size in zip(taken.sizes, low, sizes, strict=True)]
        new.attributes["static_low"] = ir.DenseI64ArrayAttr.get(low, op.context)
        new.attributes["static_high"] = ir.DenseI64ArrayAttr.get(high, op.context)
        return new.results[0], [made]
    into = _slice(op.operands[1], taken, op)
    new = _copied(op, [made.results[0], into.results[0]], type_)
    new.attributes["static_offsets"] = ir.DenseI64ArrayAttr.get(low, op.context)
    new.attributes["static_sizes"] = ir.DenseI64ArrayAttr.get(sizes, op.context)
    return new.results[0], [made, into]


def _slice(value: Any, taken: Slice, before: Any) -> Any:
    attributes = slice_attributes(taken.offsets, taken.sizes, taken.strides, operands=1)
    with ir.InsertionPoint(before):
        return ir.Operation.create(
            "tensor.extract_slice", results=[_type(value, taken.sizes)], operands=[value], attributes=attributes
        )


def _copied(op: Any, operands: list[Any], result: Any) -> Any:
    """`op` with other operands and another type of its result, in its place."""
    with ir.InsertionPoint(op):
        return retyped(op, operands, result)


def _reductions(op: Any) -> int:
    return str(op.attributes["iterator_types"]).count("reduction")


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _type(value: Any, shape: tuple[int, ...]) -> Any:
    return ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)

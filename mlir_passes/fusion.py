"""Fuse elementwise chains and fold transposes, so that a step falls into few kernels.

Contractions are put behind calls meanwhile: otherwise an elementwise producer would be fused into a
contraction's inner loop, be computed again for every output, and hide the contraction.
"""

from __future__ import annotations

from typing import Any

from mlir import ir

from mlir_passes.affine import simplified
from mlir_passes.canonical import CLEAN
from mlir_passes.elementwise import constant, filled
from mlir_passes.ir_tools import (
    body,
    function,
    is_block_argument,
    iterators,
    operations,
    producer,
    retyped,
    run_passes,
)
from mlir_passes.linalg_ops import indexing_map, is_contraction, is_rounding, loop_sizes
from mlir_passes.rests import crop_rests
from mlir_passes.slices import push_slices
from mlir_passes.spread import masks_from_relu, moves_only, spread

FUSE = f"func.func(linalg-fold-unit-extent-dims,cse,linalg-fuse-elementwise-ops,{CLEAN})"


def fuse(module: ir.Module, entry: str) -> None:
    """Generalise named ops, fuse elementwise chains, fold transposes into contractions; in place."""
    run_passes(module, "func.func(linalg-generalize-named-ops)", "partition")  # fills too: they come back below
    _constants_to_fills(body(function(module, entry)))
    cropped = crop_rests(body(function(module, entry)))
    if push_slices(body(function(module, entry))) or cropped:
        run_passes(module, f"func.func({CLEAN})", "partition")
    _hide_contractions(module, entry)
    run_passes(module, FUSE, "partition")
    if _constants_to_fills(body(function(module, entry))):
        run_passes(module, FUSE, "partition")
    changed = masks_from_relu(body(function(module, entry)))
    if spread(body(function(module, entry))) or changed:
        run_passes(module, f"func.func(linalg-fuse-elementwise-ops,{CLEAN})", "partition")
    run_passes(module, "inline{default-pipeline=},symbol-dce", "partition")
    _fold_transposes(body(function(module, entry)))
    _fold_moves(body(function(module, entry)))
    run_passes(module, "cse", "partition")


def _hide_contractions(module: ir.Module, entry: str) -> None:
    """Move every contraction of the step to a private function of its own; `inline` brings it back. Roundings too:
    else readers would round for themselves, and the wide value would be stored for them."""
    hidden = [op for op in operations(body(function(module, entry))) if is_contraction(op) or is_rounding(op)]
    for index, op in enumerate(hidden):
        operands = list(op.operands)
        signature = ir.FunctionType.get([v.type for v in operands], [op.results[0].type], module.context)
        symbol = f"contraction_{index}"
        with ir.InsertionPoint(module.body), ir.Location.unknown(module.context):
            callee = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get(symbol),
                    "function_type": ir.TypeAttr.get(signature),
                    "sym_visibility": ir.StringAttr.get("private"),
                },
                regions=1,
            )
            block = ir.Block.create_at_start(callee.regions[0], [v.type for v in operands])
        with ir.InsertionPoint(block), ir.Location.unknown(module.context):
            inner = op.clone().operation
            for position, argument in enumerate(block.arguments):
                inner.operands[position] = argument
            ir.Operation.create("func.return", operands=[inner.results[0]])
        with ir.InsertionPoint(op), ir.Location.unknown(module.context):
            call = ir.Operation.create(
                "func.call",
                results=[op.results[0].type],
                operands=operands,
                attributes={"callee": ir.FlatSymbolRefAttr.get(symbol)},
            )
        op.results[0].replace_all_uses_with(call.result)
        op.erase()


def _constants_to_fills(block: Any) -> bool:
    """Turn generics that only repeat one constant into fills, which fold into their readers."""
    changed = False
    for op in operations(block):
        scalar = _repeated_constant(op) if op.name == "linalg.generic" else None
        if scalar is None:
            continue
        with ir.InsertionPoint(op), ir.Location.unknown(op.context):
            fill = filled(constant(scalar, scalar.type), op.operands[len(op.operands) - 1])
        op.results[0].replace_all_uses_with(fill)
        op.erase()
        changed = True
    return changed


def _repeated_constant(op: Any) -> Any | None:
    """The scalar attribute that every element of a generic's result is, where its body only yields a constant."""
    inner = operations(op.regions[0].blocks[0])
    if len(inner) != 1 or len(op.results) != 1:
        return None
    yielded = inner[0].operands[0]
    if is_block_argument(yielded) and yielded.arg_number == 0 and len(op.operands) == 2:
        source = producer(op.operands[0])
        if source is None or source.name != "arith.constant":
            return None
        content = source.attributes["value"]
        if not isinstance(content, ir.DenseElementsAttr):
            return content
        return content.get_splat_value() if content.is_splat else None
    source = producer(yielded)
    return source.attributes["value"] if source is not None and source.name == "arith.constant" else None


def _fold_transposes(block: Any) -> None:
    """Where all readers of a contraction's result read it through one permutation, let it be written permuted."""
    for op in operations(block):
        fill = producer(op.operands[2]) if is_contraction(op) else None
        if fill is None or fill.name != "linalg.fill":
            continue
        uses = list(op.results[0].uses)
        readers = [use.owner.operation for use in uses]
        if not uses or any(reader.name != "linalg.generic" for reader in readers):
            continue
        reads = [indexing_map(use.owner.operation, use.operand_number) for use in uses]
        identity = ir.AffineMap.get_identity(reads[0].n_dims, context=op.context)
        inputs = all(u.operand_number < len(r.operands) - len(r.results) for u, r in zip(uses, readers, strict=True))
        if inputs and reads[0].is_permutation and reads[0] != identity and all(read == reads[0] for read in reads):
            _permute_result(op, fill, reads[0])


def _fold_moves(block: Any) -> None:
    """Let a contraction read through a transposition, a reversal or a broadcast instead of from its result."""
    for op in operations(block):
        if not is_contraction(op):
            continue
        maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
        sizes = loop_sizes(op)
        for number in (0, 1):
            source = producer(op.operands[number])
            while source is not None and source.name == "linalg.generic" and moves_only(source):
                new = list(maps)
                new[number] = _composed(indexing_map(source, 0), maps[number])
                new = _turned(new, iterators(op), sizes)
                if not (_covers(new) and _whole(new[number], source.operands[0], sizes)):
                    break
                maps = new
                op.operands[number] = source.operands[0]
                source = producer(op.operands[number])
        op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps], op.context)


def _composed(outer: ir.AffineMap, inner: ir.AffineMap) -> ir.AffineMap:
    """outer after inner."""
    context = inner.context
    return ir.AffineMap.get(inner.n_dims, 0, [simplified(e.compose(inner), context) for e in outer.results], context)


def _covers(maps: list[Any]) -> bool:
    """Whether every loop is a dimension of some operand by itself, as linalg wants it to know its trip count."""
    alone = {e.position for m in maps for e in m.results if isinstance(e, ir.AffineDimExpr)}
    return alone == set(range(maps[0].n_dims))


def _whole(map_: ir.AffineMap, operand: Any, sizes: list[int]) -> bool:
    """Whether each dimension that a loop indexes alone is as long as it: linalg takes the trip count from there."""
    shape = ir.RankedTensorType(operand.type).shape
    alone = ((size, e) for size, e in zip(shape, map_.results, strict=True) if isinstance(e, ir.AffineDimExpr))
    return all(size == sizes[e.position] for size, e in alone)


def _turned(maps: list[Any], kinds: str, sizes: list[int]) -> list[Any]:
    """The maps with reduction loops run backwards that an operand reads backwards: the sum is over the same terms."""
    context, count = maps[0].context, maps[0].n_dims
    alone = {e.position for m in maps for e in m.results if isinstance(e, ir.AffineDimExpr)}
    dims: list[Any] = [ir.AffineDimExpr.get(i, context) for i in range(count)]
    for loop in range(count):
        if loop not in alone and kinds[loop] == "r":
            minus = ir.AffineExpr.get_mul(dims[loop], ir.AffineConstantExpr.get(-1, context))
            dims[loop] = ir.AffineExpr.get_add(minus, ir.AffineConstantExpr.get(sizes[loop] - 1, context))
    turn = ir.AffineMap.get(count, 0, dims, context)
    return [_composed(m, turn) for m in maps]


def _permute_result(op: Any, fill: Any, read: ir.AffineMap) -> None:
    """Write the result of `op` in the order in which `read` reads it, and let its readers read it as it stands."""
    context = op.context
    loops: list[Any] = list(read.results)
    order = [loop.position for loop in loops]  # result dim k is read by loop order[k]
    shape = list(ir.RankedTensorType(op.results[0].type).shape)
    written = indexing_map(op, 2)
    new_shape, new_results = [0] * len(order), [written.results[0]] * len(order)
    for k, loop in enumerate(order):
        new_shape[loop], new_results[loop] = shape[k], written.results[k]
    new_type = ir.RankedTensorType.get(new_shape, ir.RankedTensorType(op.results[0].type).element_type)
    with ir.InsertionPoint(op), ir.Location.unknown(context):
        empty = ir.Operation.create("tensor.empty", results=[new_type]).result
        new_fill = retyped(fill, [fill.operands[0], empty], new_type)
        new_op = retyped(op, [op.operands[0], op.operands[1], new_fill.results[0]], new_type)
    new_maps = list(op.attributes["indexing_maps"])
    new_maps[2] = ir.AffineMapAttr.get(ir.AffineMap.get(written.n_dims, 0, new_results, context))
    new_op.attributes["indexing_maps"] = ir.ArrayAttr.get(new_maps, context)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(read.n_dims, context=context))
    for use in list(op.results[0].uses):
        reader, operand = use.owner.operation, use.operand_number
        reads = list(reader.attributes["indexing_maps"])
        reads[operand] = identity
        reader.operands[operand] = new_op.results[0]
        reader.attributes["indexing_maps"] = ir.ArrayAttr.get(reads, context)
    op.erase()

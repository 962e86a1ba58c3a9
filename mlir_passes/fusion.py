"""Fuse elementwise chains and fold transposes, so that a step falls into few kernels.

Contractions are put behind calls meanwhile: otherwise an elementwise producer would be fused into a
contraction's inner loop, be computed again for every output, and hide the contraction.
"""

from __future__ import annotations

from typing import Any

from mlir import ir
from mlir.dialects import arith, linalg

from mlir_passes.canonical import CLEAN
from mlir_passes.ir_tools import (
    attribute_names,
    body,
    function,
    is_block_argument,
    iterators,
    operations,
    producer,
    run_passes,
)
from mlir_passes.linalg_ops import indexing_map, is_contraction

FUSE = f"func.func(linalg-fold-unit-extent-dims,{CLEAN},linalg-fuse-elementwise-ops,{CLEAN})"


def fuse(module: ir.Module, entry: str) -> None:
    """Generalise named ops, fuse elementwise chains, fold transposes into contractions; in place."""
    run_passes(module, "func.func(linalg-generalize-named-ops)", "partition")  # fills too: they come back below
    _constants_to_fills(body(function(module, entry)))
    _hide_contractions(module, entry)
    run_passes(module, FUSE, "partition")
    if _constants_to_fills(body(function(module, entry))):
        run_passes(module, FUSE, "partition")
    run_passes(module, "inline{default-pipeline=},symbol-dce", "partition")
    _fold_transposes(body(function(module, entry)))
    run_passes(module, CLEAN, "partition")


def copy_generic(value: Any, before: Any) -> Any:
    """A new value with the content of `value`, made just before the op `before`."""
    ranked = ir.RankedTensorType(value.type)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(ranked.rank, context=before.context))
    with ir.InsertionPoint(before), ir.Location.unknown(before.context):
        empty = ir.Operation.create("tensor.empty", results=[ranked])
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        generic = ir.Operation.create(
            "linalg.generic",
            results=[ranked],
            operands=[value, empty.result],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([identity, identity]),
                "iterator_types": ir.ArrayAttr.get([parallel] * ranked.rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
            },
            regions=1,
        )
        element = ranked.element_type
        inner = ir.Block.create_at_start(generic.regions[0], [element, element])
        with ir.InsertionPoint(inner):
            ir.Operation.create("linalg.yield", operands=[inner.arguments[0]])
    return generic.result


def _hide_contractions(module: ir.Module, entry: str) -> None:
    """Move every contraction of the step to a private function of its own; `inline` brings it back."""
    hidden = [op for op in operations(body(function(module, entry))) if is_contraction(op)]
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
            value = arith.constant(scalar.type, scalar)
            fill = linalg.fill(value, outs=[op.operands[len(op.operands) - 1]])
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
    """Where a contraction's result is read once, through a permutation, let the contraction write it permuted."""
    for op in operations(block):
        if not is_contraction(op):
            continue
        uses = list(op.results[0].uses)
        if len(uses) != 1 or uses[0].owner.operation.name != "linalg.generic":
            continue
        consumer, operand = uses[0].owner.operation, uses[0].operand_number
        read = indexing_map(consumer, operand)
        fill = producer(op.operands[2])
        if "r" in iterators(consumer) or fill is None or fill.name != "linalg.fill":
            continue
        if not read.is_permutation or read == ir.AffineMap.get_identity(read.n_dims, context=block.owner.context):
            continue
        _permute_result(op, fill, consumer, operand, read)


def _permute_result(op: Any, fill: Any, consumer: Any, operand: int, read: ir.AffineMap) -> None:
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
        new_fill = _retyped(fill, [fill.operands[0], empty], new_type)
        new_op = _retyped(op, [op.operands[0], op.operands[1], new_fill.results[0]], new_type)
    new_maps = list(op.attributes["indexing_maps"])
    new_maps[2] = ir.AffineMapAttr.get(ir.AffineMap.get(written.n_dims, 0, new_results, context))
    new_op.attributes["indexing_maps"] = ir.ArrayAttr.get(new_maps, context)
    reads = list(consumer.attributes["indexing_maps"])
    reads[operand] = ir.AffineMapAttr.get(ir.AffineMap.get_identity(read.n_dims, context=context))
    consumer.operands[operand] = new_op.results[0]
    consumer.attributes["indexing_maps"] = ir.ArrayAttr.get(reads, context)
    op.erase()


def _retyped(op: Any, operands: list[Any], result: Any) -> Any:
    """A copy of a linalg op with other operands and another result type, its body shared by cloning."""
    attributes = {name: op.attributes[name] for name in attribute_names(op)}
    attributes.setdefault("operandSegmentSizes", ir.DenseI32ArrayAttr.get([len(operands) - 1, 1], op.context))
    new = ir.Operation.create(op.name, results=[result], operands=operands, attributes=attributes, regions=1)
    source = op.clone().operation
    source.regions[0].blocks[0].append_to(new.regions[0])
    source.erase()
    return new

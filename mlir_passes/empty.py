"""Fold what has no elements: nothing computes it, and what reads it gives what it starts from."""

from __future__ import annotations

from typing import Any

from mlir import ir

from mlir_passes.elementwise import filled
from mlir_passes.ir_tools import captured, operations, producer, tensor_type

_KEPT = ("tensor.empty", "linalg.yield")


def fold_empty(block: Any) -> None:
    """Leave no op of a block that computes or reads a tensor without elements; arguments and results may be such."""
    for op in operations(block):
        with ir.InsertionPoint(op), ir.Location.unknown(op.context):
            made = _folded(op)
        if made is None:
            for region in op.regions:
                for inner in region.blocks:
                    fold_empty(inner)
            continue
        for result, value in zip(op.results, made, strict=True):
            result.replace_all_uses_with(value)
        op.erase()


def _folded(op: Any) -> list[Any] | None:
    """What the results of `op` are to be instead, None where it stays."""
    if op.name == "tensor.extract" and _is_empty(op.operands[0]):
        return [_zero(op.results[0].type)]
    if op.name.startswith(("scf.", "func.")) or op.name in _KEPT:
        return None
    if not any(map(_is_empty, [*op.operands, *op.results, *captured(op)])):
        return None
    if all(map(_is_empty, op.results)):
        return [ir.Operation.create("tensor.empty", results=[r.type]).result for r in op.results]
    if op.name.startswith("linalg.") and any(map(_is_empty, op.operands)):
        return list(op.operands)[len(op.operands) - len(op.results) :]
    if op.name == "tensor.insert_slice":
        return [op.operands[1]]
    if op.name == "tensor.concat":
        return [_joined(op)]
    if op.name == "tensor.pad":
        return _padding(op)
    return None


def _is_empty(value: Any) -> bool:
    found = tensor_type(value.type)
    return found is not None and 0 in found.shape


def _zero(type_: Any) -> Any:
    attribute = ir.FloatAttr.get(type_, 0.0) if isinstance(type_, ir.FloatType) else ir.IntegerAttr.get(type_, 0)
    return ir.Operation.create("arith.constant", results=[type_], attributes={"value": attribute}).result


def _joined(op: Any) -> Any:
    parts = [value for value in op.operands if not _is_empty(value)]
    if len(parts) == 1:
        return parts[0]
    attributes = {"dim": op.attributes["dim"]}
    return ir.Operation.create("tensor.concat", [op.results[0].type], parts, attributes).result


def _padding(op: Any) -> list[Any] | None:
    """A tensor of a pad's padding alone; None where that is computed from the place."""
    inner = op.regions[0].blocks[0]
    value = operations(inner)[-1].operands[0]
    maker = producer(value)
    if maker is not None and maker.block == inner:
        if maker.operands:
            return None
        value = maker.clone().results[0]
    elif value in list(inner.arguments):
        return None
    empty = ir.Operation.create("tensor.empty", results=[op.results[0].type]).result
    return [filled(value, empty)]

"""Questions about linalg ops that partition, fusion and kernel schedules share."""

from __future__ import annotations

from typing import Any

from mlir import ir

from mlir_passes.ir_tools import iterators, operations, tensor_type


def indexing_map(op: Any, operand: int) -> ir.AffineMap:
    """The affine map through which a linalg.generic reads or writes an operand."""
    return ir.AffineMapAttr(op.attributes["indexing_maps"][operand]).value


def is_elementwise(op: Any) -> bool:
    """A generic over parallel loops with one result, written once in row-major order."""
    if op.name != "linalg.generic" or "r" in iterators(op) or len(op.results) != 1:
        return False
    return _is_identity(indexing_map(op, len(op.operands) - 1))


def is_contraction(op: Any) -> bool:
    """A generic that sums products of two inputs: out += a * b, with at least one reduction."""
    if op.name != "linalg.generic" or "r" not in iterators(op) or len(op.operands) != 3:
        return False
    inner = [o.name for o in operations(op.regions[0].blocks[0])]
    return inner == ["arith.mulf", "arith.addf", "linalg.yield"]


def is_rounding(op: Any) -> bool:
    """An elementwise generic that only rounds to a narrower float type."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or not is_elementwise(op):
        return False
    return [o.name for o in operations(op.regions[0].blocks[0])] == ["arith.truncf", "linalg.yield"]


def loop_sizes(op: Any) -> list[int]:
    """Trip count of each loop of a generic, from the operands that a loop indexes alone."""
    sizes = [1] * len(iterators(op))
    for index, operand in enumerate(op.operands):
        found = tensor_type(operand.type)
        if found is None:
            continue
        for dim, expression in zip(found.shape, indexing_map(op, index).results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                sizes[expression.position] = dim
    return sizes


def _is_identity(found: ir.AffineMap) -> bool:
    return found == ir.AffineMap.get_identity(found.n_dims, context=found.context)

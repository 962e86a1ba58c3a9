"""Takes tensors without elements out of a StableHLO module: what they feed is known without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir

from workloads.frontends.ops import broadcast, create, replace, splat, tensor, walk

ZERO = ("dot_general", "dot", "convolution", "fft")  # a sum of no products
INITIAL = ("reduce", "reduce_window")  # their operands are inputs and initial values, half and half


def fold_empty(module: Any) -> None:
    """Rewrites the module in place: a value without elements is a constant, but for arguments of `@main`, and no op
    but a call, a loop or a return reads one."""
    for op in walk(module):
        if any(_is_empty(v) for v in op.operands) and not all(_is_empty(v) for v in op.results):
            _fold(op)
    for op in walk(module):
        empty = [v for v in op.results if _is_empty(v)]
        if empty and op.name != "stablehlo.constant":
            with ir.InsertionPoint(op), op.location:
                for value in empty:
                    value.replace_all_uses_with(_nothing(value))
            if all(_is_empty(v) for v in op.results) and op.name.startswith(("stablehlo.", "chlo.")):
                op.erase()
            continue
        for block in (block for region in op.regions for block in region):
            _clear_arguments(op, block)


def _is_empty(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and 0 in tensor(value).shape


def _nothing(value: Any) -> Any:
    return splat(0, value.type)


def _clear_arguments(op: Any, block: Any) -> None:
    empty = [a for a in block.arguments if _is_empty(a)]
    if not empty or (op.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main"):
        return
    with ir.InsertionPoint.at_block_begin(block), op.location:
        for value in empty:
            value.replace_all_uses_with(_nothing(value))


def _fold(op: Any) -> None:
    build = FOLDS.get(op.name.partition(".")[2])
    if build is None or op.name.startswith("func."):
        return
    with ir.InsertionPoint(op), op.location:
        values = build(op)
    if values is not None:
        replace(op, values)


def _zeros(op: Any) -> list[Any]:
    return [splat(0, op.results[0].type)]


def _initial_values(op: Any) -> list[Any]:
    initial = list(op.operands)[len(op.results) :]
    return [broadcast(v, r.type) for v, r in zip(initial, op.results, strict=True)]


def _padding(op: Any) -> list[Any]:
    return [broadcast(op.operands[1], op.results[0].type)]


def _unpooled(op: Any) -> list[Any]:
    return [broadcast(op.operands[2], op.results[0].type)]


def _unchanged(op: Any) -> list[Any]:
    return list(op.operands)[: len(op.results)]


def _scattered(op: Any) -> list[Any] | None:
    """Indices without elements may be one index of no coordinates: the update is at the start of every dimension."""
    return _unchanged(op) if _is_empty(op.operands[-1]) else None


def _joined(op: Any) -> list[Any]:
    kept = [v for v in op.operands if not _is_empty(v)]
    if len(kept) == 1:
        return kept
    return [create(op.name, kept, op.results[0].type, dimension=op.attributes["dimension"])]


# What stands for the results of an op that reads a tensor without elements; None: it needs no change.
FOLDS: dict[str, Callable[[Any], list[Any] | None]] = {
    **dict.fromkeys(ZERO, _zeros),
    **dict.fromkeys(INITIAL, _initial_values),
    "dynamic_update_slice": _unchanged,
    "scatter": _scattered,
    "pad": _padding,
    "select_and_scatter": _unpooled,
    "concatenate": _joined,
}

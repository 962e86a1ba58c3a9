"""Values that are cheaper to compute again than to keep: each reader gets a copy, which fusion then takes in.

A broadcast, a normalisation by saved statistics, a bias: made from one large tensor and small ones by a few
arithmetic ops, it costs a reader the same memory traffic as reading the result, and the result need not be stored.
"""

from __future__ import annotations

import math
from typing import Any

from mlir import ir

from mlir_passes.ir_tools import captured, operations, producer, tensor_type
from mlir_passes.linalg_ops import indexing_map, is_elementwise

_MOST_OPS = 10  # on an element, all that a reader computes again
_SMALL = 8  # a tensor this many times smaller than a reader's counts as free to read
_CHEAP = frozenset(
    f"arith.{name}"
    for name in ("addf", "subf", "mulf", "negf", "maximumf", "minimumf", "cmpf", "select", "constant", "uitofp",
                 "sitofp", "extf", "truncf", "addi", "subi", "muli", "cmpi", "andi", "ori", "extui", "index_cast")
)  # fmt: skip


def spread(block: Any) -> bool:
    """Give every reader of a cheap value its own copy of the ops that make it, where all readers can take it in;
    whether that changed anything."""
    plans, changed = _Plans(), False
    for op in reversed(operations(block)):
        if op.name == "linalg.generic" and plans.is_cheap(op) and _worth(op):
            _copy_to_readers(op)
            changed = True
    return changed


def moves_only(op: Any) -> bool:
    """Whether an elementwise op only yields its single input: a broadcast, a transposition, a reversal."""
    if not is_elementwise(op) or len(op.operands) != 2:
        return False
    block = op.regions[0].blocks[0]
    inner = operations(block)
    return len(inner) == 1 and inner[0].operands[0] == block.arguments[0]


def masks_from_relu(block: Any) -> bool:
    """Let a mask h > 0 read relu(h) where there is one: it is stored anyway, and h need not be; whether any did."""
    changed = False
    for op in operations(block):
        if not _is_relu(op):
            continue
        before = op.operands[0]
        for use in list(before.uses):
            reader = use.owner.operation
            if reader != op and _only_asks_sign(reader, use.operand_number) and op.is_before_in_block(reader):
                reader.operands[use.operand_number] = op.results[0]
                changed = True
    return changed


class _Plans:
    """Which values are cheap, with the large tensors that they come from."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[frozenset[Any], int] | None] = {}

    def is_cheap(self, op: Any) -> bool:
        return self._origin(op) is not None

    def _origin(self, op: Any) -> tuple[frozenset[Any], int] | None:
        """Large tensors and number of ops that a cheap value is made from, None where it is not cheap."""
        if op not in self._known:
            self._known[op] = self._find(op)
        return self._known[op]

    def _find(self, op: Any) -> tuple[frozenset[Any], int] | None:
        if op.name != "linalg.generic" or not is_elementwise(op) or captured(op):
            return None
        inner = operations(op.regions[0].blocks[0])[:-1]
        if any(o.name not in _CHEAP for o in inner):
            return None
        roots: set[Any] = set()
        cost = sum(o.name != "arith.constant" for o in inner)
        size = _size(op.results[0])
        for value in list(op.operands)[:-1]:
            source = producer(value)
            found = self._origin(source) if source is not None and source.name == "linalg.generic" else None
            if found is not None:
                roots |= found[0]
                cost += found[1]
            elif _size(value) * _SMALL > size:
                roots.add(value)
        return (frozenset(roots), cost) if len(roots) <= 1 and cost <= _MOST_OPS else None


def _size(value: Any) -> int:
    found = tensor_type(value.type)
    return math.prod(found.shape) if found else 1


def _worth(op: Any) -> bool:
    """Whether copies save storing the value: all readers can take it in, or nothing is computed."""
    uses = list(op.results[0].uses)
    takes = [_takes_in(use) for use in uses]
    return len(uses) > 1 and (all(takes) or (any(takes) and moves_only(op)))


def _takes_in(use: Any) -> bool:
    reader = use.owner.operation
    return reader.name == "linalg.generic" and use.operand_number < len(reader.operands) - len(reader.results)


def _copy_to_readers(op: Any) -> None:
    for use in list(op.results[0].uses)[1:] if all(map(_takes_in, op.results[0].uses)) else list(op.results[0].uses):
        if _takes_in(use):
            reader = use.owner.operation
            copy = op.clone(ip=ir.InsertionPoint(reader)).operation
            reader.operands[use.operand_number] = copy.results[0]


def _is_relu(op: Any) -> bool:
    if op.name != "linalg.generic" or not is_elementwise(op) or len(op.operands) != 2:
        return False
    block = op.regions[0].blocks[0]
    inner = operations(block)
    if [o.name for o in inner] != ["arith.maximumf", "linalg.yield"] or not _identity(op, 0):
        return False
    return set(inner[0].operands) - {block.arguments[0]} == {v for v in inner[0].operands if _is_zero(v)}


def _only_asks_sign(op: Any, number: int) -> bool:
    """Whether an elementwise op uses an operand only in `operand > 0`."""
    if op.name != "linalg.generic" or not is_elementwise(op) or number >= len(op.operands) - 1:
        return False
    uses = list(op.regions[0].blocks[0].arguments[number].uses)
    return bool(uses) and all(
        use.owner.operation.name == "arith.cmpf"
        and use.operand_number == 0
        and ir.IntegerAttr(use.owner.operation.attributes["predicate"]).value == 2  # ogt
        and _is_zero(use.owner.operation.operands[1])
        for use in uses
    )


def _identity(op: Any, number: int) -> bool:
    found = indexing_map(op, number)
    return found == ir.AffineMap.get_identity(found.n_dims, context=found.context)


def _is_zero(value: Any) -> bool:
    op = producer(value)
    if op is None or op.name != "arith.constant":
        return False
    content = op.attributes["value"]
    return isinstance(content, ir.FloatAttr) and ir.FloatAttr(content).value == 0

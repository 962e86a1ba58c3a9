"""Cut off what windows leave over, where it would be taken for the loop's length.

A 2x2 window with stride 2 over 3 rows gives one row, and reads input row `2 * i + k`. The loop over i runs once.
`linalg-fold-unit-extent-dims` drops it, `k` alone is left, and linalg then takes k's trip count from the 3 rows.
"""

from __future__ import annotations

from typing import Any

from mlir import ir

from mlir_passes.affine import linear
from mlir_passes.edits.loops import Part
from mlir_passes.elementwise import sliced
from mlir_passes.ir_tools import operations, tensor_type
from mlir_passes.linalg_ops import indexing_map, loop_sizes


def crop_rests(block: Any) -> bool:
    """Let every generic of the block read no more rows of an input than it needs, where a loop that runs once hides
    how many those are; whether any was cropped."""
    changed = False
    for op in operations(block):
        if op.name != "linalg.generic":
            continue
        sizes = loop_sizes(op)
        for number in range(len(op.operands) - len(op.results)):
            found = tensor_type(op.operands[number].type)
            if found is None:
                continue
            needed = [
                _needed(e, size, sizes) for e, size in zip(indexing_map(op, number).results, found.shape, strict=True)
            ]
            if tuple(needed) != found.shape:
                part = Part((0,) * len(needed), tuple(needed), (1,) * len(needed), ())
                with ir.InsertionPoint(op), ir.Location.unknown(op.context):
                    op.operands[number] = sliced(op.operands[number], part)
                changed = True
    return changed


def _needed(expression: Any, size: int, sizes: list[int]) -> int:
    """How much of a dimension of `size` is read, where that is one loop with others that run once; else all."""
    form = linear(expression)
    if form is None or form[1] or isinstance(expression, ir.AffineDimExpr):
        return size
    loops = [loop for loop in form[0] if sizes[loop] != 1]
    return sizes[loops[0]] if [form[0][loop] for loop in loops] == [1] else size

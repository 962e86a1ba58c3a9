"""Questions about a kernel's linalg ops that decide how it is read: rows, phases, branches, slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from mlir_passes.ir_tools import iterators, operations, producer
from mlir_passes.kernels.nest import NotCovered
from mlir_passes.linalg_ops import loop_sizes


def cuts(block: Any) -> tuple[int, list[int]]:
    """The loop that a body's branches ask about, and where they cut it."""
    branches = [op for op in operations(block) if op.name == "scf.if"]
    found = [condition(op) for op in branches]
    pending = [region.blocks[0] for op in branches for region in op.regions]
    while pending:
        inside = [op for op in operations(pending.pop()) if op.name == "scf.if"]
        found += [condition(op) for op in inside]
        pending += [region.blocks[0] for op in inside for region in op.regions]
    loops = {loop for loop, _ in found}
    if len(loops) != 1:
        raise NotCovered("branches on several loops")
    return loops.pop(), [cut for _, cut in found]


def condition(op: Any) -> tuple[int, int]:
    """loop, n of a branch that is taken where loop < n."""
    test = producer(op.operands[0])
    if test is None or test.name != "arith.cmpi" or ir.IntegerAttr(test.attributes["predicate"]).value not in (2, 6):
        raise NotCovered("a branch on something else than a loop")
    index, bound = (producer(v) for v in test.operands)
    if index is None or bound is None or index.name != "linalg.index" or bound.name != "arith.constant":
        raise NotCovered("a branch on something else than a loop")
    return ir.IntegerAttr(index.attributes["dim"]).value, ir.IntegerAttr(bound.attributes["value"]).value


def shared_rows(work: Sequence[Any]) -> int:
    """How many leading loops all ops of a kernel share as rows; 0 where one phase does."""
    generics = [op for op in work if op.name == "linalg.generic"]
    reductions = [op for op in generics if "r" in iterators(op)]
    if len(generics) != len(work):
        return _shared_unpadded(work)
    if not reductions or _one_phase(generics, reductions):
        return 0
    ranks = {iterators(op).find("r") for op in reductions}
    if len(ranks) != 1 or any("p" in iterators(op).lstrip("p") for op in reductions):
        raise NotCovered("reductions over different loops")
    rows = ranks.pop()
    sizes = {tuple(loop_sizes(op)[:rows]) for op in generics}
    if len(sizes) != 1 or any(len(iterators(op)) < rows for op in generics):
        raise NotCovered("ops that do not share their rows")
    return rows


def _one_phase(generics: Sequence[Any], reductions: Sequence[Any]) -> bool:
    """Whether the ops are reductions over the same loops, then ops on their results."""
    first = reductions[0]
    if generics[: len(reductions)] != reductions:
        return False
    same = [(iterators(op), loop_sizes(op), str(_result_map(op))) for op in reductions]
    if any(s != same[0] for s in same):
        return False
    shape = list(ir.RankedTensorType(first.results[0].type).shape)
    return all(loop_sizes(op) == shape for op in generics[len(reductions) :])


def domain(op: Any) -> list[int]:
    return loop_sizes(op) if op.name == "linalg.generic" else list(ir.RankedTensorType(op.results[0].type).shape)


def _result_map(op: Any) -> Any:
    return op.attributes["indexing_maps"][len(op.operands) - len(op.results)]


def _shared_unpadded(work: Sequence[Any]) -> int:
    """Leading dimensions that a pad leaves as they are."""
    if len(work) != 1 or work[0].name != "tensor.pad":
        return 0
    rows = 0
    op = work[0]
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{side}"])) for side in ("low", "high"))
    while rows < len(low) - 1 and not low[rows] and not high[rows]:
        rows += 1
    return rows


def slice_of(op: Any) -> tuple[list[int], list[int], list[int]]:
    """Static offsets, sizes and strides of a slice op."""
    found = [list(ir.DenseI64ArrayAttr(op.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides")]
    if any(v < 0 and v <= -(1 << 62) for values in found for v in values):
        raise NotCovered("a slice at dynamic offsets")
    return found[0], found[1], found[2]


def kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The dimensions of a slice of `sizes` that its tensor of `shape` keeps: it drops some of size 1."""
    found: list[int] = []
    wanted = list(shape)
    for place, size in enumerate(sizes):
        droppable = size == 1 and len(sizes) - place > len(wanted)
        if wanted and size == wanted[0] and not (droppable and wanted[0] != 1):
            found.append(place)
            wanted.pop(0)
    if wanted:
        raise NotCovered("a slice whose dimensions are not those of its tensor")
    return found

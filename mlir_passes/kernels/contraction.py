"""Contractions with a fused epilogue: register tile, reduction by one, vectors, accumulators kept in registers.

The recipe and the order of its patterns were measured on MLIR 22.1: pattern sets that are merged otherwise
loop for ever (mask or transpose lowering together with canonicalisation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlir import ir

from mlir_passes.ir_tools import iterators, tensor_type
from mlir_passes.linalg_ops import indexing_map
from mlir_passes.outline import MAIN, ROOT, START

_OP, _LOOP = "!transform.any_op", '!transform.op<"scf.for">'
_COLUMNS = 16  # widest tile; with AVX2's 16 registers, 8 to 10 accumulators beat 12, which spill
_ROWS = {1: (8, 4, 6, 7, 5), 2: (4, 5, 3), 4: (2, 3)}  # by vectors a row: tile heights, best first


@dataclass(frozen=True)
class Tile:
    """Sizes of the register tile along the last two output dimensions, and which of them leave a remainder."""

    rows: int
    columns: int
    peel_rows: bool
    peel_columns: bool


def choose_tile(shape: tuple[int, ...], lanes: int) -> Tile:
    """A register tile for an output of `shape` (rank 1 or more) on vectors of `lanes` elements.

    Whole vectors beat a width that divides the columns: 12 columns run at a fifth of 16 with a remainder loop.
    """
    width = shape[-1]
    columns = _COLUMNS if width >= _COLUMNS else lanes if width >= lanes else width
    if len(shape) == 1:
        return Tile(1, columns, False, width % columns != 0)
    heights, height = _ROWS[-(-columns // lanes)], shape[-2]
    rows = next((r for r in heights if height % r == 0), min(heights[0], height))
    return Tile(rows, columns, height % rows != 0, width % columns != 0)


def script(main: Any, root: Any, vector_bytes: int) -> str | None:
    """The transform script of a contraction kernel, None where plain loops serve better (scalar results)."""
    found = tensor_type(root.results[0].type)
    if found is None or not found.shape:
        return None
    tile = choose_tile(found.shape, vector_bytes // (8 if found.element == "f64" else 4))
    sizes = _tile_sizes(root, found.shape, tile)
    loops = sum(s > 0 for s in sizes)
    reductions = [1 if kind == "r" else 0 for kind in iterators(main)]
    steps = sum(reductions)
    lines = [
        f"transform.named_sequence @__transform_main(%m: {_OP}) {{",
        f'  %f = transform.structured.match ops{{["func.func"]}} in %m : ({_OP}) -> {_OP}',
        f"  %root = transform.structured.match attributes{{{ROOT}}} in %m : ({_OP}) -> {_OP}",
        f"  %t, %l:{loops} = transform.structured.fuse %root tile_sizes {sizes} {{apply_cleanup}}"
        f" : ({_OP}) -> ({', '.join([_OP] + [_LOOP] * loops)})",
    ]
    if tile.peel_columns:
        lines.append(f"  %pc:2 = transform.loop.peel %l#{loops - 1} : ({_LOOP}) -> ({_OP}, {_OP})")
    if tile.peel_rows:
        lines.append(f"  %pr:2 = transform.loop.peel %l#{loops - 2} : ({_LOOP}) -> ({_OP}, {_OP})")
    lines += [
        _CLEAN,
        f"  %main = transform.structured.match attributes{{{MAIN}}} in %m : ({_OP}) -> {_OP}",
        f"  %k, %kl:{steps} = transform.structured.tile_using_for %main tile_sizes {reductions}"
        f" : ({_OP}) -> ({', '.join([_OP] * (steps + 1))})",
        _CLEAN,
        _UNIT,
        f"  %s = transform.structured.match attributes{{{START}}} in %m : ({_OP}) -> {_OP}",
        f'  %g = transform.structured.match ops{{["linalg.generic"]}} in %m : ({_OP}) -> {_OP}',
        f"  transform.structured.vectorize %s : {_OP}",
        f"  transform.structured.vectorize %g : {_OP}",
        _LOWER,
        "  transform.yield",
        "}",
    ]
    return "\n".join(lines)


def _tile_sizes(root: Any, shape: tuple[int, ...], tile: Tile) -> list[int]:
    """Tile sizes by loop of `root`, whose output map may permute its loops."""
    wanted = [1] * len(shape)
    wanted[-1] = tile.columns
    if len(shape) > 1:
        wanted[-2] = tile.rows
    sizes = [0] * len(iterators(root))
    for size, expression in zip(wanted, indexing_map(root, len(root.operands) - 1).results, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            sizes[expression.position] = size
    return sizes


def _patterns(*names: str) -> str:
    inner = "\n".join(f"    transform.apply_patterns.{name}" for name in names)
    return f"  transform.apply_patterns to %f {{\n{inner}\n  }} : {_OP}"


_CLEAN = (
    _patterns("tensor.fold_tensor_empty", "scf.for_loop_canonicalization", "canonicalization")
    + f"\n  transform.apply_cse to %f : {_OP}"
)
_UNIT = _patterns("linalg.fold_unit_extent_dims_via_slices", "canonicalization")
_LOWER = "\n".join(
    [
        _patterns(
            "vector.reduction_to_contract",
            "vector.transfer_permutation_patterns",
            "vector.lower_masked_transfers",
            "canonicalization",
        ),
        f"  transform.apply_cse to %f : {_OP}",
        f'  %fors = transform.structured.match ops{{["scf.for"]}} in %m : ({_OP}) -> {_OP}',
        f"  transform.loop.hoist_loop_invariant_subsets %fors : {_OP}",
        _patterns(
            'vector.lower_contraction lowering_strategy = "outerproduct"',
            "vector.lower_outerproduct",
            "vector.lower_masks",
            'vector.lower_multi_reduction lowering_strategy = "innerparallel"',
            "canonicalization",
        ),
        _patterns('vector.lower_transpose lowering_strategy = "shuffle_1d"', "canonicalization"),
    ]
)

"""What becomes a call of a function written as text, in core dialects: for each op the function that stands for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from workloads.errors import Kind, WorkloadError
from workloads.frontends.bodies import Body, take_body
from workloads.frontends.factors import Cholesky, TriangularSolve, cholesky_text, triangular_solve_text
from workloads.frontends.ops import create, element, flag, ints, is_unsigned, number, pairs, shape, tensor
from workloads.frontends.scan import Scan, scan_text
from workloads.frontends.scatter import Scatter, scatter_text
from workloads.frontends.select_and_scatter import SelectAndScatter, select_and_scatter_text
from workloads.frontends.sort import Sort, sort_text


@dataclass(frozen=True)
class Definition:
    """A private function that was declared in the module, its text with a body, and the bodies that it calls."""

    name: str
    text: str
    bodies: tuple[Body, ...] = ()


Describe: TypeAlias = Callable[[Any, Any, str, str], Definition | None]


def describe_scatter(module: Any, op: Any, name: str, where: str) -> Definition:
    if len(op.results) != 1:
        raise WorkloadError(
            "a scatter of several arrays at once is not supported", where, "Scatter one at a time", Kind.OP
        )
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    operand, indices, updates = op.operands
    combine = _combine(op) or take_body(module, op, 0, f"{name}_join", where)
    scatter = Scatter(
        name=name,
        operand=shape(operand),
        indices=shape(indices),
        updates=shape(updates),
        element=element(operand),
        index_element=element(indices),
        unsigned=is_unsigned(operand),
        combine=combine,
        window=tuple(numbers.update_window_dims),
        inserted=tuple(numbers.inserted_window_dims),
        operand_batching=tuple(numbers.input_batching_dims),
        indices_batching=tuple(numbers.scatter_indices_batching_dims),
        scattered=tuple(numbers.scattered_dims_to_operand_dims),
        vector=numbers.index_vector_dim,
    )
    return Definition(name, scatter_text(scatter), (combine,) if isinstance(combine, Body) else ())


def _combine(op: Any) -> str | None:
    """The name of the StableHLO op that joins old and new, or "replace"; None for any other body."""
    block = op.regions[0].blocks[0]
    body = [inner.operation for inner in block.operations]
    if len(body) == 1 and body[0].operands[0] == block.arguments[1]:
        return "replace"
    kind = body[0].name.partition(".")[2]
    known = len(body) == 2 and kind in ("add", "multiply", "maximum", "minimum")
    return kind if known and set(body[0].operands) == set(block.arguments) else None


def describe_select_and_scatter(module: Any, op: Any, name: str, where: str) -> Definition | None:
    operand, source, _ = op.operands
    if not _overlaps(op):
        _ask_the_other_way(op)
        return None
    select, join = (take_body(module, op, k, f"{name}_{part}", where) for k, part in enumerate(("select", "join")))
    pool = SelectAndScatter(
        name=name,
        operand=shape(operand),
        source=shape(source),
        element=element(operand),
        window=ints(op, "window_dimensions"),
        strides=ints(op, "window_strides"),
        padding_low=tuple(low for low, _ in pairs(op, "padding")),
        select=select,
        join=join,
    )
    return Definition(name, select_and_scatter_text(pool), (select, join))


def _ask_the_other_way(op: Any) -> None:
    """Makes the body of a select say whether its first argument takes the place of the second.

    StableHLO asks whether the best so far, first, is kept. The stock legaliser asks whether the next element, first, is
    taken, which differs where they are equal.
    """
    block = op.regions[0].blocks[0]
    best, following = block.arguments
    for inner in block.operations:
        for k, value in enumerate(inner.operands):
            if value in (best, following):
                inner.operands[k] = following if value == best else best
    last = block.operations[len(block.operations) - 1].operation
    with ir.InsertionPoint(last), last.location:
        last.operands[0] = create("stablehlo.not", [last.operands[0]], last.operands[0].type)


def _overlaps(op: Any) -> bool:
    """Whether windows share elements; where they do not, the stock legaliser gives linalg, which we prefer."""
    return any(w > s for w, s in zip(ints(op, "window_dimensions"), ints(op, "window_strides"), strict=True))


def describe_sort(module: Any, op: Any, name: str, where: str) -> Definition:
    less = take_body(module, op, 0, f"{name}_less", where)
    elements = tuple(element(v) for v in op.operands)
    sizes = shape(op.operands[0])
    text = sort_text(Sort(name, sizes, elements, number(op, "dimension", -1) % len(sizes), less))
    return Definition(name, text, (less,))


def describe_scan(module: Any, op: Any, name: str, where: str) -> Definition | None:
    """A reduce_window along one dimension, whose windows begin or end with the whole array; None for others."""
    count = len(op.results)
    size, rank = shape(op.operands[0]), tensor(op.operands[0]).rank
    window, padding = ints(op, "window_dimensions"), pairs(op, "padding")
    steps = [ints(op, key) for key in ("window_strides", "base_dilations", "window_dilations")]
    wide = [d for d in range(rank) if window[d] > 1]
    if len(wide) != 1 or any(step != (1,) * rank for step in steps):
        return None
    (d,) = wide
    rest = size[d] - 1
    ways = {(rest, 0): False, (0, rest): True}
    others = all(padding[k] == (0, 0) for k in range(rank) if k != d)
    if window[d] != size[d] or padding[d] not in ways or not others:
        return None
    join = take_body(module, op, 0, f"{name}_join", where)
    elements = tuple(element(v) for v in list(op.operands)[:count])
    text = scan_text(Scan(name, size, elements, d, ways[padding[d]], join))
    return Definition(name, text, (join,))


def describe_cholesky(module: Any, op: Any, name: str, where: str) -> Definition:
    matrix = op.operands[0]
    return Definition(name, cholesky_text(Cholesky(name, shape(matrix), element(matrix), flag(op, "lower"))))


def describe_triangular_solve(module: Any, op: Any, name: str, where: str) -> Definition:
    matrix, other = op.operands
    solve = TriangularSolve(
        name=name,
        matrix=shape(matrix),
        other=shape(other),
        element=element(matrix),
        left=flag(op, "left_side"),
        lower=flag(op, "lower"),
        unit=flag(op, "unit_diagonal"),
        transposed="NO_TRANSPOSE" not in str(op.attributes["transpose_a"]),
    )
    return Definition(name, triangular_solve_text(solve))


# What becomes a call of a function written as text, unless its function here gives None.
BECOME_CALLS: dict[str, Describe] = {
    "scatter": describe_scatter,
    "select_and_scatter": describe_select_and_scatter,
    "sort": describe_sort,
    "reduce_window": describe_scan,
    "cholesky": describe_cholesky,
    "triangular_solve": describe_triangular_solve,
}

"""What jaxlib's StableHLO-to-linalg legaliser leaves over, rewritten first: loops, branches, scatters.

A scatter becomes a call of a private function; its body is text in core dialects, put in after legalisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from workloads.errors import WorkloadError
from workloads.frontends.scatter import Scatter, scatter_text
from workloads.frontends.select_and_scatter import SelectAndScatter, select_and_scatter_text


@dataclass(frozen=True)
class Definition:
    """A private function that was declared in the module, and its text with a body."""

    name: str
    text: str


def apply_fixes(module: Any, where: str) -> list[Definition]:
    """Rewrites the module in place; returns the functions that `define` puts in after legalisation."""
    definitions: list[Definition] = []
    scatters = walk(module, "stablehlo.scatter")
    pools = [op for op in walk(module, "stablehlo.select_and_scatter") if _overlaps(op)]
    for op in (*scatters, *pools):
        describe = describe_scatter if op.name == "stablehlo.scatter" else describe_select_and_scatter
        name = f"{op.name.partition('.')[2]}_{len(definitions)}"
        definitions.append(Definition(name, describe(op, name, where)))
        _replace_by_call(module, op, name)
    for name, rewrite in REWRITES.items():
        for op in walk(module, f"stablehlo.{name}"):
            rewrite(op)
    return definitions


def define(module: Any, definitions: list[Definition]) -> None:
    """Gives each declared function its body."""
    for op in list(module.body.operations):
        name = ir.StringAttr(op.attributes["sym_name"]).value
        for definition in definitions:
            if definition.name == name:
                parsed = ir.Module.parse(definition.text)  # has to outlive the clone: its ops do not keep it
                parsed.body.operations[0].operation.clone(ip=ir.InsertionPoint(op))
                op.erase()


def walk(module: Any, name: str | None = None, outer_first: bool = False) -> list[Any]:
    """All operations (named `name`) of the module, inner ones first unless asked otherwise."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if name is None or op.name == name:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER if outer_first else ir.WalkOrder.POST_ORDER)
    return found


def _replace_by_call(module: Any, op: Any, name: str) -> None:
    with op.location:
        with ir.InsertionPoint.at_block_begin(module.body):
            types = ([v.type for v in op.operands], [r.type for r in op.results])
            function = func.FuncOp(name, types, visibility="private")
        with ir.InsertionPoint(op):
            call = func.CallOp(function, list(op.operands))
    _replace(op, call.results)


def _replace(op: Any, values: Any) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def drop_barrier(op: Any) -> None:
    """optimization_barrier -> its operands: what may be recomputed is the search's choice, not the frontend's."""
    _replace(op, op.operands)


def rewrite_while(op: Any) -> None:
    """while -> scf.while."""
    with ir.InsertionPoint(op), op.location:
        types = [r.type for r in op.results]
        loop = ir.Operation.create("scf.while", results=types, operands=list(op.operands), regions=2)
    for region, new in zip(op.regions, loop.regions, strict=True):
        region.blocks[0].append_to(new)
    condition = loop.regions[0].blocks[0]
    terminator = _terminator(condition)
    with ir.InsertionPoint(terminator), terminator.location:
        bit = ir.IntegerType.get_signless(1)
        go_on = ir.Operation.create("tensor.extract", results=[bit], operands=list(terminator.operands))
        ir.Operation.create("scf.condition", operands=[go_on.result, *condition.arguments])
    terminator.erase()
    _yield(loop.regions[1].blocks[0])
    _replace(op, loop.results)


def rewrite_case(op: Any) -> None:
    """case -> scf.index_switch; an index out of range takes the last branch, as StableHLO has it."""
    last = len(op.regions) - 1
    with ir.InsertionPoint(op), op.location:
        number = ir.Operation.create(
            "tensor.extract", results=[ir.IntegerType.get_signless(32)], operands=[op.operands[0]]
        )
        index = ir.Operation.create("arith.index_cast", results=[ir.IndexType.get()], operands=[number.result])
        switch = ir.Operation.create(
            "scf.index_switch",
            results=[r.type for r in op.results],
            operands=[index.result],
            regions=last + 1,
            attributes={"cases": ir.DenseI64ArrayAttr.get(list(range(last)))},
        )
    for number, region in enumerate(op.regions):
        region.blocks[0].append_to(switch.regions[0 if number == last else number + 1])  # the first is the default
    for region in switch.regions:
        _yield(region.blocks[0])
    _replace(op, switch.results)


REWRITES: dict[str, Callable[[Any], None]] = {
    "optimization_barrier": drop_barrier,
    "while": rewrite_while,
    "case": rewrite_case,
}


def _terminator(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _yield(block: Any) -> None:
    terminator = _terminator(block)
    with ir.InsertionPoint(terminator), terminator.location:
        ir.Operation.create("scf.yield", operands=list(terminator.operands))
    terminator.erase()


def _tensor(value: Any) -> Any:
    return ir.RankedTensorType(value.type)


def describe_scatter(op: Any, name: str, where: str) -> str:
    from jaxlib.mlir.dialects import stablehlo

    if len(op.results) != 1:
        raise WorkloadError("a scatter of several arrays at once is not supported", where, "Scatter one at a time")
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    operand, indices, updates = (_tensor(v) for v in op.operands)
    return scatter_text(
        Scatter(
            name=name,
            operand=tuple(operand.shape),
            indices=tuple(indices.shape),
            updates=tuple(updates.shape),
            element=_element(operand),
            index_element=_element(indices),
            unsigned=str(operand.element_type).startswith("ui"),
            combine=_combine(op, where),
            window=tuple(numbers.update_window_dims),
            inserted=tuple(numbers.inserted_window_dims),
            operand_batching=tuple(numbers.input_batching_dims),
            indices_batching=tuple(numbers.scatter_indices_batching_dims),
            scattered=tuple(numbers.scattered_dims_to_operand_dims),
            vector=numbers.index_vector_dim,
        )
    )


def _combine(op: Any, where: str) -> str:
    """The name of the StableHLO op that joins old and new, or "replace"."""
    block = op.regions[0].blocks[0]
    body = [inner.operation for inner in block.operations]
    if len(body) == 1 and body[0].operands[0] == block.arguments[1]:
        return "replace"
    kind = body[0].name.partition(".")[2]
    if len(body) == 2 and kind in ("add", "multiply", "maximum", "minimum"):
        return kind
    raise WorkloadError(f"a scatter that combines by {kind} is not supported", where, "Use set, add, mul, max or min")


def describe_select_and_scatter(op: Any, name: str, where: str) -> str:
    select = op.regions[0].blocks[0].operations[0].operation
    scatter = op.regions[1].blocks[0].operations[0].operation
    direction = str(select.attributes["comparison_direction"]) if "comparison_direction" in select.attributes else ""
    if "GE" not in direction or scatter.name != "stablehlo.add":
        raise WorkloadError("only the gradient of a max-pool is supported here", where, "Use lax.max in reduce_window")
    operand, source, _ = (_tensor(v) for v in op.operands)
    low = (0,) * operand.rank
    if "padding" in op.attributes:
        pairs = [int(v) for v in ir.DenseIntElementsAttr(op.attributes["padding"])]
        low = tuple(pairs[::2])
    return select_and_scatter_text(
        SelectAndScatter(
            name=name,
            operand=tuple(operand.shape),
            source=tuple(source.shape),
            element=_element(operand),
            window=_ints(op, "window_dimensions"),
            strides=_ints(op, "window_strides"),
            padding_low=low,
        )
    )


def _overlaps(op: Any) -> bool:
    """Whether windows share elements; where they do not, the stock legaliser gives linalg, which we prefer."""
    return any(w > s for w, s in zip(_ints(op, "window_dimensions"), _ints(op, "window_strides"), strict=True))


def _ints(op: Any, key: str) -> tuple[int, ...]:
    """An i64 array attribute, all ones where it is absent."""
    rank = _tensor(op.operands[0]).rank
    return tuple(ir.DenseI64ArrayAttr(op.attributes[key])) if key in op.attributes else (1,) * rank


def _element(tensor: Any) -> str:
    """The element type as core dialects spell it: without a sign."""
    return str(tensor.element_type).removeprefix("u").removeprefix("s")

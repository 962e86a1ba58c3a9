"""What jaxlib's StableHLO-to-linalg legaliser leaves over, rewritten first: loops, branches, and what `calls.py` knows.

An op of `calls.py` becomes a call of a private function, whose text is put in after legalisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from workloads.frontends.bodies import make_scalar
from workloads.frontends.calls import BECOME_CALLS, Definition
from workloads.frontends.casts import make_casts_exact
from workloads.frontends.ops import replace, walk


def apply_fixes(module: Any, where: Callable[[Any], str]) -> list[Definition]:
    """Rewrites the module in place; returns the functions that `define` puts in after legalisation.

    where: the place in the user's file that an op is from.
    """
    make_casts_exact(module)
    definitions: list[Definition] = []
    own = {ir.StringAttr(op.attributes["sym_name"]).value for op in walk(module, "func.func")}
    for kind, describe in BECOME_CALLS.items():
        for op in walk(module, f"stablehlo.{kind}"):
            name = f"{kind}_{len(definitions)}"
            while any(taken.startswith(name) for taken in own):
                name = f"own_{name}"
            definition = describe(module, op, name, where(op))
            if definition is not None:
                definitions.append(definition)
                _replace_by_call(module, op, name)
    for name, rewrite in REWRITES.items():
        for op in walk(module, f"stablehlo.{name}"):
            rewrite(op)
    return definitions


def define(module: Any, definitions: list[Definition]) -> None:
    """Gives each declared function its body."""
    make_scalar(module, [body for definition in definitions for body in definition.bodies])
    for op in list(module.body.operations):
        name = ir.StringAttr(op.attributes["sym_name"]).value
        for definition in definitions:
            if definition.name == name:
                parsed = ir.Module.parse(definition.text)  # has to outlive the clone: its ops do not keep it
                parsed.body.operations[0].operation.clone(ip=ir.InsertionPoint(op))
                op.erase()


def _replace_by_call(module: Any, op: Any, name: str) -> None:
    with op.location:
        with ir.InsertionPoint.at_block_begin(module.body):
            types = ([v.type for v in op.operands], [r.type for r in op.results])
            function = func.FuncOp(name, types, visibility="private")
        with ir.InsertionPoint(op):
            call = func.CallOp(function, list(op.operands))
    replace(op, call.results)


def drop_barrier(op: Any) -> None:
    """optimization_barrier -> its operands: what may be recomputed is the search's choice, not the frontend's."""
    replace(op, op.operands)


def drop_reduction_of_nothing(op: Any) -> None:
    """reduce over no dimensions -> its operands: the initial value is what changes nothing."""
    if not len(ir.DenseI64ArrayAttr(op.attributes["dimensions"])):
        replace(op, list(op.operands)[: len(op.results)])


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
    replace(op, loop.results)


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
    replace(op, switch.results)


REWRITES: dict[str, Callable[[Any], None]] = {
    "optimization_barrier": drop_barrier,
    "reduce": drop_reduction_of_nothing,
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

"""One group of ops as a destination-passing function over memrefs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlir import ir

from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.ir_tools import captured, map_operands, producer, tensor_type
from mlir_passes.linalg_ops import flops, identity_use, is_contraction, is_elementwise

MAIN, ROOT, START = "contraction", "root", "start"  # attributes that a kernel's transform script looks for

Taken = Mapping[Any, list[Any]]  # the ops of a group, each with the values that its regions take from the step


def outline(kind: str, ops: Sequence[Any], is_helper: Callable[[Any], bool]) -> tuple[KernelText, list[Any], list[Any]]:
    """The kernel of a group, and the step's values that it reads and writes, in argument order."""
    members = set(ops)
    outputs = [r for op in ops for r in op.results if any(_owner(u, op.block) not in members for u in r.uses)]
    taken = {op: captured(op) for op in ops}
    inputs, helpers = _needs(ops, taken, is_helper)
    text = _function(taken, helpers, inputs, outputs)
    sizes = [_bytes(v) for v in outputs]
    kernel = KernelText(
        kind=kind,
        text=text,
        inputs=len(inputs),
        outputs=len(outputs),
        flops=sum(flops(op) for op in ops),
        bytes_read=sum(map(_bytes, inputs)),
        bytes_written=sum(sizes),
        inplace=_inplace(taken, inputs, outputs),
    )
    return kernel, inputs, outputs


def _owner(use: Any, block: Any) -> Any:
    """The op of `block` that holds a use, also one inside a region."""
    op = use.owner.operation
    while op.block != block:
        op = op.parent.operation
    return op


def _bytes(value: Any) -> int:
    found = tensor_type(value.type)
    return found.bytes if found else 0


def _needs(ops: Sequence[Any], taken: Taken, is_helper: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Values to pass in, and helper ops to repeat inside, producers first."""
    inputs: list[Any] = []
    helpers: list[Any] = []

    def visit(value: Any) -> None:
        op = producer(value)
        if op is None or (op not in taken and not is_helper(op)):
            if value not in inputs:
                inputs.append(value)
            return
        if op in taken or op in helpers:
            return
        for operand in (*op.operands, *captured(op)):
            visit(operand)
        helpers.append(op)

    for op in ops:
        for operand in (*op.operands, *taken[op]):
            visit(operand)
    return inputs, helpers


def _function(taken: Taken, helpers: Sequence[Any], inputs: list[Any], outputs: list[Any]) -> str:
    ops = list(taken)
    context = ops[0].context
    module = ir.Module.create(ir.Location.unknown(context))
    with ir.InsertionPoint(module.body), ir.Location.unknown(context):
        types = [_memref(v) for v in (*inputs, *outputs)]
        func_op = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get(PLACEHOLDER),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            },
            regions=1,
        )
        block = ir.Block.create_at_start(func_op.regions[0], types)
        with ir.InsertionPoint(block):
            inside: dict[Any, Any] = {}
            for value, argument in zip(inputs, block.arguments, strict=False):
                inside[value] = _as_tensor(value.type, argument, writable=False)
            targets = list(block.arguments)[len(inputs) :]
            places = {v: _as_tensor(v.type, a, writable=True) for v, a in zip(outputs, targets, strict=True)}
            for op in (*helpers, *ops):
                new = op.clone().operation
                map_operands(new, inside, deep=op not in taken or bool(taken[op]))
                inside.update(zip(op.results, new.results, strict=True))
                _mark(op, new, is_root=op == ops[-1])
                _write_to_place(op, new, places)
            for value, argument in zip(outputs, targets, strict=True):
                ir.Operation.create(
                    "bufferization.materialize_in_destination",
                    operands=[inside[value], argument],
                    attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
                )
            ir.Operation.create("func.return")
    return str(module)


def _memref(value: Any) -> Any:
    ranked = ir.RankedTensorType(value.type)
    return ir.MemRefType.get(ranked.shape, ranked.element_type)


def _as_tensor(wanted: Any, memref: Any, writable: bool) -> Any:
    attributes: dict[str, Any] = {"restrict": ir.UnitAttr.get()}
    if writable:
        attributes["writable"] = ir.UnitAttr.get()
    return ir.Operation.create(
        "bufferization.to_tensor", results=[wanted], operands=[memref], attributes=attributes
    ).result


def _mark(op: Any, new: Any, is_root: bool) -> None:
    """Mark the last op, the contraction, and the fill that the contraction starts from, made its own."""
    if is_root:
        new.attributes[ROOT] = ir.UnitAttr.get()
    if not is_contraction(op):
        return
    new.attributes[MAIN] = ir.UnitAttr.get()
    start = producer(new.operands[2])
    if start is not None and start.name == "linalg.fill":
        own = start.clone(ip=ir.InsertionPoint(new)).operation
        own.attributes[START] = ir.UnitAttr.get()
        new.operands[2] = own.results[0]


def _write_to_place(op: Any, new: Any, places: dict[Any, Any]) -> None:
    """Let a linalg op that makes an output start from the output's own memory, where its old start was storage."""
    if not op.name.startswith("linalg."):
        return
    first = len(op.operands) - len(op.results)
    for index, result in enumerate(op.results):
        if result not in places:
            continue
        start = producer(new.operands[first + index])
        if start is None:
            continue
        if start.name == "tensor.empty":
            new.operands[first + index] = places[result]
        elif start.name == "linalg.fill":
            own = start.clone(ip=ir.InsertionPoint(new)).operation
            own.operands[1] = places[result]
            new.operands[first + index] = own.results[0]


def _inplace(taken: Taken, inputs: list[Any], outputs: list[Any]) -> tuple[tuple[int, int], ...]:
    ops = list(taken)
    if len(outputs) != 1 or not is_elementwise(ops[-1]) or outputs[0] != ops[-1].results[0]:
        return ()
    pairs: list[tuple[int, int]] = []
    for index, value in enumerate(inputs):
        uses = [(op, i) for op in ops for i, v in enumerate(op.operands) if v == value]
        aligned = all(is_elementwise(op) and identity_use(op, i) for op, i in uses)
        if uses and aligned and not any(value in c for c in taken.values()) and _bytes(value) == _bytes(outputs[0]):
            pairs.append((index, len(inputs)))
    return tuple(pairs)

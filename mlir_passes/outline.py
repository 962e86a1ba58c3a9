"""One group of ops as a destination-passing function over memrefs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from mlir import ir

from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.ir_tools import captured, map_operands, producer, tensor_type
from mlir_passes.linalg_ops import flops, identity_use, is_elementwise

INPLACE = "kernel.inplace"  # marks arguments that may be one buffer with another

Taken = Mapping[Any, list[Any]]  # the ops of a group, each with the values that its regions take from the step


def outline(kind: str, ops: Sequence[Any], is_helper: Callable[[Any], bool]) -> tuple[KernelText, list[Any], list[Any]]:
    """The kernel of a group, and the step's values that it reads and writes, in argument order."""
    members = set(ops)
    outputs = [r for op in ops for r in op.results if any(_owner(u, op.block) not in members for u in r.uses)]
    taken = {op: captured(op) for op in ops}
    inputs, helpers = _needs(ops, taken, is_helper)
    inplace = _inplace(taken, inputs, outputs, kind == "rows")
    text = _function(taken, helpers, inputs, outputs, {position for pair in inplace for position in pair})
    sizes = [_bytes(v) for v in outputs]
    kernel = KernelText(
        kind=kind,
        text=text,
        inputs=len(inputs),
        outputs=len(outputs),
        flops=sum(flops(op) for op in ops),
        bytes_read=sum(map(_bytes, inputs)),
        bytes_written=sum(sizes),
        inplace=inplace,
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


def _function(
    taken: Taken, helpers: Sequence[Any], inputs: list[Any], outputs: list[Any], shared: Collection[int]
) -> str:
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
                "arg_attrs": _marks(len(types), shared),
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


def _marks(count: int, shared: Collection[int]) -> ir.ArrayAttr:
    unit = {INPLACE: ir.UnitAttr.get()}
    return ir.ArrayAttr.get([ir.DictAttr.get(unit if i in shared else {}) for i in range(count)])


def _inplace(taken: Taken, inputs: list[Any], outputs: list[Any], rows: bool) -> tuple[tuple[int, int], ...]:
    """Pairs (input, output) that may be one buffer: each element of the input is read only by the op that makes
    the output's same element, or by one before it; in a kernel of rows, which runs phase by phase, by that op alone."""
    ops = list(taken)
    pairs: list[tuple[int, int]] = []
    for index, value in enumerate(inputs):
        readers = [number for number, op in enumerate(ops) if value in list(op.operands)]
        if not readers or any(value in found for found in taken.values()):
            continue
        if not all(_reads_aligned(ops[number], value) for number in readers):
            continue
        for place, output in enumerate(outputs):
            maker = next(number for number, op in enumerate(ops) if output in list(op.results))
            in_time = readers == [maker] if rows else max(readers) <= maker
            same = _memref(value).shape == _memref(output).shape and _bytes(value) == _bytes(output)
            if in_time and same and is_elementwise(ops[maker]):
                pairs.append((index, len(inputs) + place))
    return tuple(pairs)


def _reads_aligned(op: Any, value: Any) -> bool:
    """Whether an elementwise op reads `value` only at the element that it writes."""
    places = [i for i, v in enumerate(op.operands) if v == value]
    return is_elementwise(op) and all(identity_use(op, i) for i in places)

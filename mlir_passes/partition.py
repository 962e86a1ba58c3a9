"""Cut a step into fused kernels (`groups.py`); identical kernels once.

`docs/architecture.md` says how a step is cut. The result is plain data (`graph.KernelGraph`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlir import ir

from mlir_passes.fusion import copy_generic, fuse
from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.groups import Group, groups
from mlir_passes.ir_tools import body, function, operations, producer, tensor_type
from mlir_passes.outline import outline
from mlir_passes.space import TensorType

VIEWS = ("tensor.expand_shape", "tensor.collapse_shape")
_REMATERIALISED = ("arith.constant", "tensor.empty", "linalg.fill")


def partition(module: ir.Module, entry: str, n_state: int) -> KernelGraph:
    """The kernel graph of a cleaned module; changes the module. n_state: leading results that are new state."""
    with ir.Location.unknown(module.context):
        fuse(module, entry)
        block = body(function(module, entry))
        _give_returns_storage(block, n_state)
        work = operations(block)[:-1]
        return _graph(block, groups(work, lambda op: op.name in VIEWS or is_helper(op), storage_of))


def is_helper(op: Any) -> bool:
    """Whether kernels that need the op's result compute it for themselves: constants, fills, scalars, views of such."""
    if op.name in VIEWS:
        source = producer(storage_of(op.results[0]))
        return source is not None and is_helper(source)
    return op.name in _REMATERIALISED or not any(tensor_type(r.type) for r in op.results)


def storage_of(value: Any) -> Any:
    """The value whose memory `value` is a view of."""
    op = producer(value)
    while op is not None and op.name in VIEWS:
        value = op.operands[0]
        op = producer(value)
    return value


def _give_returns_storage(block: Any, n_state: int) -> None:
    """Copy a returned value that has no storage of its own: an argument, a constant, or one returned before."""
    terminator = operations(block)[-1]
    taken: list[Any] = []
    arguments = list(block.arguments)
    for index, value in enumerate(terminator.operands):
        source = storage_of(value)
        if index < n_state and source == arguments[index]:
            continue
        op = producer(source)
        if op is None or is_helper(op) or any(source == t for t in taken):
            value = copy_generic(value, before=terminator)
            terminator.operands[index] = value
            source = value
        taken.append(source)


def _graph(block: Any, groups: Iterable[Group]) -> KernelGraph:
    names = {argument: f"arg{i}" for i, argument in enumerate(block.arguments)}
    for op in operations(block):
        for result in op.results:
            names[result] = f"v{len(names)}"
    types: dict[str, TensorType] = {}
    storage: dict[str, str] = {}

    def name(value: Any) -> str:
        found = tensor_type(value.type)
        assert found is not None
        types[names[value]] = found
        storage[names[value]] = names[storage_of(value)]
        return names[value]

    kernels: dict[str, int] = {}
    unique: list[KernelText] = []
    calls: list[Call] = []
    for group in groups:
        kernel, inputs, outputs = outline(group.kind, group.ops, is_helper)
        if kernel.text not in kernels:
            kernels[kernel.text] = len(unique)
            unique.append(kernel)
        calls.append(Call(kernels[kernel.text], tuple(map(name, inputs)), tuple(map(name, outputs))))
    terminator = operations(block)[-1]
    return KernelGraph(
        kernels=tuple(unique),
        calls=tuple(calls),
        types=types,
        storage=storage,
        args=tuple(name(a) for a in block.arguments),
        returns=tuple(name(v) for v in terminator.operands),
    )

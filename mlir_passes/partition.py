"""Cut a step into fused kernels (`groups.py`); identical kernels once.

`docs/architecture.md` says how a step is cut. The result is plain data (`graph.KernelGraph`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from mlir_passes.fusion import fuse
from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.groups import Group, groups
from mlir_passes.ir_tools import function
from mlir_passes.outline import Outliner
from mlir_passes.space import TensorType
from mlir_passes.step_text import StepText, read_step
from mlir_passes.storage import store_narrow


def partition(module: ir.Module, entry: str, n_state: int, storage: str = "f32") -> KernelGraph:
    """The kernel graph of a cleaned module; changes the module. n_state: leading results that are new state.

    storage: the element type that values between kernels are stored in.
    """
    with ir.Location.unknown(module.context):
        fuse(module, entry)
        text = function(module, entry).get_asm(print_generic_op_form=True, use_local_scope=True)
    step = read_step(text)
    _give_returns_storage(step, n_state)
    found = groups(step)
    store_narrow(step, found, storage)
    return _graph(step, found)


def _give_returns_storage(step: StepText, n_state: int) -> None:
    """Copy a returned value that has no storage of its own: an argument, a constant, or one returned before."""
    taken: set[str] = set()
    returns = list(step.returns)
    for index, value in enumerate(returns):
        source = step.storage_of(value)
        if index < n_state and source == step.arguments[index]:
            continue
        maker = step.makers.get(source)
        if maker is None or step.is_helper(maker) or source in taken:
            source = returns[index] = step.copy(value)
        taken.add(source)
    step.returns = tuple(returns)


def _graph(step: StepText, found: Sequence[Group]) -> KernelGraph:
    names = {argument: f"arg{i}" for i, argument in enumerate(step.arguments)}
    for op in step.ops:
        for result in op.results:
            names[result] = f"v{len(names)}"
    types: dict[str, TensorType] = {}
    storage: dict[str, str] = {}

    def name(value: str) -> str:
        types[names[value]] = step.tensor(value)
        storage[names[value]] = names[step.storage_of(value)]
        return names[value]

    kernels: dict[str, int] = {}
    unique: list[KernelText] = []
    calls: list[Call] = []
    outliner = Outliner(step)
    for group in found:
        kernel, inputs, outputs = outliner.outline(group.kind, group.ops)
        if kernel.text not in kernels:
            kernels[kernel.text] = len(unique)
            unique.append(kernel)
        calls.append(Call(kernels[kernel.text], tuple(map(name, inputs)), tuple(map(name, outputs))))
    return KernelGraph(
        kernels=tuple(unique),
        calls=tuple(calls),
        types=types,
        storage=storage,
        args=tuple(map(name, step.arguments)),
        returns=tuple(map(name, step.returns)),
    )

"""Cut a step into fused kernels (`groups.py`); identical kernels once.

`docs/architecture.md` says how a step is cut. The result is plain data (`graph.KernelGraph`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from mlir_passes.fusion import fuse
from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.groups import Group, groups
from mlir_passes.ir_tools import SITE, body, function, located_site, operations, strip_sites
from mlir_passes.outline import Outliner
from mlir_passes.space import TensorType
from mlir_passes.step_text import StepText, read_step
from mlir_passes.storage import store_narrow


def partition(module: ir.Module, entry: str, n_state: int, storage: str = "f32") -> KernelGraph:
    """The kernel graph of a cleaned or a numbered module; changes the module. n_state: leading results that are new
    state.

    storage: the element type that values between kernels are stored in.
    """
    func_op = function(module, entry)
    if SITE in operations(body(func_op))[0].attributes:
        strip_sites(body(func_op))  # a kernel of a numbered step is the same as that kernel in any other
    with ir.Location.unknown(module.context):
        fuse(module, entry)
        text = func_op.get_asm(print_generic_op_form=True, use_local_scope=True)
        ops = operations(body(func_op))
    step = read_step(text)
    _give_returns_storage(step, n_state)
    found = groups(step)
    store_narrow(step, found, storage)
    return _graph(step, found, ops)


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


def _graph(step: StepText, found: Sequence[Group], ops: Sequence[Any]) -> KernelGraph:
    """The graph of a step cut into groups; `ops` are those that it was read from, whose locations are sites."""
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
    sites: set[str] = set()
    outliner = Outliner(step)
    for group in found:
        kernel, inputs, outputs = outliner.outline(group.kind, group.ops)
        if kernel.text not in kernels:
            kernels[kernel.text] = len(unique)
            unique.append(kernel)
        site = _fresh(_site(step, group, outputs, ops), len(calls), sites)
        calls.append(Call(kernels[kernel.text], tuple(map(name, inputs)), tuple(map(name, outputs)), site))
    return KernelGraph(
        kernels=tuple(unique),
        calls=tuple(calls),
        types=types,
        storage=storage,
        args=tuple(map(name, step.arguments)),
        returns=tuple(map(name, step.returns)),
    )


def _site(step: StepText, group: Group, outputs: Sequence[str], ops: Sequence[Any]) -> str:
    """The site of the last op that has one and makes an output, else of the last op of the group; "" for none. What was
    added to the step's text, such as a rounding, goes by the op that makes what it reads."""
    own = {op.position for op in group.ops}
    makers: list[int] = []
    for op in group.ops:
        if not set(op.results).isdisjoint(outputs):
            source = step.makers.get(op.operands[0]) if op.position >= len(ops) else None
            makers.append(source.position if source is not None and source.position in own else op.position)
    for position in (*sorted(makers, reverse=True), *sorted(own, reverse=True)):
        if position < len(ops) and (site := located_site(ops[position])):
            return site
    return ""


def _fresh(site: str, number: int, taken: set[str]) -> str:
    """A name for call `number` that no call has yet, by its site if there is one; it is taken then."""
    name = first = site or f"call{number}"
    count = 1
    while name in taken:
        count += 1
        name = f"{first}'{count}"
    taken.add(name)
    return name

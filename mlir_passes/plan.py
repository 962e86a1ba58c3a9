"""Order of kernel calls and the place of every buffer: plain data in, plain data out, exact bytes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mlir_passes.arena import Life, place
from mlir_passes.graph import PLACEHOLDER, Call, KernelGraph, KernelText
from mlir_passes.plan_line import Line, plan_line
from mlir_passes.program import KernelCall, Plan
from mlir_passes.space import TensorType


@dataclass(frozen=True)
class Settled:
    """A graph whose new state ends in the state's own buffers.

    The graph's leading returns are the state arguments themselves.
    shares: storage of a new state leaf -> the state argument whose buffer it takes.
    before: for each call, the calls that must run before it.
    """

    graph: KernelGraph
    shares: dict[str, str]
    before: tuple[frozenset[int], ...]


# From a settled graph, the key of each of its kernels, and the bytes of workspace by key; None: each call runs once
LineOf = Callable[[Settled, Sequence[str], Mapping[str, int]], Line | None]


def settle_state(graph: KernelGraph, n_state: int) -> Settled:
    """Let new state take the place of the old, in place where that is safe, by a copy at the end elsewhere.

    In place is safe where the kernel that makes the leaf reads the old one element by element or not at all,
    and every other reader of the old one can run before it.
    """
    maker = {graph.storage[o]: i for i, call in enumerate(graph.calls) for o in call.outputs}
    before = [{maker[s] for s in _reads(graph, call) if s in maker} for call in graph.calls]
    shares: dict[str, str] = {}
    late: list[tuple[str, str]] = []
    for argument, result in zip(graph.args[:n_state], graph.returns[:n_state], strict=True):
        made = graph.storage[result]
        if made == argument:
            continue
        readers = [i for i, call in enumerate(graph.calls) if argument in _reads(graph, call)]
        if _may_share(graph, argument, made, maker[made], readers, before):
            before[maker[made]] |= {r for r in readers if r != maker[made]}
            shares[made] = argument
        else:
            late.append((made, argument))
    calls, kernels = list(graph.calls), list(graph.kernels)
    for made, argument in late:
        kernels.append(_copy_kernel(graph.types[argument]))
        calls.append(Call(len(kernels) - 1, (made,), (argument,)))
        before.append(set(range(len(graph.calls))))
    returns = (*graph.args[:n_state], *graph.returns[n_state:])
    settled = replace(graph, kernels=tuple(kernels), calls=tuple(calls), returns=returns)
    return Settled(settled, shares, tuple(map(frozenset, before)))


def make_plan(
    settled: Settled,
    keys: Sequence[str],
    workspaces: Mapping[str, int],
    n_state: int,
    n_batch: int,
    line: Line | None = None,
) -> Plan:
    """The plan of a settled graph whose kernels have `keys` and want `workspaces` bytes (by key).

    Each call runs once, unless a line of steps says otherwise; raises PassError where the line is not of this graph.
    """
    graph = settled.graph
    stores = {name: settled.shares.get(store, store) for name, store in graph.storage.items()}
    if line is not None:
        return plan_line(graph, stores, keys, workspaces, n_state, n_batch, line)
    order = topological(settled.before)
    metrics = {stores[m]: graph.types[m] for m in graph.returns if stores[m] not in graph.args[:n_state]}
    lives = _lives(graph, order, stores, metrics, n_state, n_batch)
    lives += [
        Life(f"workspace{step}", "workspace", TensorType((size,), "i8"), ((step, step),))
        for step, number in enumerate(order)
        if (size := workspaces[keys[graph.calls[number].kernel]])
    ]
    placed = place(lives)
    index = {life.name: i for i, life in enumerate(lives)}
    calls: list[KernelCall] = []
    for step, number in enumerate(order):
        call = graph.calls[number]
        names = [stores[v] for v in (*call.inputs, *call.outputs)]
        if f"workspace{step}" in index:
            names.append(f"workspace{step}")
        calls.append(KernelCall(keys[call.kernel], tuple(index[n] for n in names)))
    return Plan(
        buffers=placed.buffers,
        calls=tuple(calls),
        state=tuple(index[a] for a in graph.args[:n_state]),
        batch=tuple(index[a] for a in graph.args[n_state : n_state + n_batch]),
        metrics=tuple(index[m] for m in metrics),
        peak_bytes=placed.end,
    )


def _reads(graph: KernelGraph, call: Call) -> list[str]:
    return [graph.storage[v] for v in call.inputs]


def _may_share(
    graph: KernelGraph, argument: str, made: str, maker: int, readers: Sequence[int], before: Sequence[set[int]]
) -> bool:
    call = graph.calls[maker]
    kernel = graph.kernels[call.kernel]
    if graph.types[argument].bytes != graph.types[made].bytes:
        return False
    output = kernel.inputs + [graph.storage[o] for o in call.outputs].index(made)
    own = [i for i, store in enumerate(_reads(graph, call)) if store == argument]
    if any((i, output) not in kernel.inplace for i in own):
        return False
    return not any(r != maker and _runs_before(maker, r, before) for r in readers)


def _runs_before(first: int, second: int, before: Sequence[set[int]]) -> bool:
    """Whether `first` must run before `second`."""
    seen: set[int] = set()
    pending = [second]
    while pending:
        for earlier in before[pending.pop()] - seen:
            if earlier == first:
                return True
            seen.add(earlier)
            pending.append(earlier)
    return False


def _copy_kernel(found: TensorType) -> KernelText:
    memref = f"memref<{found.bytes}xi8>"
    text = (
        f"module {{\n  func.func @{PLACEHOLDER}(%from: {memref}, %to: {memref}) {{\n"
        f"    memref.copy %from, %to : {memref} to {memref}\n    return\n  }}\n}}\n"
    )
    return KernelText("move", text, 1, 1, 0, found.bytes, found.bytes)


def topological(before: Sequence[frozenset[int]]) -> list[int]:
    """Call numbers in an order that respects `before`, as near the given order as that allows."""
    waiting = [len(b) for b in before]
    following: list[list[int]] = [[] for _ in before]
    for number, earlier in enumerate(before):
        for e in earlier:
            following[e].append(number)
    ready = [n for n, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for later in following[number]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, later)
    assert len(order) == len(before), "cyclic kernel graph"
    return order


def _lives(
    graph: KernelGraph,
    order: Sequence[int],
    stores: Mapping[str, str],
    metrics: Mapping[str, TensorType],
    n_state: int,
    n_batch: int,
) -> list[Life]:
    end = len(order)
    lives = [Life(a, "state", graph.types[a], ((-1, end),)) for a in graph.args[:n_state]]
    lives += [Life(a, "batch", graph.types[a], ((-1, end),)) for a in graph.args[n_state : n_state + n_batch]]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, number in enumerate(order):
        call = graph.calls[number]
        for value in call.outputs:
            first.setdefault(stores[value], step)
        for value in (*call.inputs, *call.outputs):
            last[stores[value]] = step
    for name, step in first.items():
        if name in graph.args:
            continue
        if name in metrics:
            lives.append(Life(name, "metric", metrics[name], ((step, end),)))
        else:
            lives.append(Life(name, "activation", graph.types[name], ((step, last[name]),)))
    return lives

"""The scheduling problem of a kernel graph whose state is settled: calls become ops, storages become tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.plan import Settled, topological
from mlir_passes.schedule.problem import START, Op, Problem, Tensor


@dataclass(frozen=True)
class Cost:
    """What a call or a transfer takes."""

    time_s: float
    energy_j: float


class Costs(Protocol):
    """What calls and transfers take. row: the place of a call in a plan that keeps everything, from 0."""

    def call(self, row: int, kernel: KernelText) -> Cost: ...

    def page_out(self, bytes_: int) -> Cost: ...

    def page_in(self, bytes_: int) -> Cost: ...


def problem_of(
    settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int], n_state: int, n_batch: int, costs: Costs
) -> Problem:
    """The problem of a settled graph whose kernels have `keys` and want `workspaces` bytes (by key).

    Ops are its calls in the order of a plan that keeps everything: an op's name is its call's site ("arg5'copy" for a
    call that only puts new state into its place), its source the call's number. Tensors are storages, which views
    share; a tensor's source is its storage. They are named "arg5" (state, batch) and "op17#0" (first output of op17).
    What writes state in place reads it, if only for its memory, and makes nothing.

    Where a later op reads state in its new content, that state is not pageable, and the new content is a tensor of no
    bytes and no source, "arg5'new", which only says who goes first.
    """
    return _Reading(settled, n_state, n_batch).problem(keys, workspaces, costs)


@dataclass
class _Use:
    """Who makes and reads a storage, by row. after: who reads what the updater wrote."""

    name: str
    bytes: int
    maker: int = START
    readers: list[int] = field(default_factory=list[int])
    updater: int = -1
    after: list[int] = field(default_factory=list[int])


class _Reading:
    def __init__(self, settled: Settled, n_state: int, n_batch: int) -> None:
        self._graph = settled.graph
        self._order = topological(settled.before)
        self._place = {name: settled.shares.get(store, store) for name, store in self._graph.storage.items()}
        self._state = self._graph.args[:n_state]
        self._batch = self._graph.args[n_state : n_state + n_batch]
        self._names = [_name(self._graph, number) for number in self._order]
        self._uses = {a: _Use(a, self._graph.types[a].bytes) for a in (*self._state, *self._batch)}
        for row, number in enumerate(self._order):
            self._note(row, self._graph.calls[number])

    def _note(self, row: int, call: Call) -> None:
        for value in call.inputs:
            use = self._uses[self._place[value]]
            readers = use.after if 0 <= use.updater < row else use.readers
            if row not in readers:
                readers.append(row)
        for index, value in enumerate(call.outputs):
            store = self._place[value]
            if store in self._state:
                use = self._uses[store]
                use.updater = row
                use.readers += [row] if row not in use.readers else []
            elif store not in self._uses:
                name = f"{self._names[row]}#{index}"
                self._uses[store] = _Use(name, self._graph.types[store].bytes, row)

    def problem(self, keys: Sequence[str], workspaces: Mapping[str, int], costs: Costs) -> Problem:
        metrics = {self._place[value] for value in self._graph.returns}
        tensors: list[Tensor] = []
        for store, use in self._uses.items():
            tensors.append(self._tensor(store, use, store in metrics, costs))
            if use.after:
                tensors.append(Tensor(f"{store}'new", 0, use.updater, tuple(use.after), final=True, pageable=False))
        reads: list[list[int]] = [[] for _ in self._order]
        makes: list[list[int]] = [[] for _ in self._order]
        for index, tensor in enumerate(tensors):
            for row in tensor.readers:
                reads[row].append(index)
            if tensor.maker != START:
                makes[tensor.maker].append(index)
        ops: list[Op] = []
        for row, number in enumerate(self._order):
            kernel = self._graph.calls[number].kernel
            cost = costs.call(row, self._graph.kernels[kernel])
            ops.append(
                Op(
                    self._names[row], tuple(reads[row]), tuple(makes[row]), cost.time_s, cost.energy_j,
                    workspaces[keys[kernel]], number,
                )
            )  # fmt: skip
        return Problem(tuple(ops), tuple(tensors))

    def _tensor(self, store: str, use: _Use, metric: bool, costs: Costs) -> Tensor:
        out, back = costs.page_out(use.bytes), costs.page_in(use.bytes)
        return Tensor(
            use.name,
            use.bytes,
            use.maker,
            tuple(use.readers),
            use.updater,
            final=metric or use.maker == START,
            pageable=store not in self._batch and not use.after,
            out_s=out.time_s,
            out_j=out.energy_j,
            in_s=back.time_s,
            in_j=back.energy_j,
            source=store,
        )


def _name(graph: KernelGraph, number: int) -> str:
    """The site of a call; of one that only puts new state into its place, by that."""
    call = graph.calls[number]
    if call.site:
        return call.site
    return f"{call.outputs[0]}'copy" if call.outputs[0] in graph.args else f"call{number}"

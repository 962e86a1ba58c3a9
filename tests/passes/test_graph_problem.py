"""Problems of random graphs: their memory is the plan's, and any order that they allow computes the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from toy_graphs import kernel_output, plan_of, random_graph, run_graph

from mlir_passes.graph import KernelGraph, KernelText
from mlir_passes.plan import Settled
from mlir_passes.program import Plan
from mlir_passes.schedule.from_graph import Cost, problem_of
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import keep_all, replay

SEEDS = range(200)


class Nothing:
    def call(self, row: int, kernel: KernelText) -> Cost:
        return Cost(0.0, 0.0)

    def page_out(self, bytes_: int) -> Cost:
        return Cost(0.0, 0.0)

    page_in = page_out


def live_peak(plan: Plan) -> int:
    """Most bytes of buffers that hold something at one call, from the plan's calls alone."""
    last = len(plan.calls)
    spans: list[tuple[int, int]] = []
    for index, buffer in enumerate(plan.buffers):
        touched = [n for n, call in enumerate(plan.calls) if index in call.args]
        outlives = buffer.role in ("state", "batch", "metric")
        first = 0 if buffer.role in ("state", "batch") else touched[0]
        spans.append((first, last if outlives else touched[-1]))
    sizes = [b.bytes for b in plan.buffers]
    return max(
        sum(size for size, (first, end) in zip(sizes, spans, strict=True) if first <= n <= end) for n in range(last + 1)
    )


def random_order(problem: Problem, rng: random.Random) -> list[int]:
    """An order that the tensors allow: makers before readers, readers before updaters."""
    before: list[set[int]] = [set() for _ in problem.ops]
    for tensor in problem.tensors:
        for reader in tensor.readers:
            before[reader] |= {tensor.maker} - {START, reader}
        if tensor.updater >= 0:
            before[tensor.updater] |= set(tensor.readers) - {tensor.updater}
    order: list[int] = []
    while len(order) < len(before):
        order.append(rng.choice([n for n, b in enumerate(before) if n not in order and b <= set(order)]))
    return order


def run_in_place(settled: Settled, calls: Sequence[int], arguments: Sequence[bytes]) -> dict[str, bytes]:
    """What stands in each storage when these calls were run, new state in the place of the old."""
    graph = settled.graph
    place = {name: settled.shares.get(store, store) for name, store in graph.storage.items()}
    memory = dict(zip(graph.args, arguments, strict=True))
    for number in calls:
        call = graph.calls[number]
        inputs = [memory[place[v]] for v in call.inputs]
        made = kernel_output(graph.kernels[call.kernel].text, inputs, [graph.types[v].bytes for v in call.outputs])
        memory.update(zip([place[v] for v in call.outputs], made, strict=True))
    return {name: memory[store] for name, store in place.items() if store in memory}


def drawn(seed: int) -> tuple[KernelGraph, Settled, Plan, Problem, int, random.Random]:
    rng = random.Random(seed)
    graph, n_state, n_batch = random_graph(rng)
    workspaces = {k.text: rng.choice((0, 0, 64, 300)) for k in graph.kernels}
    settled, keys, plan = plan_of(graph, n_state, n_batch, workspaces)
    room = {key: workspaces.get(key, 0) for key in keys}
    return graph, settled, plan, problem_of(settled, keys, room, n_state, n_batch, Nothing()), n_state, rng


def test_keeping_all_takes_the_live_bytes_of_the_plan():
    for seed in SEEDS:
        _, _, plan, problem, _, _ = drawn(seed)
        assert replay(problem, keep_all(problem)).peak_bytes == live_peak(plan) <= plan.peak_bytes, seed


@pytest.mark.parametrize("part", range(2))
def test_any_order_that_the_problem_allows_computes_the_same(part: int):
    reordered = 0
    for seed in SEEDS[part::2]:
        graph, settled, _, problem, n_state, rng = drawn(seed)
        order = random_order(problem, rng)
        other = problem.reordered(order)
        replay(other, keep_all(other))
        arguments = [rng.randbytes(graph.types[a].bytes) for a in graph.args]
        found = run_in_place(settled, [op.source for op in other.ops], arguments)
        expected = run_graph(graph, arguments)
        state = [found[a] for a in graph.args[:n_state]]
        assert [*state, *(found[m] for m in graph.returns[n_state:])] == expected, seed
        reordered += order != sorted(order)
    assert reordered > len(SEEDS) // 8

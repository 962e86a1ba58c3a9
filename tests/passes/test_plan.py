"""Plans of random graphs, run on an arena that shows every overlap, against the graph run without an arena."""

from __future__ import annotations

import random

import numpy as np
import pytest
from toy_graphs import PlanMachine, plan_of, random_graph, run_graph

from mlir_passes.arena import ALIGN
from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.program import Plan
from mlir_passes.space import TensorType

SEEDS = range(300)
F4, F8 = TensorType((4,), "f32"), TensorType((8,), "f32")


def random_workspaces(graph: KernelGraph, rng: random.Random) -> dict[str, int]:
    return {k.text: rng.choice((0, 0, 0, 64, 300)) for k in graph.kernels}


def lifetimes(plan: Plan) -> list[tuple[int, int]]:
    """First and last call that touches each buffer; state and batch stand from before the first to after the last."""
    last = len(plan.calls)
    spans = []
    for index, buffer in enumerate(plan.buffers):
        touched = [n for n, call in enumerate(plan.calls) if index in call.args]
        if buffer.role in ("state", "batch"):
            spans.append((-1, last))
        else:
            spans.append((touched[0], last if buffer.role == "metric" else touched[-1]))
    return spans


@pytest.mark.parametrize("part", range(4))
def test_the_plan_computes_what_the_graph_says_over_three_steps(part: int):
    for seed in SEEDS[part::4]:
        rng = random.Random(seed)
        graph, n_state, n_batch = random_graph(rng)
        settled, keys, plan = plan_of(graph, n_state, n_batch, random_workspaces(graph, rng))
        machine = PlanMachine(plan, dict(zip(keys, settled.graph.kernels, strict=True)))
        state = [rng.randbytes(graph.types[a].bytes) for a in graph.args[:n_state]]
        machine.write(plan.state, state)
        for _ in range(3):
            batch = [rng.randbytes(graph.types[a].bytes) for a in graph.args[n_state:]]
            machine.write(plan.batch, batch)
            machine.run()
            results = run_graph(graph, [*state, *batch])
            state = results[:n_state]
            assert machine.read(plan.state) == state, seed
            assert machine.read(plan.metrics) == results[n_state:], seed
            assert machine.read(plan.batch) == batch, seed


def test_no_two_live_buffers_overlap_and_every_buffer_is_aligned():
    for seed in SEEDS:
        rng = random.Random(seed)
        graph, n_state, n_batch = random_graph(rng)
        _, _, plan = plan_of(graph, n_state, n_batch, random_workspaces(graph, rng))
        spans = lifetimes(plan)
        for i, a in enumerate(plan.buffers):
            assert a.offset % ALIGN == 0
            for j, b in enumerate(plan.buffers[:i]):
                together = spans[i][0] <= spans[j][1] and spans[j][0] <= spans[i][1]
                overlap = a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes
                assert not (together and overlap), (seed, a, b)


def test_peak_is_the_end_of_the_highest_buffer_and_no_less_than_what_lives_at_once():
    for seed in SEEDS:
        rng = random.Random(seed)
        graph, n_state, n_batch = random_graph(rng)
        _, _, plan = plan_of(graph, n_state, n_batch, random_workspaces(graph, rng))
        assert plan.peak_bytes == max(b.offset + b.bytes for b in plan.buffers)
        spans = lifetimes(plan)
        for step in range(len(plan.calls)):
            live = sum(b.bytes for b, (first, last) in zip(plan.buffers, spans, strict=True) if first <= step <= last)
            assert live <= plan.peak_bytes


def test_every_call_runs_once_and_after_what_it_reads():
    for seed in SEEDS:
        graph, n_state, n_batch = random_graph(random.Random(seed))
        settled, keys, plan = plan_of(graph, n_state, n_batch, {})
        assert sorted(c.kernel for c in plan.calls) == sorted(keys[c.kernel] for c in settled.graph.calls)
        at = {call.kernel: i for i, call in enumerate(plan.calls)}  # toy kernels differ from call to call
        made_by = {o: keys[c.kernel] for c in graph.calls for o in c.outputs}
        for call in graph.calls:
            for value in call.inputs:
                if graph.storage[value] in made_by:
                    assert at[made_by[graph.storage[value]]] < at[keys[call.kernel]]


def sgd(later_reader: bool = False, elementwise: bool = True, result: TensorType = F4) -> KernelGraph:
    """gradient = g(w, x); w' = w - gradient; with `later_reader` a metric that reads both w and w'."""
    pairs = ((0, 2),) if elementwise else ()
    kernels = [
        KernelText("toy", "gradient", 2, 1, 0, 0, 0),
        KernelText("toy", "update", 2, 1, 0, 0, 0, pairs),
        KernelText("toy", "norm", 2, 1, 0, 0, 0),
    ]
    calls = [Call(0, ("arg0", "arg1"), ("g",)), Call(1, ("arg0", "g"), ("w",))]
    if later_reader:
        calls.append(Call(2, ("arg0", "w"), ("m",)))
    types = {"arg0": F4, "arg1": F8, "g": F4, "w": result, **({"m": F4} if later_reader else {})}
    returns = ("w", "m") if later_reader else ("w",)
    return KernelGraph(tuple(kernels), tuple(calls), types, {v: v for v in types}, ("arg0", "arg1"), returns)


def test_sgd_update_happens_in_place():
    settled, _, plan = plan_of(sgd(), 1, 1, {})
    assert settled.shares == {"w": "arg0"}
    (update,) = [c for c in plan.calls if c.kernel == "update"]
    assert update.args[0] == update.args[2] == plan.state[0]
    assert [b.role for b in plan.buffers] == ["state", "batch", "activation"]


def test_reader_of_the_old_state_after_the_new_one_forbids_in_place():
    settled, _, plan = plan_of(sgd(later_reader=True), 1, 1, {})
    assert settled.shares == {}
    assert "memref.copy" in plan.calls[-1].kernel
    assert plan.calls[-1].args[1] == plan.state[0]
    assert len(plan.metrics) == 1


def test_kernel_that_reads_the_old_state_out_of_order_forbids_in_place():
    settled, _, plan = plan_of(sgd(elementwise=False), 1, 1, {})
    assert settled.shares == {}
    assert len(plan.calls) == 3


def test_reader_that_can_run_first_is_ordered_before_the_update():
    graph = sgd()
    late = KernelText("toy", "late", 1, 1, 0, 0, 0)
    graph = KernelGraph(
        (*graph.kernels, late),
        (*graph.calls, Call(3, ("arg0",), ("m",))),
        {**graph.types, "m": F4},
        {**graph.storage, "m": "m"},
        graph.args,
        ("w", "m"),
    )
    settled, _, plan = plan_of(graph, 1, 1, {})
    assert settled.shares == {"w": "arg0"}
    assert [c.kernel for c in plan.calls] == ["gradient", "late", "update"]


def test_state_that_is_returned_unchanged_costs_nothing():
    graph = KernelGraph((), (), {"arg0": F4, "arg1": F8}, {"arg0": "arg0", "arg1": "arg1"}, ("arg0", "arg1"), ("arg0",))
    _, _, plan = plan_of(graph, 1, 1, {})
    assert plan.calls == () and plan.metrics == ()
    assert plan.peak_bytes == ALIGN + 16  # 32 bytes of batch, then 16 of state


def test_disjoint_lives_share_bytes():
    """A chain of equal kernels needs two buffers, whatever its length."""
    kernels = tuple(KernelText("toy", f"k{i}", 1, 1, 0, 0, 0) for i in range(10))
    calls = tuple(Call(i, (f"v{i - 1}" if i else "arg0",), (f"v{i}",)) for i in range(10))
    types = {"arg0": F8, **{f"v{i}": F8 for i in range(10)}}
    graph = KernelGraph(kernels, calls, types, {v: v for v in types}, ("arg0",), ("v9",))
    _, _, plan = plan_of(graph, 0, 1, {})
    assert plan.peak_bytes == 2 * ALIGN + F8.bytes


def test_overlap_is_seen_by_the_machine():
    """The check itself fails where a buffer is moved onto a live one."""
    graph = sgd()
    settled, keys, plan = plan_of(graph, 1, 1, {})
    batch, work = plan.buffers[plan.batch[0]], plan.buffers[2]
    moved = tuple(
        b if b != work else type(b)(b.name, b.role, batch.offset, b.bytes, b.shape, b.dtype) for b in plan.buffers
    )
    bad = Plan(moved, plan.calls, plan.state, plan.batch, plan.metrics, plan.peak_bytes)
    machine = PlanMachine(bad, dict(zip(keys, settled.graph.kernels, strict=True)))
    state, data = [bytes(16)], [bytes(np.arange(32, dtype=np.uint8))]
    machine.write(bad.state, state)
    machine.write(bad.batch, data)
    machine.run()
    assert machine.read(bad.state) != run_graph(graph, [*state, *data])[:1]

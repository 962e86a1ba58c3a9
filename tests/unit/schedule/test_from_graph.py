"""The problem of a kernel graph: facts by hand, and its memory against the plan that the compiler makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlir_passes.canonical import canonical_module
from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.partition import partition
from mlir_passes.plan import make_plan, settle_state
from mlir_passes.schedule.from_graph import Cost, problem_of
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import keep_all, replay
from mlir_passes.space import TensorType
from workloads.prepare import prepare

F4, F8 = TensorType((4,), "f32"), TensorType((8,), "f32")


class ByBytes:
    """Costs that tell which call and which transfer they are of."""

    def call(self, row: int, kernel: KernelText) -> Cost:
        return Cost(float(row), float(kernel.flops))

    def page_out(self, bytes_: int) -> Cost:
        return Cost(2.0 * bytes_, 3.0 * bytes_)

    def page_in(self, bytes_: int) -> Cost:
        return Cost(5.0 * bytes_, 7.0 * bytes_)


def kernel(name: str, inputs: int, outputs: int, inplace: tuple[tuple[int, int], ...] = ()) -> KernelText:
    return KernelText("toy", name, inputs, outputs, 10 * len(name), 0, 0, inplace)


def toy() -> KernelGraph:
    """Two state arguments and a batch. op3 makes two values; op5 reads a view of one; op7 writes arg0 in place; op9
    makes the new arg1 before op11, which makes the metric, reads the old one."""
    types = {"arg0": F4, "arg1": F8, "arg2": F4, "v3": F8, "v4": F4, "v5": F8, "v6": F4, "v7": F8, "v8": F4, "v9": F4}
    kernels = (
        kernel("a", 2, 2),
        kernel("bb", 1, 1),
        kernel("ccc", 2, 1, ((0, 2),)),
        kernel("dddd", 2, 1),
        kernel("eeeee", 2, 1),
    )
    calls = (
        Call(0, ("arg2", "arg0"), ("v3", "v4"), "op3"),
        Call(1, ("v5",), ("v6",), "op5"),
        Call(2, ("arg0", "v4"), ("v9",), "op7"),
        Call(3, ("v6", "v3"), ("v7",), "op9"),
        Call(4, ("arg1", "v7"), ("v8",), "op11"),
    )
    storage = {name: name for name in types} | {"v5": "v3"}
    return KernelGraph(kernels, calls, types, storage, ("arg0", "arg1", "arg2"), ("v9", "v7", "v8"))


def problem(found: KernelGraph, n_state: int = 2, updated: int = 2, workspace: int = 0) -> Problem:
    settled = settle_state(found, updated)
    keys = [k.text for k in settled.graph.kernels]
    workspaces = {key: workspace * (key == "bb") for key in keys}
    return problem_of(settled, keys, workspaces, n_state, 1, ByBytes())


def test_facts_of_a_small_graph():
    made = problem(toy(), workspace=64)
    tensors = {t.name: t for t in made.tensors}
    rows = {op.name: row for row, op in enumerate(made.ops)}
    assert list(rows) == ["op3", "op5", "op7", "op9", "op11", "arg1'copy"]
    assert [op.source for op in made.ops] == [0, 1, 2, 3, 4, 5]
    assert [op.workspace for op in made.ops] == [0, 64, 0, 0, 0, 0]
    assert [(op.time_s, op.energy_j) for op in made.ops[:3]] == [(0.0, 10.0), (1.0, 20.0), (2.0, 30.0)]
    assert set(tensors) == {"arg0", "arg1", "arg2", "op3#0", "op3#1", "op5#0", "op9#0", "op11#0"}
    # two outputs, one read through a view
    assert (tensors["op3#0"].source, tensors["op3#0"].readers) == ("v3", (rows["op5"], rows["op9"]))
    assert tensors["op3#0"].bytes == 32 and tensors["op3#1"].bytes == 16
    assert {made.tensors[t].name for t in made.ops[0].makes} == {"op3#0", "op3#1"}
    # in place: read by the op that writes it, made by none
    state = tensors["arg0"]
    assert (state.maker, state.readers, state.updater) == (START, (rows["op3"], rows["op7"]), rows["op7"])
    assert (state.final, state.pageable, made.ops[rows["op7"]].makes) == (True, True, ())
    # a late copy reads the old buffer only because it writes there
    late = tensors["arg1"]
    assert (late.readers, late.updater) == ((rows["op11"], rows["arg1'copy"]), rows["arg1'copy"])
    assert tensors["op9#0"].readers == (rows["op11"], rows["arg1'copy"])
    # batch and metric
    assert (tensors["arg2"].final, tensors["arg2"].pageable, tensors["arg2"].updater) == (True, False, -1)
    assert (tensors["op11#0"].final, tensors["op11#0"].maker) == (True, rows["op11"])
    costs = tensors["arg0"]
    assert (costs.out_s, costs.out_j, costs.in_s, costs.in_j) == (32.0, 48.0, 80.0, 112.0)


def test_state_that_only_is_read_has_no_updater():
    made = problem(replace(toy(), returns=("v7", "v8")), updated=0)
    state = next(t for t in made.tensors if t.name == "arg1")
    assert (state.updater, state.final, state.pageable) == (-1, True, True)
    assert {t.name for t in made.tensors if t.final} == {"arg0", "arg1", "arg2", "op9#0", "op11#0"}


def test_who_reads_state_in_its_new_content_stays_behind_the_op_that_writes_it():
    found = toy()
    calls = (*found.calls, Call(1, ("v9",), ("v10",), "op13"))
    made = problem(replace(found, calls=calls, types=found.types | {"v10": F4}, storage=found.storage | {"v10": "v10"}))
    tensors = {t.name: t for t in made.tensors}
    rows = {op.name: row for row, op in enumerate(made.ops)}
    assert not tensors["arg0"].pageable and rows["op13"] not in tensors["arg0"].readers
    new = tensors["arg0'new"]
    assert (new.bytes, new.source, new.maker, new.readers) == (0, "", rows["op7"], (rows["op13"],))
    order = [row for row in range(len(made.ops)) if row != rows["op13"]]
    with pytest.raises(ValueError, match="arg0'new would be read before it is made"):
        made.reordered([rows["op13"], *order])
    replay(made, keep_all(made))


def test_calls_without_sites_are_told_apart_by_number():
    found = toy()
    made = problem(replace(found, calls=tuple(replace(call, site="") for call in found.calls)))
    assert [op.name for op in made.ops] == ["call0", "call1", "call2", "call3", "call4", "arg1'copy"]


@pytest.mark.parametrize("workload", ["digits", "lenet", "bert"])
def test_keeping_all_takes_what_the_plan_takes_but_for_its_gaps(workload: str):
    pytest.importorskip("jax")
    prepared = prepare(workload)
    sizes = len(prepared.signature.state), len(prepared.signature.batch)
    settled = settle_state(partition(canonical_module(prepared.step_text, "step"), "step", sizes[0]), sizes[0])
    keys = [str(number) for number in range(len(settled.graph.kernels))]
    workspaces = {key: 4096 * (int(key) % 3 == 0) for key in keys}
    made = problem_of(settled, keys, workspaces, *sizes, ByBytes())
    usage, plan = replay(made, keep_all(made)), make_plan(settled, keys, workspaces, *sizes)
    assert usage.peak_bytes <= plan.peak_bytes <= 1.01 * usage.peak_bytes
    assert usage.energy_j == sum(settled.graph.kernels[call.kernel].flops for call in settled.graph.calls)
    assert made.reordered(range(len(made.ops))) == made
    assert len({op.name for op in made.ops}) == len(made.ops)
    assert len({tensor.name for tensor in made.tensors}) == len(made.tensors)

"""The loader and the table runner against NumPy, and the arena's high-water mark against the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fitness_toys import WORK, kernel, program, pull

from fitness.cpu import CpuRunner
from fitness.errors import FitnessError
from fitness.loader import Loader
from mlir_passes import llvm
from mlir_passes.program import Buffer, KernelCall, Plan

X = np.arange(8, dtype=np.float32)
W = np.full(8, 2.0, np.float32)

SINE = """
declare float @sinf(float)
define void @sine(ptr %a) {
  %x = load float, ptr %a
  %y = call float @sinf(float %x)
  store float %y, ptr %a
  ret void
}
"""
PEEK = """
define void @peek(ptr %w, ptr %r) {
  %d = load float, ptr %r
  store float %d, ptr %w
  ret void
}
"""
SPILL = """
define void @spill(ptr %w) {
  %p = getelementptr float, ptr %w, i64 300
  store float 1.0, ptr %p
  ret void
}
"""


def test_step_equals_numpy_over_several_runs():
    runner = CpuRunner(pull())
    runner.write_state([W])
    runner.write_batch([X])
    w = W.copy()
    for _ in range(5):
        runner.run()
        loss = np.sum((w - X) ** 2, dtype=np.float32)
        w = w - np.float32(0.5) * (w - X)
        np.testing.assert_array_equal(runner.state[0], w)
        np.testing.assert_allclose(runner.metrics[0], loss, rtol=1e-6)


def test_many_steps_in_one_call_equal_single_steps():
    one, many = CpuRunner(pull()), CpuRunner(pull())
    for runner in (one, many):
        runner.write_state([W])
        runner.write_batch([X])
    for _ in range(7):
        one.run()
    many.run(7)
    assert one.outputs() == many.outputs()
    many.run(0)
    assert one.outputs() == many.outputs()


def test_process_symbols_resolve():
    buffer = Buffer("a", "state", 0, 4, (), "float32")
    plan = Plan((buffer,), (KernelCall("k", (0,)),), (0,), (), (), 4)
    runner = CpuRunner(program(plan, [kernel("k", "sine", SINE, 1, 4, 4)]))
    runner.write_state([np.float32(0.5)])
    runner.run()
    assert runner.state[0] == pytest.approx(np.sin(0.5), rel=1e-6)


def test_unknown_symbol_says_which():
    text = "declare void @no_such_function()\ndefine void @k() {\n call void @no_such_function()\n ret void\n}"
    loader = Loader()
    loader.add(llvm.object_from_ir(text), "k")
    with pytest.raises(FitnessError, match=r"symbol k does not link.*"):
        loader.address("k")


def test_damaged_object_is_refused():
    with pytest.raises(FitnessError, match=r"does not load|does not link"):
        loader = Loader()
        loader.add(b"not an object", "k")
        loader.address("k")


def test_arena_is_aligned_and_row_width_grows_with_arguments():
    buffers = tuple(Buffer(f"b{i}", "activation", 4 * i, 4, (), "float32") for i in range(9))
    args = ", ".join(f"ptr %a{i}" for i in range(9))
    text = f"define void @last({args}) {{\n store float 3.0, ptr %a8\n ret void\n}}"
    plan = Plan(buffers, (KernelCall("k", tuple(range(9))),), (0,), (), (8,), 36)
    runner = CpuRunner(program(plan, [kernel("k", "last", text, 0, 0, 4)]))
    runner.run()
    assert runner.arena.ctypes.data % 64 == 0
    assert runner.metrics[0] == 3.0


@pytest.mark.parametrize("guard", [False, True])
def test_high_water_equals_planned_peak(guard: bool):
    toy = pull()
    assert CpuRunner(toy, slack=256, guard=guard).high_water([W], [X]) == toy.plan.peak_bytes


def test_too_large_a_plan_is_caught():
    assert CpuRunner(pull(peak=288), slack=256).high_water([W], [X]) == 224


def test_write_past_the_plan_is_caught():
    toy = pull()
    spilling, data = kernel("k9", "spill", SPILL, 0, 0, 4)
    plan = replace(toy.plan, calls=(*toy.plan.calls, KernelCall("k9", (0,))))
    bad = replace(toy, plan=plan, kernels={**toy.kernels, "k9": spilling}, objects={**toy.objects, "k9": data})
    assert CpuRunner(bad, slack=2048).high_water([W], [X]) == 1204


def test_buffer_outside_the_arena_never_runs():
    with pytest.raises(FitnessError, match="buffer r ends at 260, the arena at 224"):
        CpuRunner(pull(work=replace(WORK, offset=228)))


def test_buffer_of_wrong_size_never_runs():
    with pytest.raises(FitnessError, match="buffer r has 32 bytes, its shape and type need 36"):
        CpuRunner(pull(work=replace(WORK, shape=(9,))))


def test_reading_what_nobody_wrote_is_caught():
    buffers = (Buffer("w", "state", 0, 4, (), "float32"), Buffer("r", "activation", 64, 4, (), "float32"))
    plan = Plan(buffers, (KernelCall("k", (0, 1)),), (0,), (), (), 68)
    runner = CpuRunner(program(plan, [kernel("k", "peek", PEEK, 0, 4, 4)]), slack=64)
    with pytest.raises(FitnessError, match="nothing wrote"):
        runner.high_water([np.float32(1)], [])

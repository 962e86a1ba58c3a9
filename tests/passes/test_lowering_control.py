"""Compiled control flow against NumPy: scalars, loops over tensors, and the workspace that these need."""

from __future__ import annotations

import numpy as np
import pytest
from small_steps import compiled, floats, run

from fitness.cpu import CpuRunner

POWER = """func.func @step(%t: tensor<f32>, %n: tensor<i32>) -> (tensor<f32>, tensor<f32>) {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0 : i32
  %step = arith.constant 1 : i32
  %i0 = arith.constant 0 : index
  %b = tensor.extract %t[] : tensor<f32>
  %k = tensor.extract %n[] : tensor<i32>
  %negative = arith.cmpi slt, %k, %zero : i32
  %size = math.absi %k : i32
  %r:2 = scf.while (%i = %zero, %acc = %one) : (i32, f32) -> (i32, f32) {
    %go = arith.cmpi slt, %i, %size : i32
    scf.condition(%go) %i, %acc : i32, f32
  } do {
  ^bb0(%i: i32, %acc: f32):
    %next = arith.addi %i, %step : i32
    %m = arith.mulf %acc, %b : f32
    scf.yield %next, %m : i32, f32
  }
  %p = scf.if %negative -> f32 {
    %inverse = arith.divf %one, %r#1 : f32
    scf.yield %inverse : f32
  } else {
    scf.yield %r#1 : f32
  }
  %e = tensor.from_elements %p : tensor<f32>
  %x = tensor.empty() : tensor<f32>
  %sq = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%t : tensor<f32>) outs(%x : tensor<f32>) {
  ^bb0(%v: f32, %o: f32):
    %three = arith.constant 3 : i32
    %w = math.fpowi %v, %three : f32, i32
    linalg.yield %w : f32
  } -> tensor<f32>
  return %e, %sq : tensor<f32>, tensor<f32>
}"""


@pytest.mark.parametrize("exponent", [-3, 0, 1, 7])
def test_integer_power_by_control_flow_on_scalars(exponent: int):
    power, cube = run(POWER, np.float32(1.25), np.int32(exponent))
    np.testing.assert_allclose(power, 1.25**exponent, rtol=1e-6)
    np.testing.assert_allclose(cube, 1.25**3, rtol=1e-6)


LOOP = """#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j, k) -> (i, k)>
#column = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
func.func @step(%x: tensor<20x20xf32>, %m: tensor<20x20xf32>, %n: tensor<i32>) -> tensor<20x20xf32> {
  %zero = arith.constant 0.0 : f32
  %i0 = arith.constant 0 : i32
  %i1 = arith.constant 1 : i32
  %size = tensor.extract %n[] : tensor<i32>
  %r:2 = scf.while (%i = %i0, %v = %x) : (i32, tensor<20x20xf32>) -> (i32, tensor<20x20xf32>) {
    %go = arith.cmpi slt, %i, %size : i32
    scf.condition(%go) %i, %v : i32, tensor<20x20xf32>
  } do {
  ^bb0(%i: i32, %v: tensor<20x20xf32>):
    %next = arith.addi %i, %i1 : i32
    %e = tensor.empty() : tensor<20x20xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<20x20xf32>) -> tensor<20x20xf32>
    %w = linalg.generic {indexing_maps = [#row, #column, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%m, %v : tensor<20x20xf32>, tensor<20x20xf32>) outs(%f : tensor<20x20xf32>) {
    ^bb0(%p: f32, %q: f32, %acc: f32):
      %a = arith.mulf %p, %q : f32
      %s = arith.addf %acc, %a : f32
      linalg.yield %s : f32
    } -> tensor<20x20xf32>
    scf.yield %next, %w : i32, tensor<20x20xf32>
  }
  return %r#1 : tensor<20x20xf32>
}"""


@pytest.mark.parametrize("times", [0, 1, 4])
def test_while_loop_over_tensors(times: int):
    x, m = floats(20, 20), floats(20, 20, seed=1) / 5
    exact = np.linalg.matrix_power(m.astype(np.float64), times) @ x
    np.testing.assert_allclose(run(LOOP, x, m, np.int32(times))[0], exact, rtol=1e-4, atol=1e-5)


def test_large_temporaries_are_planned_in_the_arena():
    program = compiled(LOOP, 0, 3)
    workspaces = [b for b in program.plan.buffers if b.role == "workspace"]
    assert workspaces and all(b.bytes >= 20 * 20 * 4 for b in workspaces)
    arguments = [floats(20, 20), floats(20, 20, seed=1), np.int32(3)]
    assert CpuRunner(program, slack=256).high_water([], arguments) == program.plan.peak_bytes


TWO = """func.func @step(%x: tensor<20x20xf32>, %y: tensor<20x20xf32>, %n: tensor<i32>)
    -> (tensor<20x20xf32>, tensor<20x20xf32>) {
  %i0 = arith.constant 0 : i32
  %i1 = arith.constant 1 : i32
  %size = tensor.extract %n[] : tensor<i32>
  %r:3 = scf.while (%i = %i0, %a = %x, %b = %y) : (i32, tensor<20x20xf32>, tensor<20x20xf32>)
      -> (i32, tensor<20x20xf32>, tensor<20x20xf32>) {
    %go = arith.cmpi slt, %i, %size : i32
    scf.condition(%go) %i, %a, %b : i32, tensor<20x20xf32>, tensor<20x20xf32>
  } do {
  ^bb0(%i: i32, %a: tensor<20x20xf32>, %b: tensor<20x20xf32>):
    %next = arith.addi %i, %i1 : i32
    %e = tensor.empty() : tensor<20x20xf32>
    %s = linalg.add ins(%a, %b : tensor<20x20xf32>, tensor<20x20xf32>)
        outs(%e : tensor<20x20xf32>) -> tensor<20x20xf32>
    %d = linalg.sub ins(%a, %b : tensor<20x20xf32>, tensor<20x20xf32>)
        outs(%e : tensor<20x20xf32>) -> tensor<20x20xf32>
    scf.yield %next, %s, %d : i32, tensor<20x20xf32>, tensor<20x20xf32>
  }
  return %r#1, %r#2 : tensor<20x20xf32>, tensor<20x20xf32>
}"""


@pytest.mark.parametrize("times", [0, 1, 2, 5])
def test_two_temporaries_of_one_loop_do_not_touch(times: int):
    x, y = floats(20, 20), floats(20, 20, seed=1)
    a, b = x.astype(np.float64), y.astype(np.float64)
    for _ in range(times):
        a, b = a + b, a - b
    for got, exact in zip(run(TWO, x, y, np.int32(times)), (a, b), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)
    workspaces = [w for w in compiled(TWO, 0, 3).plan.buffers if w.role == "workspace"]
    assert workspaces and workspaces[0].bytes >= 2 * 20 * 20 * 4

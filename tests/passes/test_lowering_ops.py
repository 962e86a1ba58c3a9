"""Compiled elementwise, reducing, moving and control-flow ops against NumPy in float64, or exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_steps import compiled, floats, run

from fitness.cpu import CpuRunner


def elementwise(code: str, value: str = "%v", shape: str = "9x33", types: tuple[str, ...] = ("f32",), out: str = "f32") -> str:
    """A step of one generic: `code` computes `value` from %p0, %p1, ... of the inputs."""
    names = [f"%x{i}" for i in range(len(types))]
    tensors = [f"tensor<{shape}x{t}>" for t in types]
    same = "affine_map<(i, j) -> (i, j)>"
    blocks = ", ".join(f"%p{i}: {t}" for i, t in enumerate(types))
    return f"""func.func @step({", ".join(f"{n}: {t}" for n, t in zip(names, tensors, strict=True))}) -> tensor<{shape}x{out}> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{shape}x{out}>
  %y = linalg.generic {{indexing_maps = [{", ".join([same] * (len(types) + 1))}],
      iterator_types = ["parallel", "parallel"]}} ins({", ".join(names)} : {", ".join(tensors)})
      outs(%e : tensor<{shape}x{out}>) {{
  ^bb0({blocks}, %o: {out}):
    {code}
    linalg.yield {value} : {out}
  }} -> tensor<{shape}x{out}>
  return %y : tensor<{shape}x{out}>
}}"""


FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "math.exp": (np.exp, -20, 20),
    "math.log": (np.log, 1e-6, 50),
    "math.tanh": (np.tanh, -6, 6),
    "math.sqrt": (np.sqrt, 0, 100),
    "math.log1p": (np.log1p, -0.9, 9),
    "math.expm1": (np.expm1, -5, 5),
    "math.sin": (np.sin, -3, 3),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), 0.01, 100),
    "math.absf": (np.abs, -9, 9),
    "math.floor": (np.floor, -9, 9),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_one_number(name: str):
    exact, low, high = FUNCTIONS[name]
    x = np.random.default_rng(1).uniform(low, high, (9, 33)).astype(np.float32)
    (got,) = run(elementwise(f"%v = {name} %p0 : f32"), x)
    np.testing.assert_allclose(got, exact(x.astype(np.float64)), rtol=1e-6, atol=1e-7)


def test_power():
    x = np.random.default_rng(1).uniform(0.1, 9, (9, 33)).astype(np.float32)
    y = np.random.default_rng(2).uniform(-3, 3, (9, 33)).astype(np.float32)
    (got,) = run(elementwise("%v = math.powf %p0, %p1 : f32", types=("f32", "f32")), x, y)
    np.testing.assert_allclose(got, x.astype(np.float64) ** y, rtol=2e-6)


def test_infinities_and_nan_go_through():
    x = np.zeros((9, 33), np.float32)
    x[0, :4] = [np.inf, -np.inf, np.nan, -0.0]
    (got,) = run(elementwise("%v = arith.maximumf %p0, %zero : f32"), x)
    np.testing.assert_array_equal(got[0, :4], [np.inf, 0, np.nan, 0])


MASKED = """#id = affine_map<(i, j) -> (i, j)>
func.func @step(%x: tensor<9x33xf32>, %y: tensor<9x33xf32>) -> (tensor<9x33xi1>, tensor<9x33xf32>) {
  %em = tensor.empty() : tensor<9x33xi1>
  %e = tensor.empty() : tensor<9x33xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<9x33xf32>, tensor<9x33xf32>) outs(%em : tensor<9x33xi1>) {
  ^bb0(%p: f32, %q: f32, %o: i1):
    %c = arith.cmpf olt, %p, %q : f32
    linalg.yield %c : i1
  } -> tensor<9x33xi1>
  %s = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %x, %y : tensor<9x33xi1>, tensor<9x33xf32>, tensor<9x33xf32>) outs(%e : tensor<9x33xf32>) {
  ^bb0(%c: i1, %p: f32, %q: f32, %o: f32):
    %v = arith.select %c, %q, %p : f32
    linalg.yield %v : f32
  } -> tensor<9x33xf32>
  return %m, %s : tensor<9x33xi1>, tensor<9x33xf32>
}"""


def test_compare_and_select_through_a_mask_tensor():
    x, y = floats(9, 33), floats(9, 33, seed=1)
    mask, chosen = run(MASKED, x, y)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, x < y)
    np.testing.assert_array_equal(chosen, np.maximum(x, y))


def test_mask_as_an_argument():
    text = elementwise("%v = arith.select %p0, %p1, %zero : f32", types=("i1", "f32"))
    x = floats(9, 33)
    np.testing.assert_array_equal(run(text, x > 0, x)[0], np.where(x > 0, x, 0))


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("addi", np.add),
        ("muli", np.multiply),
        ("subi", np.subtract),
        ("xori", np.bitwise_xor),
        ("maxsi", np.maximum),
        ("shrui", lambda a, b: (a.view(np.uint32) >> b.view(np.uint32)).view(np.int32)),
    ],
)
def test_integers_wrap_as_in_numpy(name: str, exact: Callable[[np.ndarray, np.ndarray], np.ndarray]):
    rng = np.random.default_rng(3)
    a = rng.integers(-(2**31), 2**31, (9, 33), dtype=np.int32)
    b = rng.integers(0, 32, (9, 33), dtype=np.int32)
    (got,) = run(elementwise(f"%v = arith.{name} %p0, %p1 : i32", types=("i32", "i32"), out="i32"), a, b)
    np.testing.assert_array_equal(got, exact(a, b))


def test_conversions_between_integers_and_floats():
    code = "%i = arith.fptosi %p0 : f32 to i32\n    %v = arith.sitofp %i : i32 to f32"
    x = floats(9, 33) * 100
    np.testing.assert_array_equal(run(elementwise(code), x)[0], np.trunc(x))


@pytest.mark.parametrize(("kept", "axis", "out"), [("i", 1, 9), ("j", 0, 33)])
@pytest.mark.parametrize(("op", "start"), [("addf", "0.0"), ("maximumf", "0xFF800000")])
def test_reduction_along_one_dimension(kept: str, axis: int, out: int, op: str, start: str):
    text = f"""func.func @step(%x: tensor<9x33xf32>) -> tensor<{out}xf32> {{
  %start = arith.constant {start} : f32
  %e = tensor.empty() : tensor<{out}xf32>
  %f = linalg.fill ins(%start : f32) outs(%e : tensor<{out}xf32>) -> tensor<{out}xf32>
  %y = linalg.reduce {{ arith.{op} }} ins(%x : tensor<9x33xf32>) outs(%f : tensor<{out}xf32>) dimensions = [{axis}]
  return %y : tensor<{out}xf32>
}}"""
    x = floats(9, 33)
    exact = np.sum(x, axis, np.float64) if op == "addf" else np.max(x, axis)
    tolerance = 33 * 2.0**-24 * np.abs(x).sum(axis).max() if op == "addf" else 0.0
    np.testing.assert_allclose(run(text, x)[0], exact, rtol=0, atol=tolerance)


def test_slice_with_strides_and_insertion():
    text = """func.func @step(%x: tensor<9x33xf32>, %y: tensor<4x5xf32>) -> (tensor<4x11xf32>, tensor<9x33xf32>) {
  %s = tensor.extract_slice %x[1, 0] [4, 11] [2, 3] : tensor<9x33xf32> to tensor<4x11xf32>
  %i = tensor.insert_slice %y into %x[2, 7] [4, 5] [1, 2] : tensor<4x5xf32> into tensor<9x33xf32>
  return %s, %i : tensor<4x11xf32>, tensor<9x33xf32>
}"""
    x, y = floats(9, 33), floats(4, 5)
    part, whole = run(text, x, y)
    np.testing.assert_array_equal(part, x[1:9:2, 0:33:3])
    expected = x.copy()
    expected[2:6, 7:17:2] = y
    np.testing.assert_array_equal(whole, expected)


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


def test_scalar_tensor_broadcast_to_a_matrix():
    text = """func.func @step(%x: tensor<f32>) -> tensor<3x7xf32> {
  %e = tensor.empty() : tensor<3x7xf32>
  %y = linalg.broadcast ins(%x : tensor<f32>) outs(%e : tensor<3x7xf32>) dimensions = [0, 1]
  return %y : tensor<3x7xf32>
}"""
    np.testing.assert_array_equal(run(text, np.float32(2.5))[0], np.full((3, 7), 2.5))

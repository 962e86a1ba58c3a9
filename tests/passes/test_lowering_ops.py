"""Compiled elementwise, reducing and moving ops against NumPy in float64, or exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_steps import floats, run


def elementwise(
    code: str, value: str = "%v", shape: str = "9x33", types: tuple[str, ...] = ("f32",), out: str = "f32"
) -> str:
    """A step of one generic: `code` computes `value` from %p0, %p1, ... of the inputs."""
    names = [f"%x{i}" for i in range(len(types))]
    tensors = [f"tensor<{shape}x{t}>" for t in types]
    same = "affine_map<(i, j) -> (i, j)>"
    blocks = ", ".join(f"%p{i}: {t}" for i, t in enumerate(types))
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, tensors, strict=True))
    return f"""func.func @step({arguments}) -> tensor<{shape}x{out}> {{
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
    assert mask.dtype == np.bool_ and set(mask.view(np.uint8).flat) == {0, 1}  # bytes as NumPy wants them
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


def test_scalar_tensor_broadcast_to_a_matrix():
    text = """func.func @step(%x: tensor<f32>) -> tensor<3x7xf32> {
  %e = tensor.empty() : tensor<3x7xf32>
  %y = linalg.broadcast ins(%x : tensor<f32>) outs(%e : tensor<3x7xf32>) dimensions = [0, 1]
  return %y : tensor<3x7xf32>
}"""
    np.testing.assert_array_equal(run(text, np.float32(2.5))[0], np.full((3, 7), 2.5))


def test_elementwise_arithmetic_on_tensors_is_a_linalg_op():
    text = """func.func @step(%x: tensor<3x5xf32>, %y: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %1 = arith.subf %x, %y : tensor<3x5xf32>
  %2 = math.absf %1 : tensor<3x5xf32>
  return %2 : tensor<3x5xf32>
}"""
    x, y = floats(3, 5), floats(3, 5)
    np.testing.assert_allclose(run(text, x, y)[0], np.abs(x.astype(np.float64) - y), rtol=1e-6)

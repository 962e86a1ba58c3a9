"""Compiled steps against NumPy in float64: contractions, convolutions and pooling, with rounding bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_steps import MLP, compiled, floats, mlp_reference, run, run_program

from fitness.cpu import CpuRunner

ULP = 2.0**-24  # half a unit in the last place of a float32 near 1
SIZES = st.sampled_from([1, 7, 10, 16, 17, 33, 100])


def assert_sum_close(got: np.ndarray, exact: np.ndarray, terms: int, magnitude: np.ndarray) -> None:
    """`got` is within the rounding of any order of summing `terms` products whose sizes sum to `magnitude`."""
    assert got.shape == exact.shape
    assert np.all(np.abs(got - exact) <= (terms + 3) * ULP * magnitude + 1e-30)


def matmul_text(m: int, n: int, k: int, a: str, b: str, epilogue: bool = False) -> str:
    """`a` and `b` name the loops of the operands' dimensions, as "mk" or "km", "kn" or "nk"."""
    size = {"m": m, "n": n, "k": k}
    loops = {"m": "d0", "n": "d1", "k": "d2"}

    def tensor(word: str) -> str:
        return f"tensor<{'x'.join(str(size[c]) for c in word)}xf32>"

    def through(word: str) -> str:
        return f"affine_map<(d0, d1, d2) -> ({', '.join(loops[c] for c in word)})>"

    out, bias = tensor("mn"), tensor("n")
    tail, value = "", "%c"
    if epilogue:
        value = "%r"
        tail = f"""
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%c, %bias : {out}, {bias}) outs(%e : {out}) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    %x = arith.maximumf %s, %zero : f32
    linalg.yield %x : f32
  }} -> {out}"""
    return f"""func.func @step(%a: {tensor(a)}, %b: {tensor(b)}, %bias: {bias}) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {out}
  %f = linalg.fill ins(%zero : f32) outs(%e : {out}) -> {out}
  %c = linalg.generic {{indexing_maps = [{through(a)}, {through(b)}, {through("mn")}],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %b : {tensor(a)}, {tensor(b)}) outs(%f : {out}) {{
  ^bb0(%p: f32, %q: f32, %acc: f32):
    %x = arith.mulf %p, %q : f32
    %s = arith.addf %acc, %x : f32
    linalg.yield %s : f32
  }} -> {out}{tail}
  return {value} : {out}
}}"""


@settings(max_examples=8, deadline=None, derandomize=True)
@given(SIZES, SIZES, SIZES, st.sampled_from(["mk", "km"]), st.sampled_from(["kn", "nk"]), st.booleans())
@example(7, 33, 17, "mk", "kn", True)
@example(17, 10, 100, "km", "kn", True)
@example(33, 16, 7, "mk", "nk", True)
@example(10, 17, 33, "km", "nk", True)
@example(1, 1, 1, "mk", "kn", False)
@example(100, 1, 16, "km", "nk", False)
def test_matmul_in_every_transposition(m: int, n: int, k: int, a: str, b: str, epilogue: bool):
    x, y, bias = floats(m, k), floats(k, n, seed=1), floats(n, seed=2)
    arguments = [x if a == "mk" else x.T, y if b == "kn" else y.T, bias]
    (got,) = run(matmul_text(m, n, k, a, b, epilogue), *arguments)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(y)
    if epilogue:
        exact, magnitude = np.maximum(exact + bias, 0), magnitude + np.abs(bias)
    assert_sum_close(got, exact, k, magnitude)


def test_batched_matmul():
    text = """func.func @step(%a: tensor<3x7x10xf32>, %b: tensor<3x10x5xf32>) -> tensor<3x7x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x7x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x7x5xf32>) -> tensor<3x7x5xf32>
  %c = linalg.batch_matmul ins(%a, %b : tensor<3x7x10xf32>, tensor<3x10x5xf32>)
      outs(%f : tensor<3x7x5xf32>) -> tensor<3x7x5xf32>
  return %c : tensor<3x7x5xf32>
}"""
    a, b = floats(3, 7, 10), floats(3, 10, 5, seed=1)
    (got,) = run(text, a, b)
    assert_sum_close(got, a.astype(np.float64) @ b, 10, np.abs(a).astype(np.float64) @ np.abs(b))


def convolution(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """NHWC x HWCF, no padding, in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    kh, kw = w.shape[:2]
    rows, columns = ((s - k) // stride + 1 for s, k in zip(x.shape[1:3], (kh, kw), strict=True))
    out = np.zeros((len(x), rows, columns, w.shape[3]))
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
            out[:, i, j] = np.tensordot(window, w, axes=([1, 2, 3], [0, 1, 2]))
    return out


@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (2, 0), (1, 1), (2, 2)])
def test_convolution(stride: int, pad: int):
    size = (8 + 2 * pad - 3) // stride + 1
    padded, out = f"tensor<2x{8 + 2 * pad}x{8 + 2 * pad}x3xf32>", f"tensor<2x{size}x{size}x5xf32>"
    first = f"""%p = tensor.pad %x low[0, {pad}, {pad}, 0] high[0, {pad}, {pad}, 0] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  }} : tensor<2x8x8x3xf32> to {padded}"""
    text = f"""func.func @step(%x: tensor<2x8x8x3xf32>, %w: tensor<3x3x3x5xf32>) -> {out} {{
  %zero = arith.constant 0.0 : f32
  {first if pad else ""}
  %e = tensor.empty() : {out}
  %f = linalg.fill ins(%zero : f32) outs(%e : {out}) -> {out}
  %c = linalg.conv_2d_nhwc_hwcf {{strides = dense<{stride}> : tensor<2xi64>}}
      ins(%{"p" if pad else "x"}, %w : {padded}, tensor<3x3x3x5xf32>) outs(%f : {out}) -> {out}
  return %c : {out}
}}"""
    x, w = floats(2, 8, 8, 3), floats(3, 3, 3, 5, seed=1)
    (got,) = run(text, x, w)
    wide = np.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    assert_sum_close(got, convolution(wide, w, stride), 27, convolution(np.abs(wide), np.abs(w), stride))


def test_gradient_of_convolution_weights_as_a_generic():
    text = """#x = affine_map<(a, b, c, d, n, i, j) -> (n, i + a, j + b, c)>
#g = affine_map<(a, b, c, d, n, i, j) -> (n, i, j, d)>
#w = affine_map<(a, b, c, d, n, i, j) -> (a, b, c, d)>
func.func @step(%x: tensor<2x7x7x3xf32>, %g: tensor<2x5x5x4xf32>) -> tensor<3x3x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x3x3x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x3x3x4xf32>) -> tensor<3x3x3x4xf32>
  %c = linalg.generic {indexing_maps = [#x, #g, #w], iterator_types = ["parallel", "parallel", "parallel",
      "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %g : tensor<2x7x7x3xf32>, tensor<2x5x5x4xf32>) outs(%f : tensor<3x3x3x4xf32>) {
  ^bb0(%p: f32, %q: f32, %acc: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %acc, %m : f32
    linalg.yield %s : f32
  } -> tensor<3x3x3x4xf32>
  return %c : tensor<3x3x3x4xf32>
}"""
    x, g = floats(2, 7, 7, 3), floats(2, 5, 5, 4, seed=1)

    def gradient(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (5, 5), axis=(1, 2))
        return np.einsum("nabcij,nijd->abcd", windows, g.astype(np.float64))

    (got,) = run(text, x, g)
    assert_sum_close(got, gradient(x, g), 50, gradient(np.abs(x), np.abs(g)))


def test_max_pooling_is_exact():
    text = """func.func @step(%x: tensor<2x6x6x3xf32>) -> tensor<2x3x3x3xf32> {
  %low = arith.constant 0xFF800000 : f32
  %window = tensor.empty() : tensor<2x2xf32>
  %e = tensor.empty() : tensor<2x3x3x3xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<2x3x3x3xf32>) -> tensor<2x3x3x3xf32>
  %y = linalg.pooling_nhwc_max {strides = dense<2> : tensor<2xi64>}
      ins(%x, %window : tensor<2x6x6x3xf32>, tensor<2x2xf32>) outs(%f : tensor<2x3x3x3xf32>) -> tensor<2x3x3x3xf32>
  return %y : tensor<2x3x3x3xf32>
}"""
    x = floats(2, 6, 6, 3)
    np.testing.assert_array_equal(run(text, x)[0], x.reshape(2, 3, 2, 3, 2, 3).max(axis=(2, 4)))


def test_training_step_follows_float64_and_its_plan():
    arguments = [floats(3, 4), floats(4, 2, seed=1), floats(5, 3, seed=2), floats(5, 2, seed=3)]
    program = compiled(MLP, 2, 2)
    for got, exact in zip(run_program(program, arguments[:2], arguments[2:]), mlp_reference(*arguments), strict=True):
        np.testing.assert_allclose(got, exact, rtol=3e-6, atol=3e-6)
    assert CpuRunner(program, slack=256).high_water(arguments[:2], arguments[2:]) == program.plan.peak_bytes


def test_training_loop_in_one_call_stays_near_float64():
    w1, w2, x, t = floats(3, 4), floats(4, 2, seed=1), floats(5, 3, seed=2), floats(5, 2, seed=3)
    runner = CpuRunner(compiled(MLP, 2, 2))
    runner.write_state([w1, w2])
    runner.write_batch([x, t])
    runner.run(20)
    for _ in range(20):
        w1, w2, loss = mlp_reference(w1, w2, x, t)
    for got, exact in zip([*runner.state, *runner.metrics], [w1, w2, loss], strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def test_epilogue_that_reads_backwards_is_compiled_without_tiling():
    text = """func.func @step(%a: tensor<8x4xf32>, %w: tensor<4x16xf32>, %x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %c = linalg.matmul ins(%a, %w : tensor<8x4xf32>, tensor<4x16xf32>) outs(%f : tensor<8x16xf32>) -> tensor<8x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (7 - i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %x : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}"""
    a, w, x = floats(8, 4), floats(4, 16), floats(8, 16)
    np.testing.assert_allclose(run(text, a, w, x)[0], a.astype(np.float64) @ w + x[::-1], rtol=1e-5, atol=1e-6)

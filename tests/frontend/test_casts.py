"""Conversions between types and arithmetic on integers and booleans: XLA's results, in vectors and scalars alike."""

from functools import partial
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from both_ways import check, run_emitted
from execution import run_module
from jax import lax
from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir

from workloads.frontends.stablehlo import legalise

EDGES = [0, 1.9, -1.9, 127, 127.5, 128, 255.9, 256, 300.7, -128.9, -129, 65535.5, 65536, 2147483520, 2147483648]
EDGES += [
    -2147483648,
    -2147483904,
    4294967040,
    4294967296,
    5e9,
    -5e9,
    1e30,
    -1e30,
    np.inf,
    -np.inf,
    np.nan,
    -0.0,
    1e-40,
]


def saturated(x, kind):
    """The nearest integer of the type, towards zero; 0 for NaN."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    whole = [0 if np.isnan(v) else v for v in x.astype(np.float64)]
    return np.array([low if v < low else high if v > high else int(v) for v in whole], kind)


@pytest.mark.parametrize("length", [1, 7, 16, 43])
def test_a_float_beyond_an_integer_type_is_the_nearest_one(length):
    x = np.resize(np.array(EDGES, np.float32), length)
    kinds = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
    halves = {jnp.float16: np.float16, jnp.bfloat16: ml_dtypes.bfloat16}

    def casts(x):
        straight = [x.astype(k).astype(jnp.int32) for k in kinds]
        return straight + [x.astype(h).astype(k).astype(jnp.int32) for h in halves for k in kinds]

    with np.errstate(over="ignore"):
        expected = [saturated(x, k).astype(np.int32) for k in kinds]
        expected += [
            saturated(x.astype(h).astype(np.float32), k).astype(np.int32) for h in halves.values() for k in kinds
        ]
    check(casts, x, expected=expected, rtol=0, atol=0)


@pytest.mark.parametrize("length", [4, 33])
def test_narrow_integers_keep_their_sign_or_have_none(length):
    x = np.resize(np.array([-1, 200, 255, 256, 70000, -129, 3], np.int32), length)
    kinds = [np.int8, np.uint8, np.int16, np.uint16, np.uint32]
    check(
        lambda x: [(x.astype(k).astype(jnp.float32), x.astype(k).astype(jnp.int32)) for k in kinds],
        x,
        expected=[(x.astype(k).astype(np.float32), x.astype(k).astype(np.int32)) for k in kinds],
    )


def test_unsigned_integers_become_wider_in_products_and_windows():
    x, y = (np.random.default_rng(0).integers(0, 256, shape).astype(np.int32) for shape in ((4, 16), (16, 3)))
    product = partial(lax.dot_general, dimension_numbers=(((1,), (0,)), ((), ())))

    def products(x, y):
        a, b = x.astype(jnp.uint8), y.astype(jnp.uint8)
        kernel = b[:3, :3, None, None]
        form = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "preferred_element_type": jnp.int32}
        return (
            product(a, b, preferred_element_type=jnp.int32),
            product(a, b, preferred_element_type=jnp.float32),
            lax.conv_general_dilated(a[None, ..., None], kernel, (1, 1), "VALID", **form),
        )

    check(products, x, y)
    check(lambda x: (jnp.max(x.astype(jnp.uint8), 1).astype(jnp.int32), x.astype(jnp.uint8) < jnp.uint8(130)), x)


@pytest.mark.parametrize("kind", ["ui8", "i8"])
def test_narrow_indices_mean_what_their_type_says(kind):
    text = """func.func public @main(%x: tensor<256xf32>, %i: tensor<4x1xi32>, %u: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<256xf32>, tensor<4xf32>) {
      %n = stablehlo.convert %i : (tensor<4x1xi32>) -> tensor<4x1xui8>
      %g = "stablehlo.gather"(%x, %n) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}>
        : (tensor<256xf32>, tensor<4x1xui8>) -> tensor<4xf32>
      %s = "stablehlo.scatter"(%x, %n, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
        ^bb0(%old: tensor<f32>, %new: tensor<f32>):
          %or = stablehlo.add %old, %new : tensor<f32>
          stablehlo.return %or : tensor<f32>
      }) : (tensor<256xf32>, tensor<4x1xui8>, tensor<4xf32>) -> tensor<256xf32>
      %f = stablehlo.slice %n [0:1, 0:1] : (tensor<4x1xui8>) -> tensor<1x1xui8>
      %at = stablehlo.reshape %f : (tensor<1x1xui8>) -> tensor<ui8>
      %d = stablehlo.dynamic_slice %x, %at, sizes = [4] : (tensor<256xf32>, tensor<ui8>) -> tensor<4xf32>
      return %g, %s, %d : tensor<4xf32>, tensor<256xf32>, tensor<4xf32>
    }""".replace("ui8", kind)
    with make_ir_context(), ir.Location.unknown():
        text = legalise(ir.Module.parse(text), "predict", Path(__file__)).text
    x, u = np.arange(256, dtype=np.float32), np.ones(4, np.float32)
    i = np.array([200, 255, 0, 130] if kind == "ui8" else [100, 127, 0, 30], np.int32)
    put = x.copy()
    put[i] += 1
    for found in (run_emitted(text, [x, i[:, None], u]), run_module(text, "predict", [x, i[:, None], u])):
        for ours, theirs in zip(found, [x[i], put, x[i[0] : i[0] + 4]], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_booleans_and_numbers():
    x = np.array([0, 0.5, -0.0, np.nan, -3, 1e-30], np.float32)
    i = np.array([0, 1, -1, 256, 2, 1 << 16], np.int32)
    check(
        lambda x, i: (
            x.astype(bool),
            i.astype(bool),
            i.astype(bool).astype(jnp.float32),
            x.astype(bool).astype(jnp.int8),
        ),
        x,
        i,
    )


@pytest.mark.parametrize("length", [9, 40])
def test_division_and_shifts_of_integers_never_trap(length):
    low, high = -(2**31), 2**31 - 1
    x = np.resize(np.array([7, -7, low, 5, -5, 1, -8, high, low], np.int32), length)
    y = np.resize(np.array([0, 0, -1, 3, 3, 32, 40, -3, 31], np.int32), length)

    def all_of(x, y):
        return (
            *(lax.div(x, y), lax.rem(x, y), x // y, x % y, x**2, x**5),
            *(lax.shift_left(x, y), lax.shift_right_arithmetic(x, y), lax.shift_right_logical(x, y)),
        )

    check(all_of, x, y)
    check(lambda x, y: [r.astype(jnp.int32) for r in all_of(x, y)], x.view(np.uint32), y.view(np.uint32))


@pytest.mark.parametrize("length", [7, 24])
def test_remainders_of_floats(length):
    x = np.resize(np.array([5, -5, 5.5, -5.5, 1e30, 1, 0, np.inf], np.float32), length)
    y = np.resize(np.array([3, 3, -3, -2, 7, 0, 1, 2], np.float32), length)
    check(lambda x, y: (lax.rem(x, y), x % y, x // y, jnp.fmod(x, y)), x, y)


def test_comparisons_and_sums_of_booleans():
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    check(lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b), a, b)
    check(lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b), jnp.outer(a, b), jnp.max(a), jnp.min(b)), a, b)
    check(lambda a, b: a @ b, a, b)
    check(lambda a, i: (a.at[i].max(True), a.at[i].min(False)), a, np.array([0, 0, 3], np.int32))


BOOLEANS = """func.func public @main(%a: tensor<{n}xi1>, %b: tensor<{n}xi1>, %i: tensor<3x1xi32>, %u: tensor<3xi1>)
    -> (tensor<{n}xi1>, tensor<{n}xi1>, tensor<i1>, tensor<i1>, tensor<{n}xi1>) {{
  %sum = stablehlo.add %a, %b : tensor<{n}xi1>
  %product = stablehlo.multiply %a, %b : tensor<{n}xi1>
  %false = stablehlo.constant dense<false> : tensor<i1>
  %true = stablehlo.constant dense<true> : tensor<i1>
  %any = stablehlo.reduce(%a init: %false) applies stablehlo.add across dimensions = [0]
    : (tensor<{n}xi1>, tensor<i1>) -> tensor<i1>
  %all = stablehlo.reduce(%b init: %true) applies stablehlo.multiply across dimensions = [0]
    : (tensor<{n}xi1>, tensor<i1>) -> tensor<i1>
  %put = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
    ^bb0(%old: tensor<i1>, %new: tensor<i1>):
      %or = stablehlo.add %old, %new : tensor<i1>
      stablehlo.return %or : tensor<i1>
  }}) : (tensor<{n}xi1>, tensor<3x1xi32>, tensor<3xi1>) -> tensor<{n}xi1>
  return %sum, %product, %any, %all, %put : tensor<{n}xi1>, tensor<{n}xi1>, tensor<i1>, tensor<i1>, tensor<{n}xi1>
}}"""


@pytest.mark.parametrize("n", [4, 37])
def test_a_sum_of_booleans_is_or_and_a_product_is_and(n):
    with make_ir_context(), ir.Location.unknown():
        text = legalise(ir.Module.parse(BOOLEANS.format(n=n)), "predict", Path(__file__)).text
    a, b = np.resize([0, 0, 1, 1], n).astype(bool), np.resize([0, 1, 0, 1], n).astype(bool)
    i, u = np.array([[0], [0], [1]], np.int32), np.array([1, 1, 0], bool)
    put = a.copy()
    put[0] = True
    for found in (run_emitted(text, [a, b, i, u]), run_module(text, "predict", [a, b, i, u])):
        for ours, theirs in zip(found, [a | b, a & b, a.any(), b.all(), put], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_every_pair_of_float_and_integer_types():
    edges = [0, 1.9, -1.9, 1e10, -1e10, 9.3e18, -9.3e18, 1.85e19, 1e30, np.nan, np.inf, -np.inf, 2.0**62]
    x = np.array(edges, np.float32)
    names = [f"{sign}i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    lines, results = [], []
    for source in ("f32", "f64"):
        for name in names:
            whole, back = f"%{source}_{name}", f"%{source}_{name}_back"
            lines.append(f"{whole} = stablehlo.convert %{source} : (tensor<13x{source}>) -> tensor<13x{name}>")
            lines.append(f"{back} = stablehlo.convert {whole} : (tensor<13x{name}>) -> tensor<13xf64>")
            results.append(back)
    types = ", ".join(["tensor<13xf64>"] * len(results))
    head = f"func.func public @main(%f32: tensor<13xf32>, %f64: tensor<13xf64>) -> ({types}) {{"
    lines = [head, *lines, f"return {', '.join(results)} : {types}", "}"]
    with make_ir_context(), ir.Location.unknown():
        text = legalise(ir.Module.parse("\n".join(lines)), "predict", Path(__file__)).text
    kinds = [np.dtype(name.replace("ui", "uint") if "u" in name else name.replace("i", "int")) for name in names]
    expected = [saturated(x, kind).astype(np.float64) for kind in kinds] * 2
    for found in (run_emitted(text, [x, x.astype(float)]), run_module(text, "predict", [x, x.astype(float)])):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)

"""Arithmetic on f16 and bf16 against float64: a result is the nearest number of its type, or one beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from fitness.cpu import CpuRunner
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from workloads.frontends.jax import lower

TABLE = np.arange(21).reshape(3, 7) / 8 - 1
F = Callable[..., Any]

# By name: in JAX, in NumPy on float64, shapes of the arguments.
OPS: dict[str, tuple[F, F, tuple[tuple[int, ...], ...]]] = {
    "chain": (lambda a: a * 2 + 1, lambda a: a * 2 + 1, ((6, 41),)),
    "quotient": (lambda a, b: a / (b + 4), lambda a, b: a / (b + 4), ((5, 13), (5, 13))),
    "product": (lambda a, b: a @ b, lambda a, b: a @ b, ((6, 40), (40, 9))),
    "long product": (lambda a, b: a @ b, lambda a, b: a @ b, ((3, 3000), (3000, 17))),
    "long sum": (lambda a: lax.reduce(a, np.zeros((), a.dtype), lax.add, (1,)), lambda a: a.sum(1), ((3, 5000),)),
    "math": (
        lambda a: (jnp.tanh(a), jnp.exp(a), jnp.sqrt(abs(a)), lax.rsqrt(abs(a) + 1)),
        lambda a: (np.tanh(a), np.exp(a), np.sqrt(abs(a)), 1 / np.sqrt(abs(a) + 1)),
        ((4, 33),),
    ),
    "extremes": (lambda a, b: (jnp.maximum(a, b), a.min(1)), lambda a, b: (np.maximum(a, b), a.min(1)), ((5, 9),) * 2),
    "choice": (lambda a, b: jnp.where(a < b, a, b * 2), lambda a, b: np.where(a < b, a, b * 2), ((5, 9),) * 2),
    "comparison": (lambda a, b: (a < b, a.argmax(1)), lambda a, b: (a < b, a.argmax(1)), ((5, 9),) * 2),
    "to integers": (lambda a: (a * 8).astype(jnp.int32), lambda a: np.trunc(a * 8), ((5, 9),)),
    "window": (
        lambda a: lax.reduce_window(a, np.array(-np.inf, a.dtype), lax.max, (1, 2), (1, 2), "VALID"),
        lambda a: a.reshape(4, 8, 2).max(2),
        ((4, 16),),
    ),
    "table": (lambda a: a + jnp.asarray(TABLE, a.dtype), lambda a: a + TABLE, ((3, 7),)),
    "rows": (lambda a: a[np.array([2, 0, 2])] * 3, lambda a: a[[2, 0, 2]] * 3, ((4, 9),)),
    "loop": (lambda a: lax.fori_loop(0, 3, lambda _, x: x + a, a), lambda a: 4 * a, ((5,),)),
}


def run(function: F, arguments: list[np.ndarray]) -> list[np.ndarray]:
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
    text = lower(lambda *a: jax.tree.leaves(function(*a)), specs, "predict", Path(__file__)).text
    runner = CpuRunner(compile_text(text, "predict", 0, len(specs), ObjectCache(None)), guard=True)
    runner.write_batch(arguments)
    runner.run()
    return [np.array(metric) for metric in runner.metrics]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", OPS)
def test_the_result_is_the_nearest_number(name, dtype):
    function, truth, shapes = OPS[name]
    rng = np.random.default_rng(1)
    arguments = [(rng.integers(-32, 33, shape) / 16).astype(dtype) for shape in shapes]  # exact in both types
    with np.errstate(all="ignore"):
        wanted = truth(*(a.astype(np.float64) for a in arguments))
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for got, want in zip(run(function, arguments), wanted, strict=True):
        rounding = float(ml_dtypes.finfo(dtype).eps) if got.dtype == dtype else 0.0
        assert got.dtype == dtype or got.dtype.kind in "ib"
        size = np.abs(want.astype(np.float64))
        sums = 1e-5 * float(size.max()) if rounding else 0.0  # what f32 loses where terms cancel
        assert np.all(np.abs(got.astype(np.float64) - want) <= rounding * size + sums)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_what_the_step_rounds_itself_is_rounded(dtype):
    x = np.linspace(0.1, 3, 77).astype(np.float32)
    (got,) = run(lambda a: a.astype(dtype).astype(jnp.float32) * 3, [x])
    assert np.array_equal(got, x.astype(dtype).astype(np.float32) * np.float32(3))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_special_values_stay_what_they_are(dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, largest, -largest, 1.0], np.float32).astype(dtype)
    with np.errstate(all="ignore"):
        want = [x + x, x * np.array(0.5, dtype), np.maximum(x, np.array(1, dtype))]
    got = run(lambda a: (a + a, a * np.array(0.5, dtype), jnp.maximum(a, 1)), [x])
    for one, other in zip(got, want, strict=True):
        assert np.array_equal(one.astype(np.float32), other.astype(np.float32), equal_nan=True)

"""Windows and reductions of any kind: integers, several operands, functions of the user's, dilations, paddings."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import check
from jax import lax
from jax._src.lax import windowed_reductions

RNG = np.random.default_rng(6)
X = RNG.standard_normal((2, 9, 9, 3)).astype(np.float32)
I = np.round(X * 5).astype(np.int32)  # noqa: E741
WINDOW, STRIDES = (1, 3, 3, 1), (1, 2, 2, 1)


def windows(join, initial, padding="SAME", window=WINDOW, strides=STRIDES, **dilations):
    return lambda x: lax.reduce_window(x, initial, join, window, strides, padding, **dilations)


def unpool(select, window, strides, padding, source, x):
    return windowed_reductions._select_and_scatter_add(source, x, select, window, strides, padding)


def largest(a, b):
    first = a[0] >= b[0]
    return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])


def argmax_pool(x):
    places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return lax.reduce_window((x, places), (-jnp.inf, np.int32(0)), largest, WINDOW, STRIDES, "SAME")


WINDOWS = {
    "maxima": (windows(lax.max, -jnp.inf), X),
    "maxima_of_integers": (windows(lax.max, np.int32(-(2**31))), I),
    "sums_of_integers": (windows(lax.add, np.int32(0)), I),
    "products": (windows(lax.mul, 1.0), X),
    "logarithms_of_sums": (windows(jnp.logaddexp, -jnp.inf), X),
    "booleans": (lambda x: (windows(lax.bitwise_or, False)(x), windows(lax.min, True)(x)), X > 0.5),
    "spread_input": (windows(lax.min, jnp.inf, "VALID", base_dilation=(1, 2, 3, 1)), X),
    "spread_window": (windows(lax.add, 0.0, "VALID", window_dilation=(1, 2, 3, 1)), X),
    "all_at_once": (
        windows(lax.add, 0.0, ((0, 0), (2, 1), (0, 3), (0, 0)), base_dilation=STRIDES, window_dilation=(1, 1, 2, 1)),
        X,
    ),
    "cropped": (windows(lax.add, 0.0, ((0, 0), (-1, 1), (2, -2), (0, 0))), X),
    "places_of_maxima": (argmax_pool, X),
    "gradient_of_minima": (jax.grad(lambda x: jnp.sum(jnp.sin(windows(lax.min, jnp.inf)(x)))), X),
    "gradient_of_sums": (jax.grad(lambda x: jnp.sum(jnp.sin(windows(lax.add, 0.0)(x)))), X),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name):
    function, argument = WINDOWS[name]
    check(function, argument)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
@pytest.mark.parametrize("select", [lax.ge_p, lax.le_p])
def test_select_and_scatter(kind, select):
    """Overlapping, touching and separate windows; ties and padding."""
    x = np.round(X * 2).astype(kind)
    for window, strides, padding in (
        (WINDOW, STRIDES, "SAME"),
        (STRIDES, STRIDES, "VALID"),
        (STRIDES, WINDOW, "VALID"),
    ):
        pads = lax.padtype_to_pads(x.shape, window, strides, padding)
        pooled = jax.eval_shape(windows(lax.max, kind(-9), padding, window, strides), x)
        source = np.round(RNG.standard_normal(pooled.shape) * 5).astype(kind)
        check(partial(unpool, select, window, strides, pads), source, x)


REDUCTIONS = {
    "logarithm_of_a_sum": lambda x, i: lax.reduce(x, np.float32(-np.inf), jnp.logaddexp, (1,)),
    "norm": lambda x, i: lax.reduce(x, np.float32(0), lambda a, b: jnp.sqrt(a * a + b * b), (0,)),
    "value_and_place": lambda x, i: lax.reduce((x, i), (np.float32(-np.inf), np.int32(-1)), largest, (1,)),
    "bits": lambda x, i: (lax.reduce_xor(i, axes=(1,)), lax.reduce_or(i, axes=(0,)), lax.reduce_and(i, axes=(0, 1))),
    "argmax": lambda x, i: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(i)),
    "argmax_of_nan": lambda x, i: jnp.argmax(jnp.where(i == 3, jnp.nan, x)),
    "over_no_dimensions": lambda x, i: (jnp.any(x > 0, ()), jnp.sum(x, ())),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    check(REDUCTIONS[name], X[0, :4, :7, 0], np.arange(28, dtype=np.int32).reshape(4, 7))


def test_a_scatter_joins_by_any_function():
    def scatters(x, i):
        places = jnp.array([1, 2, 1])
        return x.at[places[:2]].apply(jnp.sin), i.at[places].apply(lambda v: v * 2 + 1)

    check(scatters, X[0, :5, :3, 0], I[0, :5, 0, 0])

"""Sorts, and what JAX makes of them, give NumPy's results and JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import check, lowered
from jax import lax

RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def few(*shape):
    return RNG.integers(-3, 4, shape).astype(np.int32)


def test_rows_of_every_length_are_sorted_stably():
    arrays = [few(3, n) for n in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 65, 300)]
    expected = [(np.sort(a, 1), np.argsort(a, 1, kind="stable").astype(np.int32)) for a in arrays]
    check(lambda *a: [(jnp.sort(x, 1), jnp.argsort(x, 1)) for x in a], *arrays, expected=expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_dimension_is_sorted(axis):
    x = floats(4, 9, 5)
    check(lambda x: (jnp.sort(x, axis), jnp.sort(x, axis, descending=True)), x)


def test_a_long_row_is_sorted():
    x = floats(5000)
    check(lambda x: jnp.sort(x), x, expected=[np.sort(x)], loops=False)


def test_nan_is_last_and_both_zeros_are_one():
    x = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1, -np.nan, -0.0, 0.0], np.float32)
    expected = [np.sort(x), np.argsort(x, kind="stable").astype(np.int32)]
    check(lambda x: (jnp.sort(x), jnp.argsort(x)), x, expected=expected)


def test_several_keys_and_values():
    a, b, c = few(40), few(40), floats(40)
    order = np.lexsort((b, a))
    sort = lambda a, b, c: (lax.sort((a, b, c), num_keys=2), jnp.lexsort((b, a)))  # noqa: E731
    check(sort, a, b, c, expected=[a[order], b[order], c[order], order.astype(np.int32)])


def test_narrow_and_unsigned_elements():
    x = RNG.uniform(-3, 260, 33).astype(np.float32)

    def sorts(x):
        return (
            jnp.sort(x > 50),
            jnp.sort(x.astype(jnp.uint8)).astype(jnp.int32),
            jnp.sort(x.astype(jnp.int8)).astype(jnp.int32),
            jnp.sort(x.astype(jnp.bfloat16)).astype(jnp.float32),
        )

    check(sorts, x)


def test_top_k_and_its_order_of_equals():
    check(lambda x, i: (lax.top_k(x, 5), lax.top_k(i, 4)), floats(3, 37), few(2, 20))


def test_what_jax_builds_on_sorts():
    key = np.array([0, 42], np.uint32)
    check(lambda k: jax.random.permutation(jax.random.wrap_key_data(k), 37), key)
    check(lambda x, i: (jnp.median(x, 0), jnp.quantile(x, 0.3), jnp.unique(i, size=8)), floats(9, 5), few(30))


def test_gradients():
    def loss(x):
        sums = jnp.sin(jnp.sort(x, 1)) * jnp.arange(7), lax.top_k(x, 3)[0] ** 2
        ordered = jnp.take_along_axis(x, jnp.argsort(x, 0), 0)
        return sum(jnp.sum(s) for s in sums) + jnp.sum(jnp.cos(ordered) * jnp.arange(7))

    check(jax.grad(loss), floats(5, 7))


def test_a_comparator_of_the_users_is_taken():
    text = lowered(lambda x: lax.sort((jnp.abs(x), x), num_keys=1)[1], floats(9))
    assert "func.call @sort_0_less" in text or "call @sort_0_less" in text
    x = floats(33)
    order = np.argsort(np.abs(x), kind="stable")
    check(lambda x: lax.sort((jnp.abs(x), x), num_keys=1)[1], x, expected=[x[order]])

"""Cumulative sums, products and their like, forward and reverse, are linear in length and give what they should."""

import jax
import jax.numpy as jnp
import numpy as np
from both_ways import check, lowered
from jax import lax

RNG = np.random.default_rng(4)
KINDS = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)


def floats(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def test_sums_of_every_length_along_both_axes():
    arrays = [floats(n, 3) for n in (1, 2, 3, 4, 5, 8, 9, 17, 100, 1001)]

    def sums(*arrays):
        return [(jnp.cumsum(x, 0), lax.cumsum(x, 0, reverse=True), jnp.cumsum(x.T, 1)) for x in arrays]

    wide = [x.astype(np.float64) for x in arrays]
    expected = [(np.cumsum(x, 0), np.cumsum(x[::-1], 0)[::-1], np.cumsum(x.T, 1)) for x in wide]
    check(sums, *arrays, expected=expected, rtol=1e-4, atol=1e-5)


def test_every_kind_along_every_axis():
    def all_of(x):
        return [kind(x, axis, reverse=reverse) for kind in KINDS for axis in range(3) for reverse in (False, True)]

    check(all_of, floats(4, 5, 6))


def test_integers():
    x = RNG.integers(-9, 9, (5, 7)).astype(np.int32)
    check(lambda x: [kind(x, axis) for kind in KINDS[:4] for axis in (0, 1)], x)
    check(lambda x: (jnp.cumsum(x > 0), jnp.cumsum((x * 30).astype(jnp.uint8)).astype(jnp.int32)), x[0])


def test_infinities_and_nan():
    x = np.array([-np.inf, -np.inf, 1, np.inf, 2, np.nan, 3], np.float32)
    check(lambda x: [kind(x, 0, reverse=reverse) for kind in KINDS for reverse in (False, True)], x)


def test_gradients():
    def loss(x):
        return sum(jnp.sum(jnp.sin(kind(x, axis))) for kind in KINDS for axis in (0, 1))

    check(jax.grad(loss), floats(3, 5), loops=False)


def test_scans_by_the_users_own_function():
    def scans(x, a):
        pairs = lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, x), axis=1)
        return lax.associative_scan(jnp.add, x), lax.associative_scan(jnp.maximum, x, reverse=True, axis=1), pairs

    for length in (1, 2, 3, 5, 18):
        check(scans, floats(2, length), floats(2, length), loops=length == 3)


def test_a_running_sum_is_one_loop_along_its_axis():
    text = lowered(lambda x: jnp.cumsum(x, 1), floats(3, 1000))
    assert text.count("scf.for") == 2 and "linalg.generic" not in text

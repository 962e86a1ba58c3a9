"""Fourier transforms, and complex numbers between them: NumPy's results in float64 and JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import check
from jax import lax

RNG = np.random.default_rng(9)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def parts(z):
    return jnp.real(z), jnp.imag(z)


@pytest.mark.parametrize("lengths", [(1, 2, 3, 8, 17), (67, 100)])
def test_every_length(lengths):
    """One product, a split by a divisor, a chirp, and a chirp within a split."""
    arrays = [floats(2, n) for n in lengths]

    def all_of(*arrays):
        for x in arrays:
            z = jnp.fft.fft(x)
            yield (
                parts(z),
                parts(jnp.fft.rfft(x)),
                parts(jnp.fft.ifft(z * 1j)),
                jnp.fft.irfft(jnp.fft.rfft(x), x.shape[1]),
            )

    expected = []
    for x in arrays:
        z, half = np.fft.fft(x), np.fft.rfft(x)
        expected += [z.real, z.imag, half.real, half.imag, np.zeros(x.shape), x, x]
    check(lambda *arrays: list(all_of(*arrays)), *arrays, expected=expected, loops=lengths[0] == 1, **CLOSE)


def test_several_dimensions():
    def all_of(x, y):
        shifted = jnp.fft.fftshift(jnp.fft.fft(y), 1)
        return (
            jnp.abs(jnp.fft.fft2(x)),
            jnp.fft.irfft2(jnp.fft.rfft2(x) * 2),
            parts(jnp.fft.fft(y, axis=0)),
            parts(shifted),
        )

    check(all_of, floats(2, 6, 8), floats(6, 5), loops=False, **CLOSE)


def test_gradients():
    def convolve(x, k):
        return jnp.sum(jnp.sin(jnp.fft.irfft(jnp.fft.rfft(x, 32) * jnp.fft.rfft(k, 32), 32)))

    def power(x):
        return jnp.sum(jnp.sin(jnp.abs(jnp.fft.rfft(x)) ** 2)) + jnp.sum(jnp.abs(jnp.fft.fft(x)[:, jnp.array([0, 2])]))

    check(jax.grad(convolve, (0, 1)), floats(2, 16), floats(16), loops=False, **CLOSE)
    check(jax.grad(power), floats(4, 8), loops=False, **CLOSE)


def test_arithmetic_on_complex_numbers():
    def all_of(a, b):
        z, w = a + 1j * b, b - 2j * a
        numbers = (
            z / w,
            z * w,
            jnp.exp(z),
            jnp.log(z),
            jnp.conj(z),
            z @ w.T,
            jnp.sum(z, 0),
            jnp.where(a > 0, z, w),
            z**2,
        )
        return [*map(parts, numbers), jnp.abs(z), jnp.angle(w), z == w, z != w, parts(z.at[:, 1].set(1j))]

    check(all_of, floats(3, 4), floats(3, 4), loops=False, **CLOSE)


def test_magnitudes_and_quotients_do_not_overflow():
    a = np.array([0, 3e30, 3e38, 1e-30, np.inf, np.nan, -5], np.float32)
    b = np.array([0, 4e30, 0, 1e-30, 1, 1, 12], np.float32)
    wide = np.abs(a.astype(np.float64) + 1j * b)
    check(lambda a, b: jnp.abs(lax.complex(a, b)), a, b, expected=[wide], rtol=1e-6, atol=0)
    quotient = lambda a, b: parts(lax.complex(a, b) / lax.complex(b, a))  # noqa: E731
    a, b = a[[1, 3, 6]], b[[1, 3, 6]]
    z = (a.astype(np.float64) + 1j * b) / (b.astype(np.float64) + 1j * a)
    check(quotient, a, b, expected=[z.real, z.imag])


def test_loops_and_branches_on_complex_numbers():
    def all_of(a, b):
        z = a + 1j * b
        last = lax.scan(lambda c, x: (c * x, c), z[0], z)[0]
        chosen = lax.cond(a[0, 0] > 0, lambda z: z * 1j, lambda z: z + 1, z)
        scanned = lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (z, b + 0j))[1]
        return parts(last), parts(chosen), parts(scanned)

    check(all_of, floats(5, 4), floats(5, 4), loops=False, **CLOSE)

"""Cholesky factors, triangular systems and LU: JAX's results on the CPU, where it calls LAPACK."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import check
from jax import lax

RNG = np.random.default_rng(8)
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


MATRICES = floats(3, 8, 8) + 3 * np.eye(8, dtype=np.float32)
SYMMETRIC = (MATRICES @ MATRICES.transpose(0, 2, 1)).astype(np.float32)


def test_cholesky_factors_and_their_gradients():
    check(jnp.linalg.cholesky, SYMMETRIC, expected=[np.linalg.cholesky(SYMMETRIC.astype(np.float64))], **CLOSE)
    check(lambda x: jnp.linalg.cholesky(x, upper=True), SYMMETRIC[0, :5, :5], **CLOSE)
    check(jax.grad(lambda x: jnp.sum(jnp.sin(jnp.linalg.cholesky(x @ x.T)))), MATRICES[0, :5], **CLOSE)


def test_what_has_no_cholesky_factor_is_nan():
    diagonals = [np.diag(np.array(d, np.float32)) for d in ([1, 2, 0], [1, -1, 1], [1, 1, 0], [1, 4, 9])]
    check(jnp.linalg.cholesky, np.stack(diagonals))


@pytest.mark.parametrize("left", [False, True])
def test_triangular_systems_and_their_gradients(left):
    other = floats(3, 8, 2) if left else floats(3, 2, 8)

    def solutions(a, b):
        names = ("lower", "transpose_a", "unit_diagonal")
        ways = [dict(zip(names, flags, strict=True)) for flags in product((False, True), repeat=3)]
        return [lax.linalg.triangular_solve(a, b, left_side=left, **way) for way in ways]

    small = MATRICES * 0.3 + np.eye(8, dtype=np.float32)
    check(solutions, small, other, **CLOSE)
    check(jax.grad(lambda a, b: sum(jnp.sum(jnp.sin(x)) for x in solutions(a, b)), (0, 1)), small, other, **CLOSE)


def test_systems_and_inverses():
    check(lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.inv(a)), MATRICES, floats(3, 8, 2), **CLOSE)
    check(jax.grad(lambda a, b: jnp.sum(jnp.sin(jnp.linalg.solve(a, b)))), MATRICES[0], floats(8, 2), **CLOSE)

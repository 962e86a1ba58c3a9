"""Functions in a branch, which plain loops lower, against float64: tiny values, negative bases, exact roundings."""

import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import lowered, run_emitted
from jax import lax
from scipy import special

ANY = np.array([1e-30, -1e-7, 3.0269e-4, -0.02, 0.5, -1.5, 2.5, 7.0, -30.0, 0.0, -0.0], np.float32)
POSITIVE = np.abs(ANY) + np.float32(1e-30)
INSIDE = np.array([1e-30, -1e-7, 3e-4, -0.02, 0.5, -0.999], np.float32)
CASES = {
    **{name: (getattr(jnp, name), getattr(np, name), ANY)
       for name in ("tanh", "sinh", "cosh", "arcsinh", "arctan", "tan", "sin", "cos", "exp", "expm1",
                    "cbrt", "round", "floor", "ceil", "trunc", "sign", "square")},
    **{name: (getattr(jnp, name), getattr(np, name), POSITIVE) for name in ("log", "log1p", "log2", "sqrt")},
    **{name: (getattr(jnp, name), getattr(np, name), INSIDE) for name in ("arctanh", "arcsin", "arccos")},
    "erf": (lax.erf, special.erf, ANY),
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE),
    "logistic": (lax.logistic, special.expit, ANY),
    "cube": (lambda x: x**3, lambda x: x**3, ANY),
    "inverse_square": (lambda x: x**-2, lambda x: x**-2, POSITIVE[POSITIVE > 1e-8]),
    "whole_power": (lambda x: x ** jnp.float32(4), lambda x: x**4, ANY),
    "odd_power": (lambda x: x ** jnp.float32(-3), lambda x: x**-3, ANY[np.abs(ANY) > 1e-8]),
    "power": (lambda x: x ** jnp.float32(0.3), lambda x: x ** np.float64(np.float32(0.3)), POSITIVE),
    "clip": (lambda x: jnp.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), ANY),
    "atan2": (lambda x: jnp.arctan2(x, x[::-1]), lambda x: np.arctan2(x, x[::-1]), ANY),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_function_in_a_branch_is_right_to_its_last_places(name):
    function, reference, x = CASES[name]
    taken = lowered(lambda p, x: lax.cond(p, function, lambda x: x, x), np.True_, x)
    for text, arguments in ((taken, [np.True_, x]), (lowered(function, x), [x])):
        [found] = run_emitted(text, arguments)
        np.testing.assert_allclose(found, reference(x.astype(np.float64)).astype(np.float32), rtol=5e-7, atol=1e-44)

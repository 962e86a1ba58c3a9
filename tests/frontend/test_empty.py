"""Tensors without elements inside a step: what they feed is known without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import check, lowered
from jax import lax

from mlir_passes.canonical import canonical_module

RNG = np.random.default_rng(5)
NHWC = ("NHWC", "HWIO", "NHWC")


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def convolve(x, w, padding):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=NHWC)


def carried(x):
    return lax.scan(lambda c, y: ((c[0] + y, c[1] * 2), c[1].sum()), (x[0], x[:, :0]), x)[0][0]


def branches(x):
    return lax.cond(x[0, 0] > 0, lambda a: (a[0] * 2, a[1]), lambda a: (a[0], a[1] * 2), (x, x[:0]))[0]


NO_ROWS = np.zeros(0, np.int32)
CASES = {
    "reductions": lambda x: (jnp.sum(x[:, 3:], 1), jnp.max(x[:, 3:], 1, initial=-1.0), jnp.prod(x[2:], 0)),
    "mean": lambda x: jnp.mean(x[:, 3:], 1),
    "logical": lambda x: (jnp.any(x[:, 3:] > 0, 1), jnp.all(x[:, 3:] > 0)),
    "pad": lambda x: jnp.pad(x[:, 3:], ((0, 0), (1, 2)), constant_values=7.0),
    "concatenate": lambda x: (jnp.concatenate([x[:, :0], x[:, :0], x[:, 1:]], 1), jnp.concatenate([x, x[:0], x])),
    "products": lambda x: (x[:, :0] @ x.T[:0], jnp.einsum("bij,bjk->bik", x[None, :, :0], x.T[None, :0])),
    "update": lambda x: (lax.dynamic_update_slice(x, x[:, :0], (1, 1)), x.at[0:0].set(3.0)),
    "scatter": lambda x: (x.at[NO_ROWS].add(1.0), jax.ops.segment_sum(x[:0], NO_ROWS, 4)),
    "index_of_no_coordinates": lambda x: (x.at[:].set(x * 2), x.at[...].add(1.0), x.at[()].max(0.0), x[...]),
    "gather": lambda x: x[NO_ROWS].sum(0),
    "convolution_of_no_channels": lambda x: convolve(x[None, ..., None][..., :0], jnp.ones((3, 3, 0, 5)), "SAME"),
    "convolution_of_no_rows": lambda x: convolve(x[None, :0, :, None], jnp.ones((3, 3, 1, 5)), ((2, 2), (1, 1))),
    "windows": lambda x: lax.reduce_window(x[:0], 0.0, lax.add, (2, 2), (1, 1), ((2, 2), (0, 0))),
    "unpooled": jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 4), (1, 1), "VALID").sum() + x.sum()),
    "scan": lambda x: lax.scan(lambda c, y: (c + y, c * 2), x[0], x[:0])[0],
    "carried": carried,
    "branches": branches,
    "sorts": lambda x: (jnp.sort(x[:0], 0).sum(), jnp.cumsum(x[:0], 0).sum(0)),
    "softmax": lambda x: jax.nn.softmax(x[:0], -1).sum() + x,
    "checkpoint": jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda x: jnp.sin(jnp.concatenate([x[:0], x])))(x))),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.sin(jnp.concatenate([x[:, :0], x], 1) + (x[:, :0] @ x.T[:0])[0, 0]))),
    "rows": lambda x: jax.vmap(lambda row: jnp.concatenate([row[:0], row]))(x),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_adds_nothing(name):
    check(CASES[name], floats(2, 3))


def test_no_tensor_without_elements_is_left():
    for function in CASES.values():
        text = str(canonical_module(lowered(function, floats(2, 3)), "predict"))
        assert not [line for line in text.splitlines() if "tensor<0x" in line or "x0x" in line]

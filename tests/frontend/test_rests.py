"""Windows that leave a rest, with one place for each of their loops, give JAX's results and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import check
from jax import lax

RNG = np.random.default_rng(8)
LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def pool(window, strides, join=lax.max, start=-jnp.inf, dilation=None):
    return lambda x: lax.reduce_window(x, start, join, window, strides, "VALID", window_dilation=dilation)


def convolve(strides, padding="VALID", layout=None, **more):
    layout = layout or LAYOUTS[len(strides)]
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=layout, **more)


CASES = {
    "max_pool": (pool((1, 2, 2, 1), (1, 2, 2, 1)), floats(2, 3, 3, 2)),
    "sum_pool": (pool((1, 2, 2, 1), (1, 2, 2, 1), lax.add, 0.0), floats(2, 3, 3, 2)),
    "pool_in_one_dimension": (pool((1, 3, 1), (1, 2, 1)), floats(2, 4, 3)),
    "pool_in_three": (pool((1, 2, 2, 2, 1), (1, 2, 2, 2, 1)), floats(1, 3, 3, 3, 2)),
    "pool_far_apart": (pool((1, 2, 2, 1), (1, 4, 4, 1)), floats(1, 5, 5, 3)),
    "pool_of_channels_first": (pool((1, 1, 2, 2), (1, 1, 3, 3)), floats(2, 3, 4, 4)),
    "pool_with_a_rest_in_one_dimension": (pool((1, 2, 3, 1), (1, 2, 2, 1)), floats(2, 3, 8, 3)),
    "convolution": (convolve((2, 2)), floats(1, 4, 4, 3), floats(3, 3, 3, 4)),
    "padded_convolution": (convolve((2, 2), ((1, 1), (1, 1))), floats(1, 2, 2, 3), floats(3, 3, 3, 4)),
    "wide_convolution": (convolve((2, 2), ((3, 3), (3, 3))), floats(1, 2, 2, 3), floats(7, 7, 3, 4)),
    "convolution_in_one_dimension": (convolve((3,)), floats(2, 7, 3), floats(5, 3, 4)),
    "convolution_in_three": (convolve((2, 2, 2)), floats(1, 4, 4, 4, 2), floats(3, 3, 3, 2, 3)),
    "channels_first": (convolve((2, 2), layout=("NCHW", "OIHW", "NCHW")), floats(2, 3, 4, 4), floats(5, 3, 3, 3)),
    "by_channel": (convolve((2, 2), feature_group_count=3), floats(2, 4, 4, 3), floats(3, 3, 1, 3)),
    "by_groups": (convolve((2, 2), feature_group_count=2), floats(2, 4, 4, 4), floats(3, 3, 2, 6)),
    "dilated": (convolve((2, 2), rhs_dilation=(2, 2)), floats(2, 6, 6, 3), floats(3, 3, 3, 4)),
    "transposed": (
        convolve((1, 1), ((0, 0), (0, 0)), lhs_dilation=(2, 2)), floats(2, 3, 3, 3), floats(2, 2, 3, 4)
    ),
    "one_element": (convolve((2, 2)), floats(1, 2, 2, 3), floats(1, 1, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_window_that_leaves_a_rest(name):
    function, *arguments = CASES[name]

    def loss(*arguments):
        return jnp.sum(jnp.sin(function(*arguments)))

    check(lambda *a: (function(*a), jax.grad(loss, tuple(range(len(a))))(*a)), *arguments)

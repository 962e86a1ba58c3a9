"""Small functions, most of them gradients, give JAX's own results, by plain loops and through the emitter."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import run_emitted
from execution import run_module
from jax import lax

from workloads.errors import WorkloadError
from workloads.frontends.jax import lower

RNG = np.random.default_rng(1)
HERE = Path(__file__)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


def grad(function, *argnums):
    """The gradient of sum(sin(function)) with respect to the arguments `argnums`, the first by default."""
    return jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a))), argnums=argnums or (0,))


def max_pool(size, stride, padding):
    return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), padding)


def convolve(stride=1, padding="SAME", groups=1, dilation=None):
    return lambda x, w: lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def uniform(key):
    return jax.random.uniform(jax.random.wrap_key_data(key), (4, 8))


def split(key):
    return jax.random.key_data(jax.random.split(jax.random.wrap_key_data(key)))


def scan_train(w, xs):
    def body(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w), jnp.sum(w)

    return lax.scan(body, w, xs)


KEY = np.array([0, 42], np.uint32)
SCATTERS = {
    "take_grad": (grad(lambda e, i: e[i]), floats(5, 8), ints(1, 3, 1)),
    "take_grad_of_a_large_table": (grad(lambda e, i: e[i]), floats(2000, 3), ints(1, 1999, 1)),
    "take_along_axis_grad": (grad(lambda x, i: jnp.take_along_axis(x, i[:, None], 1)), floats(4, 8), ints(1, 3, 1, 7)),
    "embedding_2d_grad": (grad(lambda e, i: e[i.reshape(2, 2)]), floats(5, 8), ints(1, 3, 1, 4)),
    "gather_of_columns_grad": (grad(lambda e, i: e[:, i]), floats(5, 8), ints(1, 3, 1)),
    "two_indices_grad": (grad(lambda x, i: x[i, i]), floats(5, 8), ints(1, 3, 1)),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, 4), floats(5, 8), ints(0, 1, 1, 3, 2)),
    "at_set": (lambda x, i: x.at[i].set(1.0), floats(5, 8), ints(1, 3)),
    "at_set_out_of_bounds": (lambda x, i: x.at[i].set(1.0, mode="drop"), floats(5, 8), ints(1, 9)),
    "at_add_out_of_bounds": (lambda x, i: x.at[i].add(1.0, mode="drop"), floats(5, 8), ints(1, 9)),
    "at_add_int": (lambda x, i: x.at[i].add(2), ints(1, 2, 3, 4), ints(1, 1)),
    "at_mul": (lambda x, i, u: x.at[i].multiply(u), floats(5, 8), ints(1, 3, 1), floats(3, 8)),
    "at_max": (lambda x, i, u: x.at[i].max(u), floats(5, 8), ints(1, 3, 1), floats(3, 8)),
    "at_min_int": (lambda x, i, u: x.at[i].min(u), ints(5, -4, 3), ints(1, 2), ints(-9, 1)),
    "at_set_part_of_a_row": (lambda x, i, u: x.at[i, 2:5].set(u), floats(5, 8), ints(1, 3), floats(2, 3)),
    "at_add_part_of_a_row": (lambda x, i, u: x.at[i, 2:5].add(u), floats(5, 8), ints(1, 3), floats(2, 3)),
    "vmapped_take_grad": (grad(jax.vmap(lambda e, i: e[i])), floats(3, 5, 2), ints(1, 3, 1, 0, 4, 4).reshape(3, 2)),
}
CONTROL = {
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.1), (0, x)), floats(4, 8)),
    "fori": (lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) + i, x), floats(4, 8)),
    "scan_grad": (grad(lambda x: lax.scan(lambda c, y: (jnp.tanh(c + y), c), x[0], x)[0]), floats(5, 8)),
    "scan_of_training_steps": (scan_train, floats(8, 3), floats(4, 2, 8)),
    "nested_loops": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, i, lambda j, d: d + j, c), x),
        floats(3),
    ),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: -y, x), floats(4, 8)),
    "cond_grad": (grad(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)), floats(4, 8)),
    "switch_first": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), np.int32(0), floats(4)),
    "switch_last": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), np.int32(2), floats(4)),
    "switch_beyond": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), np.int32(7), floats(4)),
    "remat": (grad(jax.checkpoint(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w)), 0, 1), floats(4, 8), floats(8, 8)),
}
POOLS = {
    "max_pool_grad": (grad(max_pool(2, 2, "VALID")), floats(2, 8, 8, 3)),
    "overlapping_max_pool_grad": (grad(max_pool(3, 2, "SAME")), floats(2, 8, 8, 3)),
    "overlapping_max_pool_stride_1_grad": (grad(max_pool(3, 1, "VALID")), floats(1, 6, 6, 2)),
    "overlapping_max_pool_with_ties_grad": (grad(max_pool(3, 2, "SAME")), np.ones((1, 6, 6, 2), np.float32)),
}
RANDOM = {
    "uniform": (uniform, KEY),
    "normal": (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (4, 8)), KEY),
    "split": (split, KEY),
    "dropout_grad": (grad(lambda x, key: jnp.where(uniform(key) < 0.9, x / 0.9, 0)), floats(4, 8), KEY),
}
ORDINARY = {
    "conv_grad": (grad(convolve(), 0, 1), floats(2, 8, 8, 3), floats(3, 3, 3, 4)),
    "strided_conv_grad": (grad(convolve(2), 0, 1), floats(2, 8, 8, 3), floats(3, 3, 3, 4)),
    "depthwise_conv_grad": (grad(convolve(2, groups=6), 0, 1), floats(2, 8, 8, 6), floats(3, 3, 1, 6)),
    "dilated_conv_grad": (grad(convolve(dilation=(2, 2)), 0, 1), floats(2, 8, 8, 3), floats(3, 3, 3, 4)),
    "batched_dot_grad": (
        grad(lambda a, b: jnp.einsum("bqhd,bkhd->bhqk", a, b), 0, 1),
        floats(2, 3, 4, 5),
        floats(2, 6, 4, 5),
    ),
    "softmax_grad": (grad(lambda x: jax.nn.log_softmax(x)), floats(4, 8)),
    "layer_norm_grad": (
        grad(lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True))),
        floats(4, 8),
    ),
    "cumsum_grad": (grad(lambda x: jnp.cumsum(x, -1)), floats(4, 8)),
    "pad_and_slice_grad": (grad(lambda x: jnp.pad(x, ((1, 2), (0, 1)))[::2, 1::3]), floats(6, 8)),
    "dynamic_slice_grad": (grad(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 8))), floats(5, 8), np.int32(2)),
    "concatenate_grad": (grad(lambda a, b: jnp.concatenate([a, b], 1), 0, 1), floats(4, 3), floats(4, 5)),
    "gelu_erf_grad": (grad(lambda x: jax.nn.gelu(x, approximate=False)), floats(4, 8)),
    "integer_power_grad": (grad(lambda x: x**3), floats(4, 8)),
    "argmax": (lambda x: jnp.argmax(x, -1), floats(4, 8)),
    "bool_result": (lambda x: x > 0, floats(4, 8)),
    "causal_attention_grad": (
        grad(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), 0, 1, 2),
        floats(2, 8, 2, 4),
        floats(2, 8, 2, 4),
        floats(2, 8, 2, 4),
    ),
}
CASES = {**SCATTERS, **CONTROL, **POOLS, **RANDOM, **ORDINARY}


def lowered(function, *arguments, entry="step"):
    shapes = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in arguments]
    return lower(lambda *a: tuple(jax.tree.leaves(function(*a))), shapes, entry, HERE).text


@pytest.mark.parametrize("name", CASES)
def test_function_gives_the_results_of_jax_both_ways(name):
    function, *arguments = CASES[name]
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    by_loops = run_module(lowered(function, *arguments), "step", arguments)
    emitted = run_emitted(lowered(function, *arguments, entry="predict"), arguments)
    assert len(by_loops) == len(emitted) == len(expected)
    for *found, theirs in zip(by_loops, emitted, map(np.asarray, expected), strict=True):
        if theirs.dtype == np.uint32:
            theirs = theirs.view(np.int32)
        for ours in found:
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["take_grad", "take_along_axis_grad", "two_indices_grad", "vmapped_take_grad"])
def test_scatter_of_a_sum_is_one_reduction_and_holds_no_loop(name):
    text = lowered(*SCATTERS[name])
    assert "scf.for" not in text and "linalg.index" in text


def test_random_numbers_need_no_loop():
    assert "scf." not in lowered(*RANDOM["uniform"])


def test_gradient_of_a_max_pool_without_overlap_needs_no_loop():
    assert "scf." not in lowered(*POOLS["max_pool_grad"])


def test_a_function_of_the_users_called_step_does_not_clash():
    inner = jax.jit(lambda x: jnp.sin(x) * 2)
    inner.__wrapped__.__name__ = "step"

    @jax.jit
    def step(x):
        return jnp.cos(x) + 1

    x = floats(4)
    [found] = run_module(lowered(lambda x: step(inner(x)), x), "step", [x])
    np.testing.assert_allclose(found, np.cos(np.sin(x) * 2) + 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: jnp.abs(jnp.fft.rfft(x)), "stablehlo.fft"),
        (lambda x: jnp.linalg.cholesky(x @ x.T), "stablehlo.custom_call"),
    ],
)
def test_unsupported_op_is_named_with_its_line(function, op):
    with pytest.raises(WorkloadError) as raised:
        lowered(function, floats(4, 8))
    assert op in raised.value.what
    assert raised.value.where.startswith(f"{HERE}:")

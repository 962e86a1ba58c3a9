"""Each kind of op through the emitter at every length where vectors and their rests meet, against NumPy in float64.

One program an op: it holds the op once for each length, so that neighbours in the arena show what writes too far.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from both_ways import lowered, run_emitted
from jax import lax

LENGTHS = [*range(1, 41), 63, 64, 65, 127, 128, 129, 999, 1000, 1001]
FEW = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 19, 31, 33, 65, 129]  # where an op costs more than one vector an element
RNG = np.random.default_rng(5)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ints(n, low=-50, high=50):
    return RNG.integers(low, high, n).astype(np.int32)


def index(n, count=None):
    return RNG.integers(0, n, n if count is None else count).astype(np.int32)


def added(x, i, u):
    made = x.copy()
    np.add.at(made, i, u)
    return made


def largest(x, i, u):
    made = x.copy()
    np.maximum.at(made, i, u)
    return made


def windows(x, size, stride):
    return np.lib.stride_tricks.sliding_window_view(x, size)[::stride]


def convolved(x, w):
    return np.convolve(x, w[::-1], "same")


def sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


def softmax(xp, x):
    e = xp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(xp, x):
    return (x - x.mean(-1, keepdims=True)) / xp.sqrt(x.var(-1, keepdims=True) + 1e-3)


def same(function, *arguments):
    """A case whose NumPy form is its JAX form. function: of the module and the arguments; arguments: each by length."""
    return lambda *a: function(jnp, *a), lambda *a: function(np, *a), arguments


def vector(n):
    return floats(n)


def rows(n):
    return floats(3, n)


def columns(n):
    return floats(n, 3)


ELEMENTWISE = {
    "arithmetic": same(lambda xp, x, y: x * 2 + y / 3 - x * y, vector, vector),
    "functions": same(lambda xp, x: xp.exp(x) + xp.tanh(x) * xp.sqrt(xp.abs(x)) + sigmoid(xp, x), vector),
    "sine": same(lambda xp, x: xp.sin(x * 40) + xp.cos(x), vector),
    "choice": same(lambda xp, x, y: xp.where(x > y, x, xp.minimum(y, 0.5)), vector, vector),
    "compared": same(lambda xp, x, y: (x > y) & (x < 1), vector, vector),
    "integers": same(lambda xp, a, b: (a + b) * 3 - (a & b) + (a ^ 5), ints, ints),
    "divisions": same(lambda xp, a, b: a // b + a % b, ints, lambda n: ints(n, 1, 9)),
    "shifts": same(lambda xp, a, b: (a << b) + (a >> b), ints, lambda n: ints(n, 0, 8)),
    "to_int": same(lambda xp, x: (x * 9).astype(xp.int32), vector),
    "to_byte": same(lambda xp, x: (abs(x) * 9).astype(xp.uint8), vector),
    "from_byte": same(lambda xp, x: x.astype(xp.float32) / 255, lambda n: ints(n, 0, 255).astype(np.uint8)),
    "from_bool": same(lambda xp, x: (x > 0).astype(xp.float32) * 2, vector),
    "a_row_to_all": same(lambda xp, x, y: x + y, rows, vector),
    "a_column_to_all": same(lambda xp, x, y: x * y, columns, lambda n: floats(n, 1)),
    "rows": same(lambda xp, x: x * x + 1, rows),
    "ones_before": same(lambda xp, x: x[None] * 2, lambda n: floats(1, n)),
    "ones_behind": same(lambda xp, x, y: x * y, lambda n: floats(n, 1), lambda n: floats(1, n)),
}
MOVES = {
    "transposed": same(lambda xp, x: x.T * 2, columns),
    "reversed": same(lambda xp, x: x[::-1] + 1, vector),
    "every_second": same(lambda xp, x: x[::2] * 2, vector),
    "every_third_row": same(lambda xp, x: x[::3] * 2, columns),
    "joined": same(lambda xp, x, y: xp.concatenate([x, y * 2, x]), vector, vector),
    "joined_in_rows": same(lambda xp, x, y: xp.concatenate([x, y], 1), rows, rows),
    "padded": same(lambda xp, x: xp.pad(x, (2, 1)), vector),
    "rolled": same(lambda xp, x: xp.roll(x, 1), vector),
    "repeated": same(lambda xp, x: xp.repeat(x, 2), vector),
    "tiled": same(lambda xp, x: xp.tile(x, 3), vector),
    "triangle": same(lambda xp, x: xp.tril(x), lambda n: floats(7, n)),
}
INDEXED = {
    "taken": same(lambda xp, x, i: x[i], vector, index),
    "taken_and_used": same(lambda xp, x, i: x[i] * 2 + x, vector, index),
    "rows_taken": same(lambda xp, x, i: x[i], columns, index),
    "columns_taken": same(lambda xp, x, i: x[:, i], rows, index),
    "one_of_each_row": same(lambda xp, x, i: x[xp.arange(len(i)), i], lambda n: floats(n, 5), lambda n: index(5, n)),
    "along_an_axis": same(lambda xp, x, i: xp.take_along_axis(x, i, 1), rows, lambda n: index(n, 3 * n).reshape(3, n)),
    "taken_by_taken": same(lambda xp, x, i: x[i[i]], vector, index),
    "added_to": (lambda x, i, u: x.at[i].add(u), added, (vector, index, vector)),
    "largest_kept": (lambda x, i, u: x.at[i].max(u), largest, (vector, index, vector)),
    "gradient_of_taken": (
        lambda x, i, u: jnp.zeros_like(x).at[i].add(u, mode="promise_in_bounds"),
        lambda x, i, u: added(np.zeros_like(x), i, u),
        (columns, index, columns),
    ),
}
REDUCED = {
    "sum": same(lambda xp, x: x.sum(), vector),
    "sums_of_rows": same(lambda xp, x: x.sum(1), rows),
    "sums_of_columns": same(lambda xp, x: x.sum(0), columns),
    "sums_across": same(lambda xp, x: x.sum(0), rows),
    "mean_of_ones": same(lambda xp, x: x.mean(1), lambda n: floats(n, 1)),
    "largest": same(lambda xp, x: x.max(1), rows),
    "least_across": same(lambda xp, x: x.min(0), rows),
    "product": same(lambda xp, x: (1 + x / 50).prod(1), rows),
    "place_of_largest": same(lambda xp, x: x.argmax(1), rows),
    "any": same(lambda xp, x: (x > 1).any(1), rows),
    "any_and_count": same(lambda xp, x: xp.where((x > 1).any(1), (x > 0).sum(1), -1), rows),
    "all_across": same(lambda xp, x: (x > -1).all(0), rows),
    "sum_of_ints": same(lambda xp, a: a.sum(), ints),
    "softmax": same(softmax, rows),
    "norm": same(norm, rows),
    "dot": same(lambda xp, x, y: x @ y, vector, vector),
    "matrix_by_vector": same(lambda xp, x, y: x @ y, rows, vector),
    "vector_by_matrix": same(lambda xp, x, y: x @ y, vector, columns),
}
PRODUCTS = {
    "square": same(lambda xp, x, y: x @ y, lambda n: floats(n, n), lambda n: floats(n, n)),
    "by_transposed": same(lambda xp, x, y: x @ y.T, rows, lambda n: floats(5, n)),
    "transposed_by": same(lambda xp, x, y: x.T @ y, rows, lambda n: floats(3, 6)),
    "and_bias": same(lambda xp, x, y, b: xp.maximum(x @ y + b, 0), columns, lambda n: floats(3, n), vector),
    "batched": same(lambda xp, x, y: x @ y, lambda n: floats(2, n, 3), lambda n: floats(2, 3, n)),
}
WINDOWS = {
    "pool": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID"),
        lambda x: windows(x, 2, 2).max(1) if len(x) > 1 else x[:0],
        (vector,),
    ),
    "sums_of_three": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3,), (1,), "VALID"),
        lambda x: windows(x, 3, 1).sum(1) if len(x) > 2 else x[:0],
        (vector,),
    ),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x[None, :, None], w[:, None, None], (1,), "SAME",
                                              dimension_numbers=("NWC", "WIO", "NWC"))[0, :, 0],
        convolved,
        (lambda n: floats(max(n, 3)), lambda n: floats(3)),
    ),
    "running_sum": same(lambda xp, x: xp.cumsum(x), vector),
}  # fmt: skip
CASES = {
    **{name: (case, LENGTHS) for group in (ELEMENTWISE, MOVES, INDEXED, REDUCED) for name, case in group.items()},
    **{name: (case, FEW) for group in (PRODUCTS, WINDOWS) for name, case in group.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_op_is_right_at_every_length(name):
    (function, reference, makers), lengths = CASES[name]
    given = [[make(n) for make in makers] for n in lengths]
    count = len(makers)
    flat = [argument for one in given for argument in one]
    text = lowered(lambda *a: [function(*a[i : i + count]) for i in range(0, len(a), count)], *flat)
    found = run_emitted(text, flat)
    for n, arguments, ours in zip(lengths, given, found, strict=True):
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arguments]
        theirs = np.asarray(reference(*wide))
        assert ours.shape == theirs.shape, n
        tolerance = 1e-5 * max(1.0, float(np.abs(theirs.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=2e-5, atol=tolerance, err_msg=f"length {n}")

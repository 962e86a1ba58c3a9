"""Every kernel family against float64 over many shapes: odd ones, ones, long sums; bounds as `exact_steps` has them.

A sum of n terms may be off by (n + 2) half units in the last place of the sum of their sizes, for any order of it;
a function by what test_vector_math.py allows; movement, comparison, integers, maxima are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from exact_steps import Element, Step, Tensor, check, families_of
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steps import floats

SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40])
SMALL = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9])
CHANNELS = st.sampled_from([1, 3, 7, 8, 9, 16, 17])
few = settings(max_examples=3, deadline=None, derandomize=True)
LOW = float("-inf")


def names(program: object) -> set[str]:
    """The families of all phases of a program."""
    return {name for phases in families_of(program) for name in phases}  # pyright: ignore


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(floats(*shape, seed=seed)) + np.float32(0.25)


def integers(*shape: int, low: int = -100, high: int = 100, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape, dtype=np.int32)


# contractions

LOOPS = {"m": "d0", "n": "d1", "k": "d2"}


def through(word: str) -> str:
    return ", ".join(LOOPS[c] for c in word)


def product(step: Step, m: int, n: int, k: int, a: str = "mk", b: str = "kn", out: str = "mn") -> Tensor:
    """The product of two new arguments whose dimensions are named m, n, k."""
    size = {"m": m, "n": n, "k": k}
    left = step.argument(floats(*(size[c] for c in a)))
    right = step.argument(floats(*(size[c] for c in b), seed=1))
    return step.product(left, right, (m, n, k), "ppr", (through(a), through(b), through(out)))


@pytest.mark.parametrize("out", ["mn", "nm"])
@pytest.mark.parametrize("b", ["kn", "nk"])
@pytest.mark.parametrize("a", ["mk", "km"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_matmul_in_every_transposition(a: str, b: str, out: str, m: int, n: int, k: int):
    step = Step()
    check(step, product(step, m, n, k, a, b, out))


@pytest.mark.parametrize(
    ("m", "n", "k"), [(16, 10, 8192), (130, 130, 17), (1, 784, 130), (784, 1, 33), (6, 130, 784), (130, 9, 257)]
)
@pytest.mark.parametrize(("a", "b"), [("mk", "kn"), ("km", "kn"), ("mk", "nk")])
def test_large_matmul(m: int, n: int, k: int, a: str, b: str):
    step = Step()
    check(step, product(step, m, n, k, a, b))


BATCHED = {"kn": ("d0, d1, d3", "d0, d3, d2"), "nk": ("d0, d1, d3", "d0, d2, d3"), "km": ("d0, d3, d1", "d0, d3, d2"),
           "heads": ("d1, d0, d3", "d2, d0, d3")}  # fmt: skip


@pytest.mark.parametrize("form", BATCHED)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(batch=SMALL, m=SIZES, n=SIZES, k=SIZES)
def test_batched_matmul(form: str, batch: int, m: int, n: int, k: int):
    step, sizes = Step(), (batch, m, n, k)
    maps = BATCHED[form]
    a, b = (step.argument(floats(*(sizes[int(d[1:])] for d in to.split(", ")), seed=i)) for i, to in enumerate(maps))
    check(step, step.product(a, b, sizes, "pppr", (*maps, "d0, d1, d2")))


def gelu(x: Element) -> Element:
    return x * ((x * (1 / math.sqrt(2))).erf() + 1.0) * 0.5


def gelu_tanh(x: Element) -> Element:
    return x * (((x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)).tanh() + 1.0) * 0.5


EPILOGUES: dict[str, Callable[[Step, Tensor], Sequence[Tensor]]] = {
    "bias": lambda s, c: [s.map(lambda p, q: p + q, c, (s.argument(floats(c.shape[1])), "d1"))],
    "bias and relu": lambda s, c: [
        s.map(lambda p, q: (p + q).maximum(0.0), c, (s.argument(floats(c.shape[1])), "d1"))
    ],
    "gelu": lambda s, c: [s.map(gelu, c)],
    "gelu by tanh": lambda s, c: [s.map(gelu_tanh, c)],
    "residual": lambda s, c: [s.map(lambda p, q: p + q, c, s.argument(floats(*c.shape)))],
    "update": lambda s, c: [s.map(lambda p, q: q - p * 0.01, c, s.argument(floats(*c.shape)))],
    "scale by row": lambda s, c: [s.map(lambda p, q: p * q, c, (s.argument(floats(c.shape[0])), "d0"))],
    "itself and relu": lambda s, c: [c, s.map(lambda p: p.maximum(0.0), c)],
    "mask and relu": lambda s, c: [
        s.map(lambda p: p.compare("gt", 0.0), c, element="i1"), s.map(lambda p: p.maximum(0.0), c)
    ],
    "masked": lambda s, c: [
        s.map(lambda p, q: q.choose(p, p.of(0.0)), c, s.argument(floats(*c.shape, seed=3) > 0))
    ],
    "in f64": lambda s, c: [s.map(lambda p: p.to("f64"), c, element="f64")],
}  # fmt: skip


@pytest.mark.parametrize("epilogue", EPILOGUES)
@settings(max_examples=2, deadline=None, derandomize=True)
@given(m=SIZES, n=SIZES, k=SIZES, b=st.sampled_from(["kn", "nk"]))
def test_matmul_with_an_epilogue(epilogue: str, m: int, n: int, k: int, b: str):
    step = Step()
    check(step, *EPILOGUES[epilogue](step, product(step, m, n, k, b=b)))


@few
@given(m=SIZES, n=SIZES, k=SIZES)
def test_sum_onto_what_is_there(m: int, n: int, k: int):
    """A contraction that starts from an argument, and one that starts from another number than 0."""
    step = Step()
    a, b, c = (step.argument(floats(*shape, seed=i)) for i, shape in enumerate([(m, k), (k, n), (m, n)]))
    maps = ("d0, d2", "d2, d1", "d0, d1")
    check(step, *(step.product(a, b, (m, n, k), "ppr", maps, start=start) for start in (c, 1.5)))


@few
@given(m=SIZES, n=SIZES, k=SIZES)
def test_matmul_of_f64_and_of_integers(m: int, n: int, k: int):
    step = Step()
    a, b = (step.argument(floats(*shape).astype(np.float64)) for shape in ((m, k), (k, n)))
    p, q = (step.argument(integers(*shape, seed=i)) for i, shape in enumerate([(m, k), (k, n)]))
    maps = ("d0, d2", "d2, d1", "d0, d1")
    check(step, *(step.product(x, y, (m, n, k), "ppr", maps, start=0) for x, y in ((a, b), (p, q))))


@few
@given(m=SIZES, k=SIZES)
def test_matrix_by_vector_and_dot(m: int, k: int):
    step = Step()
    a, x = step.argument(floats(m, k)), step.argument(floats(k, seed=1))
    y = step.argument(floats(m, seed=2))
    check(
        step,
        step.product(a, x, (m, k), "pr", ("d0, d1", "d1", "d0")),
        step.product(a, y, (k, m), "pr", ("d1, d0", "d1", "d0")),
        step.product(x, x, (k,), "r", ("d0", "d0", "")),
        step.map(lambda p, q: p * q, (y, "d0"), (x, "d1"), shape=(m, k)),
    )


@pytest.mark.parametrize("where", ["transposed left", "transposed right", "reversed sum", "broadcast right"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_moves_fold_into_a_contraction(where: str, m: int, n: int, k: int):
    step = Step()
    if where == "transposed left":
        a, b = step.transpose(step.argument(floats(k, m)), [1, 0]), step.argument(floats(k, n, seed=1))
    elif where == "transposed right":
        a, b = step.argument(floats(m, k)), step.transpose(step.argument(floats(n, k, seed=1)), [1, 0])
    elif where == "reversed sum":
        back = step.argument(floats(k, n, seed=1))
        a, b = step.argument(floats(m, k)), step.map(lambda p: p, (back, f"{k - 1} - d0, d1"), shape=(k, n))
    else:
        a, b = step.argument(floats(m, k)), step.broadcast(step.argument(floats(k, seed=1)), (k, n), [1])
    check(step, step.matmul(a, b))


# convolutions


def convolution(step: Step, x: Tensor, w: Tensor, strides: tuple[int, int], dilations: tuple[int, int]) -> Tensor:
    (n, h, v, c), (i, j, _, f) = x.shape, w.shape
    (s, t), (e, g) = strides, dilations
    rows, columns = (h - e * (i - 1) - 1) // s + 1, (v - g * (j - 1) - 1) // t + 1
    maps = (f"d0, d1 * {s} + d4 * {e}, d2 * {t} + d5 * {g}, d6", "d4, d5, d6, d3", "d0, d1, d2, d3")
    named = (
        f"linalg.conv_2d_nhwc_hwcf {{strides = dense<[{s}, {t}]> : tensor<2xi64>,"
        f" dilations = dense<[{e}, {g}]> : tensor<2xi64>}}"
    )
    return step.product(x, w, (n, rows, columns, f, i, j, c), "pppprrr", maps, named)


WINDOW = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(5, 11), CHANNELS, CHANNELS, WINDOW, WINDOW, st.integers(0, 2), st.booleans())
def test_convolution(
    n: int, size: int, c: int, f: int, window: tuple[int, int], strides: tuple[int, int], pad: int, dilated: bool
):
    step = Step()
    x, w = step.argument(floats(n, size, size + 1, c)), step.argument(floats(*window, c, f, seed=1))
    if pad:
        x = step.pad(x, (0, pad, pad, 0), (0, pad, 0, 0))
    y = convolution(step, x, w, strides, (2, 1) if dilated else (1, 1))
    bias = step.argument(floats(f))
    check(step, step.map(lambda p, q: (p + q).maximum(0.0), y, (bias, "d3")))


@few
@given(st.integers(1, 3), st.integers(3, 8), CHANNELS, CHANNELS, WINDOW)
def test_gradient_of_a_convolution_by_its_weights(n: int, rows: int, c: int, f: int, window: tuple[int, int]):
    """As in the steps of lenet and resnet18: sums and results interleaved."""
    step, (i, j) = Step(), window
    x = step.argument(floats(n, rows + i - 1, rows + j, c))
    g = step.argument(floats(n, rows, rows + 1, f, seed=1))
    maps = ("d0, d2 + d3, d4 + d5, d6", "d0, d3, d5, d1", "d2, d4, d6, d1")
    sizes = (n, f, i, rows, j, rows + 1, c)
    check(step, step.product(x, g, sizes, "rpprprp", maps))


@few
@given(st.integers(1, 3), st.integers(3, 8), CHANNELS, CHANNELS, WINDOW)
def test_gradient_of_a_convolution_by_its_input(n: int, rows: int, c: int, f: int, window: tuple[int, int]):
    """A padded gradient and reversed weights."""
    step, (i, j) = Step(), window
    g = step.argument(floats(n, rows, rows, f))
    w = step.argument(floats(i, j, c, f, seed=1))
    turned = step.map(lambda p: p, (w, f"{i - 1} - d0, {j - 1} - d1, d2, d3"), shape=w.shape)
    wide = step.pad(g, (0, i - 1, j - 1, 0), (0, i - 1, j - 1, 0))
    maps = ("d6, d2 + d3, d4 + d5, d0", "d3, d5, d1, d0", "d6, d2, d4, d1")
    check(step, step.product(wide, turned, (f, c, rows + i - 1, i, rows + j - 1, j, n), "rpprprp", maps))


@few
@given(st.integers(1, 2), st.integers(2, 5), CHANNELS, CHANNELS)
def test_gradients_of_a_convolution_with_strides(n: int, rows: int, c: int, f: int):
    """The gradient is spread out by an insertion of every second element."""
    step, wide = Step(), 2 * rows - 1
    g, x = step.argument(floats(n, rows, rows, f)), step.argument(floats(n, wide + 2, wide + 2, c, seed=1))
    apart = step.insert(g, step.filled((n, wide, wide, f), 0.0), [0] * 4, [n, rows, rows, f], [1, 2, 2, 1])
    maps = ("d0, d2 + d3, d4 + d5, d6", "d0, d3, d5, d1", "d2, d4, d6, d1")
    check(step, step.product(x, apart, (n, f, 3, wide, 3, wide, c), "rpprprp", maps))


@pytest.mark.parametrize("stride", [1, 2])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(2, 8), CHANNELS, WINDOW)
def test_depthwise_convolution_and_its_gradients(stride: int, n: int, rows: int, c: int, window: tuple[int, int]):
    step, (i, j) = Step(), window
    x = step.argument(floats(n, (rows - 1) * stride + i, (rows - 1) * stride + j, c))
    w, g = step.argument(floats(i, j, c, seed=1)), step.argument(floats(n, rows, rows, c, seed=2))
    named = (
        f"linalg.depthwise_conv_2d_nhwc_hwc {{strides = dense<{stride}> : tensor<2xi64>,"
        " dilations = dense<1> : tensor<2xi64>}"
    )
    at = f"d0, d1 * {stride} + d4, d2 * {stride} + d5, d3"
    y = step.product(x, w, (n, rows, rows, c, i, j), "pppprr", (at, "d4, d5, d3", "d0, d1, d2, d3"), named)
    by_weights = step.product(x, g, (n, rows, rows, c, i, j), "rrrppp", (at, "d0, d1, d2, d3", "d4, d5, d3"))
    results = [y, by_weights]
    if stride == 1:
        wide = step.pad(g, (0, i - 1, j - 1, 0), (0, i - 1, j - 1, 0))
        turned = step.map(lambda p: p, (w, f"{i - 1} - d0, {j - 1} - d1, d2"), shape=w.shape)
        sizes = (n, rows + i - 1, rows + j - 1, c, i, j)
        maps = ("d0, d1 + d4, d2 + d5, d3", "d4, d5, d3", "d0, d1, d2, d3")
        results.append(step.product(wide, turned, sizes, "pppprr", maps))
    check(step, *results)


# elementwise


@few
@given(SMALL, SIZES, SIZES)
def test_broadcasts(a: int, b: int, c: int):
    step, shape = Step(), (a, b, c)
    x, row, column = (step.argument(floats(*s, seed=i)) for i, s in enumerate([shape, (c,), (b,)]))
    scalar, plane = step.argument(np.float32(0.75)), step.argument(floats(a, c, seed=5))
    check(
        step,
        step.map(lambda p, q, r: p * q + r, x, (row, "d2"), (column, "d1")),
        step.map(lambda p, q, r: (p - q) * r, x, (scalar, ""), (plane, "d0, d2")),
        step.broadcast(row, shape, [0, 1]),
        step.broadcast(column, shape, [0, 2]),
        step.broadcast(scalar, shape, [0, 1, 2]),
    )


@pytest.mark.parametrize("element", ["f32", "f64", "i32", "i1"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(SMALL, SIZES, SIZES)
def test_permutations_reversals_and_strides(element: str, a: int, b: int, c: int):
    step, shape = Step(), (a, b, c)
    found = {"f32": floats(*shape), "f64": floats(*shape).astype(np.float64), "i32": integers(*shape),
             "i1": floats(*shape) > 0}[element]  # fmt: skip
    x = step.argument(found)

    def moved(to: str, shape: Sequence[int]) -> Tensor:
        return step.map(lambda p: p, (x, to), shape=shape, element=element)

    check(
        step,
        moved("d1, d2, d0", (c, a, b)),
        moved("d2, d1, d0", (c, b, a)),
        moved(f"{a - 1} - d0, d1, {c - 1} - d2", shape),
        moved(f"d0, {b - 1} - d2, d1", (a, c, b)),
        step.slice(x, [0, 0, 0], [a, (b + 1) // 2, (c + 2) // 3], [1, 2, 3]),
    )


@few
@given(SIZES, SIZES)
def test_a_sum_of_a_matrix_and_its_transpose(a: int, b: int):
    """One side of the vectors is strided: blocks are transposed in registers."""
    step = Step()
    x, y = step.argument(floats(a, b)), step.argument(floats(b, a, seed=1))
    check(step, step.map(lambda p, q: p + q, x, (y, "d1, d0")))


@few
@given(SIZES, SIZES)
def test_a_result_written_transposed(a: int, b: int):
    """No emitter's: plain loops do it."""
    step = Step()
    x = step.argument(floats(a, b))
    outputs = [(None, "d1, d0", "f32")]
    check(step, *step.generic("pp", (a, b), [(x, "d0, d1")], outputs, lambda p, _: p * 2.0), emitted=False)


@pytest.mark.parametrize("combine", ["ori", "andi"])
@few
@given(SIZES, SIZES, st.sampled_from([(0,), (1,), (0, 1)]))
def test_reduction_of_masks(combine: str, a: int, b: int, axes: tuple[int, ...]):
    step = Step()
    x = step.argument(floats(a, b) > (1.5 if combine == "ori" else -1.5))
    check(step, step.reduce(x, axes, combine, combine == "andi"))


@few
@given(SIZES, SIZES, SMALL)
def test_sums_that_are_no_plain_products(a: int, b: int, k: int):
    """Products of three factors, the largest of sums, a decaying sum."""
    step = Step()
    x, y, z = (step.argument(floats(*shape, seed=i)) for i, shape in enumerate([(a, k), (k, b), (k,)]))
    sizes, three = (a, b, k), [(x, "d0, d2"), (y, "d2, d1"), (z, "d2")]
    (triple,) = step.generic("ppr", sizes, three, [(0.0, "d0, d1", "f32")], lambda p, q, r: p * q * r, "addf")
    (largest,) = step.generic("ppr", sizes, three[:2], [(LOW, "d0, d1", "f32")], lambda p, q: p + q, "maximumf")
    (decaying,) = step.generic("pr", (a, k), [(x, "d0, d1")], [(1.0, "d0", "f32")], lambda p, acc: acc * 0.5 + p)
    check(step, triple, largest, decaying)


@few
@given(SMALL, SMALL, SIZES, SMALL)
def test_transposition_of_four_dimensions(a: int, b: int, c: int, d: int):
    step = Step()
    x = step.argument(floats(a, b, c, d))
    check(step, *(step.transpose(x, order) for order in ((0, 2, 1, 3), (0, 3, 1, 2), (3, 0, 2, 1), (1, 0, 3, 2))))


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "sqrt", "rsqrt", "abs"])
@settings(max_examples=2, deadline=None, derandomize=True)
@given(SIZES, SIZES)
def test_functions(name: str, a: int, b: int):
    step = Step()
    x = step.argument(positive(a, b))
    check(step, step.map(lambda p: getattr(p, name)(), x))


@few
@given(SIZES, SIZES)
def test_masks_in_and_out(a: int, b: int):
    step = Step()
    x, y = step.argument(floats(a, b)), step.argument(floats(a, b, seed=1))
    given_mask, row = step.argument(floats(a, b, seed=2) > 0), step.argument(floats(b, seed=3) > 0)
    mask = step.map(lambda p, q: p.compare("lt", q), x, y, element="i1")
    both = step.map(lambda p, q: p | q, given_mask, (row, "d1"), element="i1")
    check(
        step, mask, both,
        step.map(lambda m, p, q: m.choose(p, q), mask, x, y),
        step.map(lambda m, p: m.choose(p, p.of(0.0)), both, x),
        step.map(lambda m: m.to("f32"), given_mask),
        step.map(lambda m: m, (given_mask, "d1, d0"), shape=(b, a), element="i1"),
    )  # fmt: skip


@few
@given(SIZES, SIZES)
def test_types_in_one_kernel(a: int, b: int):
    step = Step()
    x, n, w = step.argument(floats(a, b)), step.argument(integers(a, b)), step.argument(floats(a, b).astype(np.float64))
    check(
        step,
        step.map(lambda p, q: p * q.to("f32"), x, n),
        step.map(lambda p, q: p.to("f64") + q, x, w, element="f64"),
        step.map(lambda p: p * p + 3, n, element="i32"),
        step.map(lambda p: p.maximum(7), n, element="i32"),
        step.map(lambda p: p.to("i32"), x, element="i32"),
        step.map(lambda p: p.compare("eq", 3), n, element="i1"),
    )


@few
@given(SIZES, SIZES)
def test_an_index_in_a_body(a: int, b: int):
    step = Step()
    x = step.argument(floats(a, b))

    def body(p: Element) -> Element:
        return p * (step.loops[0]() * 3 + step.loops[1]()).to("i32").to("f32")

    labels = step.argument(integers(a, low=0, high=b))
    one_hot = step.map(lambda n: n.compare("eq", step.loops[1]().to("i32")).to("f32"), (labels, "d0"), shape=(a, b))
    check(step, step.map(body, x), one_hot)


def test_scalars_and_fills():
    step = Step()
    a, b = step.argument(np.float32(1.25)), step.argument(np.float32(-0.5))
    n = step.argument(np.int32(7))
    check(
        step,
        step.map(lambda p, q: p * q + 1.0, a, b),
        step.map(lambda p: p + 1, n, element="i32"),
        step.filled((3, 5), 2.5),
        step.filled((17,), 7, "i32"),
        step.filled((9,), 1, "i1"),
        step.filled((), 4.0),
    )


@few
@given(SIZES, SIZES)
def test_arrays_that_are_constants(a: int, b: int):
    step = Step()
    x = step.argument(floats(a, b))
    table = step.constant(floats(a, b, seed=4))
    row = step.constant(integers(b, seed=1))
    check(
        step, step.map(lambda p, q: p + q, x, table), step.map(lambda p, q: p * q.to("f32"), x, (row, "d1"))
    )  # fmt: skip


# reductions


@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)])
@pytest.mark.parametrize("combine", ["addf", "maximumf", "minimumf", "mulf"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(SIZES, SIZES)
def test_reduction_of_rows_columns_and_all(axes: tuple[int, ...], combine: str, a: int, b: int):
    step = Step()
    x = step.argument(positive(a, b) if combine == "mulf" else floats(a, b))
    start = {"addf": 0.0, "maximumf": LOW, "minimumf": float("inf"), "mulf": 1.0}[combine]
    made = check(step, step.reduce(x, axes, combine, start))
    assert names(made) <= {"reduction", "window", "elementwise"}


@pytest.mark.parametrize("shape", [(3, 8192), (8192, 3), (784, 33), (33, 784), (1, 100_003), (100_003, 1), (16, 2049)])
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)])
def test_long_sums(shape: tuple[int, int], axes: tuple[int, ...]):
    step = Step()
    x = step.argument(floats(*shape))
    check(
        step,
        step.reduce(x, axes),
        step.reduce(x, axes, body=lambda p: p * p),
        step.reduce(x, axes, "maximumf", LOW),
    )


@few
@given(SMALL, SMALL, SIZES, st.sampled_from([(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]))
def test_reduction_of_three_dimensions(a: int, b: int, c: int, axes: tuple[int, ...]):
    step = Step()
    x, n = step.argument(floats(a, b, c)), step.argument(integers(a, b, c))
    check(step, step.reduce(x, axes), step.reduce(n, axes, "addi", 0), step.reduce(n, axes, "maxsi", -(2**31)))


@pytest.mark.parametrize("element", ["f64", "i32"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(SIZES, SIZES, st.sampled_from([(0,), (1,), (0, 1)]))
def test_reduction_of_other_types(element: str, a: int, b: int, axes: tuple[int, ...]):
    step = Step()
    x = step.argument(
        floats(a, b).astype(np.float64) if element == "f64" else integers(a, b, low=-(2**31), high=2**31 - 1)
    )
    kinds = [("addf", 0.0), ("maximumf", LOW)] if element == "f64" else [
        ("addi", 0), ("maxsi", -(2**31)), ("minsi", 2**31 - 1), ("muli", 1), ("ori", 0), ("andi", -1)
    ]  # fmt: skip
    check(step, *(step.reduce(x, axes, combine, start) for combine, start in kinds))


@few
@given(SIZES, SIZES)
def test_sums_from_a_given_start_and_side_by_side(a: int, b: int):
    step = Step()
    x, y = step.argument(floats(a, b)), step.argument(floats(a, b, seed=1))
    start = step.argument(floats(a, seed=2))
    inputs = [(x, "d0, d1"), (y, "d0, d1")]
    outputs = [(0.0, "d0", "f32"), (0.0, "d0", "f32"), (1.0, "d0", "f32")]
    several = step.generic("pr", (a, b), inputs, outputs, lambda p, q: [p, p * q, q], "addf")
    check(step, step.reduce(x, [1], start=start), *several)


@few
@given(SIZES, SIZES, st.booleans())
def test_largest_and_where(a: int, b: int, columns: bool):
    """The reduction of two results that argmax is."""
    step = Step()
    x = step.argument(np.round(floats(a, b) * 2))  # with ties: the first one wins

    def body(p: Element, best: Element, at: Element) -> list[Element]:
        where = step.loops[0 if columns else 1]().to("i32")
        better = p.compare("gt", best)
        return [better.choose(p, best), better.choose(where, at)]

    kinds, out = ("rp", "d1") if columns else ("pr", "d0")
    outputs = [(LOW, out, "f32"), (0, out, "i32")]
    largest, where = step.generic(kinds, (a, b), [(x, "d0, d1")], outputs, body)
    np.testing.assert_array_equal(where.exact, np.argmax(x.exact, 0 if columns else 1))
    check(step, largest, where)


# rows


def softmax(step: Step, x: Tensor) -> Tensor:
    largest = step.reduce(x, [1], "maximumf", LOW)
    raised = step.map(lambda p, m: (p - m).exp(), x, (largest, "d0"))
    return step.map(lambda p, t: p / t, raised, (step.reduce(raised, [1]), "d0"))


@few
@given(SIZES, SIZES)
def test_softmax_and_its_gradient(a: int, b: int):
    step = Step()
    x, g = step.argument(floats(a, b)), step.argument(floats(a, b, seed=1))
    y = softmax(step, x)
    dot = step.reduce(step.map(lambda p, q: p * q, y, g), [1])
    check(step, y, step.map(lambda p, q, d: p * (q - d), y, g, (dot, "d0")))


@pytest.mark.parametrize(("a", "b"), [(7, 1000), (3, 2047), (2, 2048), (2, 2050), (3, 5000)])
def test_softmax_of_long_rows(a: int, b: int):
    step = Step()
    check(step, softmax(step, step.argument(floats(a, b))))


@few
@given(SMALL, SIZES, SIZES)
def test_layer_norm_and_rms_norm(a: int, b: int, c: int):
    step, shape = Step(), (a, b, c)
    x, scale, shift = step.argument(floats(*shape)), step.argument(floats(c)), step.argument(floats(c, seed=1))
    mean = step.map(lambda p: p / float(c), step.reduce(x, [2]))
    off = step.map(lambda p, m: p - m, x, (mean, "d0, d1"))
    spread = step.map(lambda p: (p / float(c) + 0.1).rsqrt(), step.reduce(off, [2], body=lambda p: p * p))
    layer = step.map(lambda p, r, s, t: p * r * s + t, off, (spread, "d0, d1"), (scale, "d2"), (shift, "d2"))
    root = step.map(lambda p: (p / float(c) + 0.1).rsqrt(), step.reduce(x, [2], body=lambda p: p * p))
    check(step, layer, step.map(lambda p, r, s: p * r * s, x, (root, "d0, d1"), (scale, "d2")))


@few
@given(SMALL, SMALL, CHANNELS)
def test_batch_norm(n: int, rows: int, c: int):
    step, shape, count = Step(), (n, rows, rows + 1, c), n * rows * (rows + 1)
    x, scale = step.argument(floats(*shape)), step.argument(floats(c))
    mean = step.map(lambda p: p / float(count), step.reduce(x, [0, 1, 2]))
    square = step.map(lambda p: p / float(count), step.reduce(x, [0, 1, 2], body=lambda p: p * p))
    spread = step.map(lambda q, m: (q - m * m + 1.0).rsqrt(), square, mean)
    y = step.map(lambda p, m, r, s: ((p - m) * r * s).maximum(0.0), x, (mean, "d3"), (spread, "d3"), (scale, "d3"))
    moving = step.argument(floats(c, seed=3))
    check(step, y, mean, step.map(lambda old, new: old * 0.9 + new * 0.1, moving, mean))


# windows


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 5), CHANNELS, st.integers(1, 3), st.integers(1, 3))
def test_pooling(n: int, rows: int, c: int, window: int, stride: int):
    step, size = Step(), (rows - 1) * stride + window
    x = step.argument(floats(n, size, size, c))
    inputs = [(x, f"d0, d1 * {stride} + d4, d2 * {stride} + d5, d3")]
    sizes, out = (n, rows, rows, c, window, window), "d0, d1, d2, d3"
    shape = step.argument(np.zeros((window, window), np.float32))
    pair = [*inputs, (shape, "d4, d5")]
    (largest,) = step.generic("pppprr", sizes, pair, [(LOW, out, "f32")], lambda p, _: p, "maximumf")
    (total,) = step.generic("pppprr", sizes, pair, [(0.0, out, "f32")], lambda p, _: p, "addf")
    check(step, largest, step.map(lambda p: p / float(window**2), total))


@few
@given(st.integers(1, 3), st.integers(1, 7), CHANNELS)
def test_max_pooling_and_its_gradient(n: int, rows: int, c: int):
    """The form of lenet's step: where the maximum is, then a choice for every element of the window."""
    step = Step()
    x, g = step.argument(floats(n, 2 * rows, 2 * rows, c)), step.argument(floats(n, rows, rows, c, seed=1))
    window = step.argument(np.zeros((2, 2), np.float32))
    out = "d0, d1, d2, d3"

    def where(p: Element, _: Element, best: Element, at: Element) -> list[Element]:
        take = p.compare("ge", best) | at.compare("eq", -1)
        here = (step.loops[4]() * 2 + step.loops[5]()).to("i32")
        return [take.choose(p, best), take.choose(here, at)]

    inputs = [(x, "d0, d1 * 2 + d4, d2 * 2 + d5, d3"), (window, "d4, d5")]
    outputs = [(LOW, out, "f32"), (-1, out, "i32")]
    _, place = step.generic("pppprr", (n, rows, rows, c, 2, 2), inputs, outputs, where)

    def chosen(at: Element, value: Element) -> Element:
        here = (step.loops[2]() * 2 + step.loops[4]()).to("i32")
        return here.compare("eq", at).choose(value, value.of(0.0))

    apart = step.map(chosen, (place, "d0, d1, d3, d5"), (g, "d0, d1, d3, d5"), shape=(n, rows, 2, rows, 2, c))
    whole = step.collapse(apart, [[0], [1, 2], [3, 4], [5]])
    check(step, place, whole)


# movement


@few
@given(SMALL, SIZES, CHANNELS, st.integers(0, 3), st.integers(0, 3))
def test_pad(a: int, b: int, c: int, low: int, high: int):
    step = Step()
    x, n = step.argument(floats(a, b, c)), step.argument(integers(a, b))
    check(
        step,
        step.pad(x, (0, low, 0), (0, high, 1)),
        step.pad(x, (low, 1, high), (1, 0, 2), -1.5),
        step.pad(n, (high, low), (low, 0), 7),
    )


@few
@given(SIZES, SIZES, st.data())
def test_slices_and_insertions(a: int, b: int, data: st.DataObject):
    step = Step()
    x = step.argument(floats(a, b))
    offsets = [data.draw(st.integers(0, s - 1)) for s in (a, b)]
    strides = [data.draw(st.integers(1, 3)) for _ in (a, b)]
    sizes = [data.draw(st.integers(1, (s - o - 1) // t + 1)) for s, o, t in zip((a, b), offsets, strides, strict=True)]
    part = step.slice(x, offsets, sizes, strides)
    y = step.argument(floats(*sizes, seed=1))
    check(step, part, step.insert(y, x, offsets, sizes, strides),
          step.insert(part, step.filled((a, b), 0.5), offsets, sizes, strides))  # fmt: skip


@few
@given(SMALL, SIZES, SIZES)
def test_slices_that_drop_dimensions(a: int, b: int, c: int):
    step = Step()
    x, row = step.argument(floats(a, b, c)), step.argument(floats(c, seed=1))
    check(
        step,
        step.slice(x, [a - 1, 0, 0], [1, b, c], [1, 1, 1], [0]),
        step.slice(x, [0, b - 1, 0], [a, 1, c], [1, 1, 1], [1]),
        step.slice(x, [a // 2, b // 2, 0], [1, 1, c], [1, 1, 1], [0, 1]),
        step.slice(x, [0, 0, c - 1], [a, b, 1], [1, 1, 1], [2]),
        step.insert(row, x, [a // 2, b // 2, 0], [1, 1, c], [1, 1, 1]),
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(SMALL, SMALL, SIZES, st.lists(SIZES, min_size=2, max_size=4))
def test_concatenation(axis: int, a: int, b: int, c: int, sizes: list[int]):
    step = Step()
    parts: list[Tensor] = []
    for number, size in enumerate(sizes):
        shape = [a, b, c]
        shape[axis] = size
        parts.append(step.argument(floats(*shape, seed=number)))
    check(step, step.concatenate(parts, axis))


@few
@given(SMALL, SIZES, SIZES, st.booleans())
def test_concatenation_with_what_reads_it(a: int, b: int, c: int, backwards: bool):
    """The branches are in the body of an op with inputs of its own, as in a rotary embedding."""
    step = Step()
    x, y, z = step.argument(floats(a, b)), step.argument(floats(a, c, seed=1)), step.argument(floats(a, b + c, seed=2))
    row = step.argument(floats(b + c, seed=3))
    whole = step.concatenate([x, y], 1)
    to = f"{b + c - 1} - d1" if backwards else "d1"
    check(step, step.map(lambda p, q, r: p * q + r, whole, z, (row, to)))


@few
@given(SIZES, SIZES, SIZES)
def test_gather_and_scatter_of_rows(count: int, rows: int, width: int):
    """The scatter is the sum that the JAX frontend writes: of every update, 0 where its index is another one."""
    step = Step()
    table, at = step.argument(floats(rows, width)), step.argument(integers(count, low=0, high=rows))
    found = step.gather(table, at)
    updates = step.argument(floats(count, width, seed=1))

    def term(n: Element, update: Element) -> Element:
        return n.compare("eq", step.loops[0]().to("i32")).choose(update, update.of(0.0))

    (added,) = step.generic("ppr", (rows, width, count), [(at, "d2"), (updates, "d2, d1")],
                            [(table, "d0, d1", "f32")], lambda n, u, acc: acc + term(n, u))  # fmt: skip
    check(step, found, added)


@few
@given(SMALL, SMALL, SIZES)
def test_reshapes_between_kernels(a: int, b: int, c: int):
    step = Step()
    x = step.argument(floats(a, b, c))
    y = step.map(lambda p: p * 2.0, x)
    flat = step.collapse(y, [[0, 1], [2]])
    sums = step.reduce(flat, [1])
    z = step.expand(step.map(lambda p, s: p - s, flat, (sums, "d0")), [[0, 1], [2]], (a, b, c))
    check(step, step.map(lambda p, q: p + q, z, x), sums)


@pytest.mark.parametrize("ones", [(1, 1, 1), (1, 9, 1), (9, 1, 1), (1, 1, 9), (1, 17, 33), (17, 1, 33), (17, 33, 1)])
def test_dimensions_of_size_1_everywhere(ones: tuple[int, int, int]):
    step = Step()
    x, y = step.argument(floats(*ones)), step.argument(floats(*ones, seed=1))
    total = step.map(lambda p, q: p + q, x, y)
    sums = [step.reduce(total, axes) for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2))]
    turned = step.transpose(total, (2, 0, 1))
    largest = step.reduce(turned, [1], "maximumf", LOW)
    check(step, total, *sums, turned, largest, step.map(lambda p, s: p * s, x, (sums[1], "d0, d2")))

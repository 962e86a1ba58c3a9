"""Expansions of math functions, compiled at several lane counts, against float64: bounds in ulp and special values."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir.dialects.llvm import translate_module_to_llvmir  # pyright: ignore

from fitness.loader import Loader
from mlir_passes.ir_tools import new_context, parse, run_passes
from mlir_passes.kernels.code import Code, vector
from mlir_passes.kernels.vector_math import EXPANSIONS, NATIVE
from mlir_passes.llvm import object_from_ir

SIZE = 4096  # elements of one call
LANES = (1, 4, 8)
TO_LLVM = (
    "convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,"
    "finalize-memref-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-cf-to-llvm,"
    "reconcile-unrealized-casts,canonicalize,cse"
)
OPERANDS = {"math.powf": 2, "math.copysign": 2, "math.fma": 3}
EXACT: dict[str, Callable[..., np.ndarray]] = {
    "math.cos": np.cos,
    "math.erf": lambda x: np.array([math.erf(value) for value in x]),
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.log": np.log,
    "math.log1p": np.log1p,
    "math.log2": np.log2,
    "math.powf": np.power,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.sin": np.sin,
    "math.tanh": np.tanh,
}
# The docstrings of the expansions state these.
BOUND_ULP = {
    "math.cos": 2.0,
    "math.erf": 3.0,
    "math.exp": 2.0,
    "math.exp2": 1.0,
    "math.expm1": 2.0,
    "math.log": 1.0,
    "math.log1p": 1.5,
    "math.log2": 1.5,
    "math.powf": 5.0,
    "math.rsqrt": 1.5,
    "math.sin": 2.1,
    "math.tanh": 3.0,
}
INF, NAN = math.inf, math.nan
SPECIAL = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 2.5, 3.0, -3.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-40, -1e-40),
        *(2.0**-126, 1 + 2.0**-23, 1 - 2.0**-24, -1 + 2.0**-24, 3.4028235e38, -3.4028235e38, 2.0**24 - 1, 2.0**24 + 2),
        *(88.72283, 88.72284, -87.33655, -103.97208, -103.97209, -104.5, 128.0, -126.0, -149.0, -150.5, 9.1, -20.5),
    ],
    np.float32,
)


def function_text(op: str, lanes: int) -> str:
    """A function over flat memrefs, `lanes` elements at a time, last argument the result."""
    code, type_, memory = Code(), vector("f32", lanes), f"memref<{SIZE}xf32>"
    of, dialect = (f"{memory}, {type_}", "vector") if lanes > 1 else (memory, "memref")
    arguments = [f"%a{k}" for k in range(OPERANDS.get(op, 1))]
    with code.block(f"scf.for %i = {code.index(0)} to {code.index(SIZE)} step {code.index(lanes)}"):
        loaded = [code.name() for _ in arguments]
        for name, argument in zip(loaded, arguments, strict=True):
            code.line(f"{name} = {dialect}.load {argument}[%i] : {of}")
        value = EXPANSIONS[op](code, loaded, type_) if op in EXPANSIONS else code.op(op, loaded, type_)
        code.line(f"{dialect}.store {value}, %out[%i] : {of}")
    head = ", ".join(f"{name}: {memory}" for name in [*arguments, "%out"])
    return f"func.func @{symbol(op)}({head}) {{\n{code.text}\n  return\n}}"


def symbol(op: str) -> str:
    return op.replace(".", "_")


@cache
def llvm_text(lanes: int) -> str:
    """All functions of one lane count as one LLVM module."""
    context = new_context()
    with context:
        module = parse("\n".join(function_text(op, lanes) for op in sorted({*EXPANSIONS, *NATIVE})), context)
        run_passes(module, TO_LLVM, "test")
        return translate_module_to_llvmir(module.operation)


@cache
def loader(lanes: int) -> Loader:
    made = Loader()
    made.add(object_from_ir(llvm_text(lanes)), "vector_math")
    return made


def call(op: str, lanes: int, *arguments: np.ndarray) -> np.ndarray:
    """The function applied to float32 arrays of any one length."""
    size = len(arguments[0])
    pieces = -(-size // SIZE)
    padded = [np.resize(np.float32(argument), pieces * SIZE) for argument in arguments]
    out = np.empty(pieces * SIZE, np.float32)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arguments) + 1))(loader(lanes).address(symbol(op)))
    for start in range(0, pieces * SIZE, SIZE):
        function(*(array[start:].ctypes.data for array in [*padded, out]))
    return out[:size]


def exact(op: str, *arguments: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return EXACT[op](*(argument.astype(np.float64) for argument in arguments))


def error_ulp(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of `want` as float32; infinite where only one is NaN or infinite."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        unit = np.spacing(np.minimum(np.abs(rounded), np.float32(2.0**127)))
        distance = np.abs(got - want) / unit
        distance[(got == rounded) & ~np.isfinite(rounded) | np.isnan(got) & np.isnan(want)] = 0
        return np.where(np.isnan(distance), INF, distance)


def assert_close(op: str, lanes: int, *arguments: np.ndarray) -> None:
    want = exact(op, *arguments)
    errors = error_ulp(call(op, lanes, *arguments), want)
    worst = int(np.argmax(errors))
    at = [float(argument[worst]) for argument in arguments]
    assert errors[worst] <= BOUND_ULP[op], f"{op}{at}: {errors[worst]} ulp, expected {want[worst]}"


def grid(op: str) -> np.ndarray:
    """Float32 values of every exponent, and a fine grid where the function bends."""
    bits = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.concatenate(
        [np.linspace(-12, 12, 30011), np.linspace(-110, 130, 10007), 1 + np.linspace(-0.5, 0.5, 8009)]
    )
    if op in ("math.sin", "math.cos"):
        quarters = np.arange(-63000, 63000, 7) * (np.pi / 2)
        near = np.concatenate([near, quarters, np.linspace(9e4, 1.1e5, 10007)])
    return np.concatenate([bits, np.float32(near)])


UNARY = sorted(op for op in EXPANSIONS if op not in OPERANDS)


def test_tables_do_not_overlap():
    assert set(EXPANSIONS) == set(BOUND_ULP) == set(EXACT)
    assert not NATIVE & set(EXPANSIONS)


@pytest.mark.parametrize("lanes", LANES)
def test_assembly_calls_nothing(lanes: int):
    assembly = object_from_ir(llvm_text(lanes), assembly=True).decode()
    assert not re.findall(r"@PLT|@GOTPCREL|\bcallq?\b", assembly)


@pytest.mark.parametrize("op", UNARY)
def test_unary_on_a_grid(op: str):
    assert_close(op, 8, grid(op))


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("lanes", LANES)
def test_special_values(op: str, lanes: int):
    assert_close(op, lanes, SPECIAL)
    got, want = call(op, lanes, SPECIAL), exact(op, SPECIAL)
    zeros = want == 0
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("op", sorted(EXPANSIONS))
def test_every_lane_count_gives_the_same_bits(op: str):
    random = np.random.default_rng(0)
    arguments = [random.integers(0, 2**32, SIZE, dtype=np.uint32).view(np.float32) for _ in range(OPERANDS.get(op, 1))]
    with np.errstate(all="ignore"):
        first, *others = (call(op, lanes, *arguments) for lanes in LANES)
    assert all(np.array_equal(first, other, equal_nan=True) for other in others)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(UNARY), st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20))
def test_drawn_values(op: str, values: list[float]):
    assert_close(op, 8, np.array(values, np.float32))


@pytest.mark.parametrize("op", ["math.tanh", "math.erf", "math.sin", "math.cos"])
def test_bounded_functions_stay_within_one(op: str):
    assert np.nanmax(np.abs(call(op, 8, grid("math.exp")))) <= 1


@pytest.mark.parametrize("lanes", LANES)
def test_sine_of_large_arguments(lanes: int):
    """All exponents, arguments near a multiple of pi / 2, and large ones beside small ones."""
    random = np.random.default_rng(0)
    values = random.uniform(1, 2, 20000) * 2.0 ** random.integers(-10, 128, 20000)
    near = [16367173 * 2.0**72, 1.3981616e37, 6381956970095103 * 2.0**60, *(np.arange(1, 500) * 1e6 * np.pi / 2)]
    for op in ("math.sin", "math.cos"):
        assert_close(op, lanes, np.float32([*values, *np.negative(values), *near]))


def test_powers_of_two_are_exact():
    exponents = np.arange(-149, 128).astype(np.float32)
    powers = np.exp2(exponents.astype(np.float64)).astype(np.float32)
    assert np.array_equal(call("math.exp2", 8, exponents), powers)
    assert np.array_equal(call("math.log2", 8, powers), exponents)


@pytest.mark.parametrize("lanes", LANES)
def test_power_of_special_values(lanes: int):
    x, y = (axis.ravel() for axis in np.meshgrid(SPECIAL, SPECIAL))
    assert_close("math.powf", lanes, x, y)
    got, want = call("math.powf", lanes, x, y), exact("math.powf", x, y)
    known = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize(
    ("bases", "exponents"),
    [
        ((-20.0, 20.0), (-30.0, 30.0)),
        ((1.3, 1.4), (-250.0, 250.0)),
        ((0.0, 3.0), (-80.0, 80.0)),
        ((0.98, 1.02), (-4000.0, 4000.0)),
    ],
)
def test_power_of_random_values(bases: tuple[float, float], exponents: tuple[float, float]):
    random = np.random.default_rng(0)
    x, y = random.uniform(*bases, 50000).astype(np.float32), random.uniform(*exponents, 50000).astype(np.float32)
    assert_close("math.powf", 8, x, y)
    assert_close("math.powf", 8, x, np.round(y))


def test_native_ops():
    x = np.concatenate(
        [np.linspace(-5, 5, 4001, dtype=np.float32), np.array([INF, -INF, -0.0, 2.0**23 + 1], np.float32)]
    )
    away = np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x).astype(np.float32)
    want = {"absf": np.abs(x), "ceil": np.ceil(x), "floor": np.floor(x), "round": away, "roundeven": np.rint(x)}
    want |= {"trunc": np.trunc(x), "sqrt": np.sqrt(np.abs(x)), "copysign": np.copysign(x, -x), "fma": x * 2 + 1}
    assert {f"math.{name}" for name in want} == NATIVE
    others = {"sqrt": (np.abs(x),), "copysign": (x, -x), "fma": (x, np.full_like(x, 2), np.ones_like(x))}
    for name, expected in want.items():
        got = call(f"math.{name}", 8, *others.get(name, (x,)))
        # 2 x + 1 is rounded twice in NumPy.
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 if name == "fma" else 0, err_msg=name)

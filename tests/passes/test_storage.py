"""Values between kernels stored as f16 and bf16: what is rounded, how, who reads it, and what it saves."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from exact_steps import assert_near
from random_steps import random_step
from small_steps import MLP, floats, run_program

from fitness.loader import Loader
from mlir_passes import lower_cpu, storage
from mlir_passes.errors import PassError
from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.ir_tools import new_context, parse
from mlir_passes.kernels.nest import NotCovered
from mlir_passes.llvm import Host, object_from_ir
from mlir_passes.lower_cpu import compile_kernel, symbol
from mlir_passes.objects import ObjectCache
from mlir_passes.partition import partition
from mlir_passes.pipeline import canonical_text, compile_program
from mlir_passes.program import Program
from workloads import workload

NARROW = ("f16", "bf16")
ROWS, INNER, COLUMNS = 40, 48, 56


def bf16(x: np.ndarray) -> np.ndarray:
    """x rounded to bf16, to nearest, ties to even, as float32."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        exact = np.asarray(x, np.float64)
    bits = exact.astype(np.float32).view(np.uint32)
    low = (bits & np.uint32(0xFFFF0000)).view(np.float32)  # toward zero
    high = ((bits & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)  # the next one away from zero
    with np.errstate(invalid="ignore", over="ignore"):
        limit = np.where(np.isinf(high), np.copysign(2.0**128, exact), high.astype(np.float64))
        to_low, to_high = np.abs(exact - low), np.abs(limit - exact)
    even = (bits >> 16) & 1 == 0
    found = np.where((to_low < to_high) | ((to_low == to_high) & even), low, high)
    return np.where(np.isfinite(exact), found, exact).astype(np.float32)


def rounded(x: np.ndarray, element: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32) if element == "f16" else bf16(x)


def program(text: str, element: str, n_state: int = 0, n_batch: int = 0, cache: ObjectCache | None = None) -> Program:
    return compile_program(
        canonical_text(text, "step"), "step", n_state, n_batch, cache or ObjectCache(None), storage=element
    )


def run(text: str, element: str, *batch: np.ndarray) -> list[np.ndarray]:
    return run_program(program(text, element, 0, len(batch)), [], batch)


# one conversion, by all bit patterns

KERNEL = """module {{
  func.func @{name}(%from: memref<{n}x{a}>, %to: memref<{n}x{b}>) {{
    %x = bufferization.to_tensor %from restrict : memref<{n}x{a}> to tensor<{n}x{a}>
    %y = bufferization.to_tensor %to restrict writable : memref<{n}x{b}> to tensor<{n}x{b}>
    %z = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]}} ins(%x : tensor<{n}x{a}>) outs(%y : tensor<{n}x{b}>) {{
    ^bb0(%p: {a}, %q: {b}):
      %r = arith.{op} %p : {a} to {b}
      linalg.yield %r : {b}
    }} -> tensor<{n}x{b}>
    bufferization.materialize_in_destination %z in restrict writable %to : (tensor<{n}x{b}>, memref<{n}x{b}>) -> ()
    return
  }}
}}
"""


@cache
def conversion(op: str, from_: str, to: str, n: int, loops: bool) -> tuple[Loader, int]:
    text = KERNEL.format(name=PLACEHOLDER, n=n, a=from_, b=to, op=op)
    kernel = KernelText("elementwise", text, 1, 1, 0, 0, 0)
    failing = patch("mlir_passes.lower_cpu._by_emitter", side_effect=NotCovered("by loops"))
    key = f"{op}{to}{from_}{n}{loops}"
    if loops:
        with failing:
            made = compile_kernel(kernel, key, new_context())
    else:
        made = compile_kernel(kernel, key, new_context())
    loader = Loader()
    loader.add(made.code, key)
    return loader, made.shards


def converted(x: np.ndarray, op: str, from_: str, to: str, loops: bool) -> np.ndarray:
    loader, shards = conversion(op, from_, to, x.size, loops)
    out = np.empty(x.size, np.uint16 if op == "truncf" else np.float32)
    call = ctypes.CFUNCTYPE(None)(loader.address(symbol(f"{op}{to}{from_}{x.size}{loops}")))
    ends = ctypes.c_int64(0), ctypes.c_int64(shards)
    call(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), *ends)
    return out


def patterns() -> Iterator[np.ndarray]:
    """All upper halves of f32, each with lower halves around the middle between two bf16."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        yield (upper | np.uint32(low)).view(np.float32)
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32)
    yield random.view(np.float32)
    yield np.random.default_rng(1).normal(0, 1e-6, 1 << 16).astype(np.float32)  # denormal as f16


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("element", NARROW)
def test_rounding_is_to_nearest_even_for_all_values_and_keeps_nan(element: str, loops: bool):
    for x in patterns():
        bits = converted(x, "truncf", "f32", element, loops)
        found = bits.view(np.float16).astype(np.float32) if element == "f16" else widened_bf16(bits)
        np.testing.assert_array_equal(found, rounded(x, element))
        sure = ~np.isnan(x)
        np.testing.assert_array_equal(np.signbit(found)[sure], np.signbit(x)[sure])


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("element", NARROW)
def test_widening_is_exact_for_all_values(element: str, loops: bool):
    bits = np.arange(1 << 16, dtype=np.uint16)
    wanted = bits.view(np.float16).astype(np.float32) if element == "f16" else widened_bf16(bits)
    np.testing.assert_array_equal(converted(bits, "extf", element, "f32", loops), wanted)


def widened_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_our_bf16_of_known_values():
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, 3.3961776e38, -(1 + 2**-8 + 2**-20)], np.float32)
    assert bf16(x).tolist() == [1.0, 1.0, 1 + 2**-6, np.inf, np.inf, -(1 + 2**-7)]


# who reads what

ID, ROW = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d0)>"
SQUARE = f"""linalg.generic {{indexing_maps = [{ID}, {ID}], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<40x48xf32>) outs(%e : tensor<40x48xf32>) {{
  ^bb0(%p: f32, %o: f32):
    %t = math.tanh %p : f32
    %q = math.exp %t : f32
    linalg.yield %q : f32
  }} -> tensor<40x48xf32>"""
READERS = {
    "left": ("tensor<48x56xf32>", "tensor<40x56xf32>", """
  %e1 = tensor.empty() : tensor<40x56xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<40x56xf32>) -> tensor<40x56xf32>
  %r = linalg.matmul ins(%h, %w : tensor<40x48xf32>, tensor<48x56xf32>) outs(%f1 : tensor<40x56xf32>)
    -> tensor<40x56xf32>""", lambda h, w: h @ w),
    "right": ("tensor<56x40xf32>", "tensor<56x48xf32>", """
  %e1 = tensor.empty() : tensor<56x48xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<56x48xf32>) -> tensor<56x48xf32>
  %r = linalg.matmul ins(%w, %h : tensor<56x40xf32>, tensor<40x48xf32>) outs(%f1 : tensor<56x48xf32>)
    -> tensor<56x48xf32>""", lambda h, w: w @ h),
    "left transposed": ("tensor<40x56xf32>", "tensor<48x56xf32>", """
  %et = tensor.empty() : tensor<48x40xf32>
  %ht = linalg.transpose ins(%h : tensor<40x48xf32>) outs(%et : tensor<48x40xf32>) permutation = [1, 0]
  %e1 = tensor.empty() : tensor<48x56xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<48x56xf32>) -> tensor<48x56xf32>
  %r = linalg.matmul ins(%ht, %w : tensor<48x40xf32>, tensor<40x56xf32>) outs(%f1 : tensor<48x56xf32>)
    -> tensor<48x56xf32>""", lambda h, w: h.T @ w),
    "right transposed": ("tensor<56x48xf32>", "tensor<56x40xf32>", """
  %et = tensor.empty() : tensor<48x40xf32>
  %ht = linalg.transpose ins(%h : tensor<40x48xf32>) outs(%et : tensor<48x40xf32>) permutation = [1, 0]
  %e1 = tensor.empty() : tensor<56x40xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<56x40xf32>) -> tensor<56x40xf32>
  %r = linalg.matmul ins(%w, %ht : tensor<56x48xf32>, tensor<48x40xf32>) outs(%f1 : tensor<56x40xf32>)
    -> tensor<56x40xf32>""", lambda h, w: w @ h.T),
    "a slice": ("tensor<48x56xf32>", "tensor<30x56xf32>", """
  %hs = tensor.extract_slice %h[5, 0] [30, 48] [1, 1] : tensor<40x48xf32> to tensor<30x48xf32>
  %e1 = tensor.empty() : tensor<30x56xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<30x56xf32>) -> tensor<30x56xf32>
  %r = linalg.matmul ins(%hs, %w : tensor<30x48xf32>, tensor<48x56xf32>) outs(%f1 : tensor<30x56xf32>)
    -> tensor<30x56xf32>""", lambda h, w: h[5:35] @ w),
    "padding": ("tensor<50x56xf32>", "tensor<43x56xf32>", """
  %hp = tensor.pad %h low[1, 2] high[2, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %half : f32
  } : tensor<40x48xf32> to tensor<43x50xf32>
  %e1 = tensor.empty() : tensor<43x56xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<43x56xf32>) -> tensor<43x56xf32>
  %r = linalg.matmul ins(%hp, %w : tensor<43x50xf32>, tensor<50x56xf32>) outs(%f1 : tensor<43x56xf32>)
    -> tensor<43x56xf32>""", lambda h, w: np.pad(h, ((1, 2), (2, 0)), constant_values=0.5) @ w),
    "a reshape": ("tensor<24x56xf32>", "tensor<80x56xf32>", """
  %flat = tensor.collapse_shape %h [[0, 1]] : tensor<40x48xf32> into tensor<1920xf32>
  %hr = tensor.expand_shape %flat [[0, 1]] output_shape [80, 24] : tensor<1920xf32> into tensor<80x24xf32>
  %e1 = tensor.empty() : tensor<80x56xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<80x56xf32>) -> tensor<80x56xf32>
  %r = linalg.matmul ins(%hr, %w : tensor<80x24xf32>, tensor<24x56xf32>) outs(%f1 : tensor<80x56xf32>)
    -> tensor<80x56xf32>""", lambda h, w: h.reshape(80, 24) @ w),
    "an extraction": ("tensor<48x2xf32>", "tensor<48x40xf32>", """
  %e1 = tensor.empty() : tensor<48x40xf32>
  %last = arith.constant 39 : index
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      outs(%e1 : tensor<48x40xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %back = arith.subi %last, %j : index
    %v = tensor.extract %h[%back, %i] : tensor<40x48xf32>
    %v2 = arith.addf %v, %v : f32
    linalg.yield %v2 : f32
  } -> tensor<48x40xf32>""", lambda h, w: 2 * h[::-1].T),
}  # fmt: skip


def step(reader: str) -> str:
    w, r, code, _ = READERS[reader]
    return f"""func.func @step(%x: tensor<40x48xf32>, %w: {w}) -> ({r}, tensor<40xf32>) {{
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<40x48xf32>
  %h = {SQUARE}
  %es = tensor.empty() : tensor<40xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<40xf32>) -> tensor<40xf32>
  %s = linalg.generic {{indexing_maps = [{ID}, {ROW}], iterator_types = ["parallel", "reduction"]}}
      ins(%h : tensor<40x48xf32>) outs(%fs : tensor<40xf32>) {{
  ^bb0(%p: f32, %o: f32):
    %m = arith.addf %o, %p : f32
    linalg.yield %m : f32
  }} -> tensor<40xf32>{code}
  return %r, %s : {r}, tensor<40xf32>
}}"""


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("element", NARROW)
def test_another_kernel_reads_the_rounded_value_and_the_makers_own_the_f32(element: str, reader: str, loops: bool):
    text, shape = step(reader), [int(n) for n in re.findall(r"\d+(?=x)", READERS[reader][0])]
    x, w = floats(ROWS, INNER), floats(*shape, seed=1)
    if loops:
        with patch("mlir_passes.lower_cpu._by_emitter", side_effect=NotCovered("by loops")):
            found, sums = run(text, element, x, w)
    else:
        found, sums = run(text, element, x, w)
    h = np.exp(np.tanh(x.astype(np.float64)))
    unsure = np.abs(rounded(h * (1 + 1e-6), element) - rounded(h * (1 - 1e-6), element))  # a tie within f32's error
    read, weights = READERS[reader][3], w.astype(np.float64)
    apart = np.abs(found - read(rounded(h, element).astype(np.float64), weights))
    assert (apart <= read(unsure, np.abs(weights)) * 1.01 + 1e-4).all()
    assert np.abs(apart).mean() < 0.3 * np.abs(read(rounded(h, element), weights) - read(h, weights)).mean()
    np.testing.assert_allclose(sums, h.sum(axis=1), rtol=2e-6)


def test_f32_storage_changes_nothing():
    text = canonical_text(step("left"), "step")
    graphs = [partition(parse(text, new_context()), "step", 0, *given) for given in ((), ("f32",))]
    assert graphs[0] == graphs[1] and not any("f16" in k.text for k in graphs[0].kernels)


@pytest.mark.parametrize("element", NARROW)
def test_a_stored_value_takes_half_the_bytes_and_kernels_are_cut_alike(element: str):
    wide, narrow = program(step("left"), "f32", 0, 2), program(step("left"), element, 0, 2)
    sizes = [sorted(b.bytes for b in p.plan.buffers if b.role == "activation") for p in (wide, narrow)]
    assert sizes == [[ROWS * INNER * 4], [ROWS * INNER * 2]]
    assert wide.plan.peak_bytes - narrow.plan.peak_bytes == ROWS * INNER * 2
    assert [wide.kernels[c.kernel].kind for c in wide.plan.calls] == [
        narrow.kernels[c.kernel].kind for c in narrow.plan.calls
    ]
    assert sum(k.flops for k in wide.kernels.values()) == sum(k.flops for k in narrow.kernels.values())


@pytest.mark.parametrize("element", NARROW)
def test_state_results_and_small_values_stay_f32(element: str):
    made = program(MLP, element, 2, 2)
    assert not any("f16" in kernel.text for kernel in made.kernels.values())
    assert {b.dtype for b in made.plan.buffers} <= {"float32", "int32", "bool"}


@pytest.mark.parametrize("element", NARROW)
def test_no_kernel_calls_a_library_to_convert(element: str):
    texts: list[str] = []

    def spy(ir_text: str, *given: object, **named: object) -> bytes:
        texts.append(object_from_ir(ir_text, assembly=True).decode())
        return object_from_ir(ir_text)

    with patch.object(lower_cpu, "object_from_ir", spy):
        for reader in READERS:
            program(step(reader), element, 0, 2)
            with patch("mlir_passes.lower_cpu._by_emitter", side_effect=NotCovered("by loops")):
                program(step(reader), element, 0, 2)
    called = {name for text in texts for name in re.findall(r"\tcall\w*\s+\*?([\w@.]+)", text)}
    assert len(texts) >= 4 * len(READERS)
    assert not {name for name in called if re.search("^__.*(h[fs]|[ds]f|bf)", name)}, called
    if element == "f16":
        assert any("vcvtph2ps" in text for text in texts) and any("vcvtps2ph" in text for text in texts)


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("seed", range(12))
def test_random_steps_are_near_with_every_value_narrow(element: str, seed: int):
    steps, states, results = random_step(seed)
    with patch.object(storage, "_LEAST", 2):
        made = program(steps.text(results), element, states, len(steps.arguments) - states)
    found = run_program(made, steps.arguments[:states], steps.arguments[states:])
    wide = run_program(
        program(steps.text(results), "f32", states, len(steps.arguments) - states),
        steps.arguments[:states], steps.arguments[states:],
    )  # fmt: skip
    assert_near(wide, results)
    for a, b in zip(found, wide, strict=True):
        assert np.linalg.norm(a - b) <= (0.02 if element == "f16" else 0.1) * np.linalg.norm(b) + 1e-6


# refusals


def test_an_unknown_storage_is_refused():
    with pytest.raises(PassError, match="unknown storage 'f8'"):
        program(MLP, "f8", 2, 2)


def test_f16_is_refused_on_a_cpu_that_cannot_convert_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(storage, "host", lambda: Host("x86_64", "core2", "+sse2"))
    with pytest.raises(PassError, match="F16C"):
        storage.check_storage("f16")
    storage.check_storage("bf16")


def test_the_packages_agree_on_what_storages_there_are():
    assert storage.STORAGES == workload.STORAGES

"""Matrix products through NumPy's OpenBLAS: against float64, chosen, exported, and where the library is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_steps import compiled, floats, run_program
from test_lowering import assert_sum_close, matmul_text

from fitness.program import load_step, save_program
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS
from mlir_passes.lower_cpu import kernel_hash, read_nest
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program, kernel_text
from mlir_passes.program import Program

needs_blas = pytest.mark.skipif(not blas.symbol(), reason="NumPy brings no OpenBLAS")
CASES = [(a, b) for a in ("mk", "km") for b in ("kn", "nk")]
M, N, K = 24, 33, 17


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blas, "_library", lambda: None)


def by_blas(text: str) -> Program:
    (kernel,) = compiled(text, 0, 3).kernels.values()
    choices = {kernel_hash(kernel_text(kernel)): BLAS}
    return compile_program(canonical_text(text, "step"), "step", 0, 3, ObjectCache(None), choices=choices)


def operands(a: str, b: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    x, y = floats(M, K), floats(K, N, seed=1)
    return x, y, [x if a == "mk" else x.T, y if b == "kn" else y.T, floats(N, seed=2)]


@needs_blas
@pytest.mark.parametrize(("a", "b"), CASES)
def test_every_transposition(a: str, b: str):
    x, y, arguments = operands(a, b)
    program = by_blas(matmul_text(M, N, K, a, b))
    assert [kernel.library for kernel in program.kernels.values()] == [blas.symbol()]
    (got,) = run_program(program, [], arguments)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(y)
    assert_sum_close(got, x.astype(np.float64) @ y, K, magnitude)


def test_what_is_more_than_a_product_is_none():
    (kernel,) = compiled(matmul_text(M, N, K, "mk", "kn", epilogue=True), 0, 3).kernels.values()
    assert blas.product(read_nest(kernel_text(kernel), new_context())) is None


def test_without_the_library_the_default_is_made(no_library):
    text = matmul_text(M, N, K, "mk", "kn")
    assert by_blas(text) == compiled(text, 0, 3)


@needs_blas
@pytest.mark.parametrize("present", [True, False])
def test_exported_program_runs_with_and_without_the_library(tmp_path, monkeypatch, capsys, present: bool):
    x, y, arguments = operands("mk", "kn")
    program = by_blas(matmul_text(M, N, K, "mk", "kn"))
    names = [
        {"name": name, "shape": list(v.shape), "dtype": "float32"} for name, v in zip("abc", arguments, strict=True)
    ]
    save_program(tmp_path / "p", program, {"signature": {"state": [], "batch": names}})
    if not present:
        monkeypatch.setattr(blas, "_library", lambda: None)
    step = load_step(tmp_path / "p")
    _, (got,) = step([], arguments)
    np.testing.assert_allclose(got, x @ y, rtol=1e-4, atol=1e-5)
    assert ("BLAS" in capsys.readouterr().err) is not present


@needs_blas
def test_a_library_with_another_name_does_not_serve(monkeypatch):
    assert blas.serves(["", ""]) and blas.serves(["", blas.symbol()])
    assert not blas.serves(["other_sgemm"])
    kernels = by_blas(matmul_text(M, N, K, "mk", "kn")).kernels
    assert not blas.serves(replace(k, library="other").library for k in kernels.values())

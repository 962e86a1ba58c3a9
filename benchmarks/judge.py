"""What gevo makes of a random program, held against jax.jit and against JAX in float64.

A float is right if it is jax.jit's up to a few roundings, or as near to float64 as jax.jit is, up to a factor. Where it
is not, the program runs in float64 again, each value of a line moved by the rounding of its type at random: what no
such run comes near is wrong. So neither ill-conditioned sums nor a comparison of two values that are equal up to
rounding raise an alarm. Integers and booleans have to be equal, unless those runs differ, too. NaN is not wrong where a
line gave NaN: XLA loses it in some maxima (jnp.max of NaN, shape 7, 9, 11, 6, over axis 2, is -inf).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fitness.cpu import CpuRunner
from mlir_passes.errors import PassError, UnsupportedOp
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from random_ops import draw
from random_programs import Line, Program
from workloads.errors import Kind, WorkloadError
from workloads.frontends.jax import lower

ROUNDING = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
NEAR = 32.0  # roundings of the values around that an element may be off
FACTOR = 16.0  # how many times as far from float64 as jax.jit
RUNS = 8
HERE = Path(__file__)


def compile_quickly() -> None:
    """XLA compiles fast code no longer, which takes a third less time. Before the first use of JAX."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=false {flags}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@dataclass(frozen=True)
class Verdict:
    """kind: pass, refused, wrong, failed (an error that names no op, or a crash), jax (JAX itself cannot run it)."""

    kind: str
    message: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in ("wrong", "failed")


def judged_seed(seed: int) -> Verdict:
    return judged(draw(seed))


def judged(program: Program) -> Verdict:
    arrays = program.arrays()
    try:
        want = [np.asarray(a) for a in jax.jit(program.function())(*arrays)]
    except Exception as error:
        return Verdict("jax", f"{type(error).__name__}: {_first(error)}")
    try:
        got = by_gevo(program, arrays)
    except WorkloadError as error:
        return Verdict("refused" if error.kind == Kind.OP else "failed", f"WorkloadError: {error.what}")
    except UnsupportedOp as error:
        return Verdict("refused", f"UnsupportedOp: {error.what}")
    except PassError as error:
        return Verdict("failed", f"{type(error).__name__}: {_first(error)}")
    except Exception as error:
        return Verdict("failed", f"{type(error).__name__}: {_first(error)}")
    return compared(program, arrays, got, want)


def by_gevo(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results by the frontend, the pipeline and the runner, as `gevo` has them."""
    forms = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    text = lower(program.function(), forms, "predict", HERE).text
    runner = CpuRunner(compile_text(text, "predict", 0, len(arrays), ObjectCache(None)), guard=True)
    runner.poison(0xAA)
    for view, array in zip(runner.batch, arrays, strict=True):
        view[...] = array
    runner.run()
    return [np.array(m) for m in runner.metrics]


def compared(
    program: Program, arrays: Sequence[np.ndarray], got: Sequence[np.ndarray], want: Sequence[np.ndarray]
) -> Verdict:
    if all(_alike(g, w) for g, w in zip(got, want, strict=True)):
        return Verdict("pass")
    wide = _in_float64(program, arrays)
    rounding = max(ROUNDING.get(dtype, 0.0) for dtype in (*program.dtypes, "f32"))
    pairs = list(zip(got, want, wide, strict=True))
    for i, (g, w, _) in enumerate(pairs):
        if g.shape != w.shape or g.dtype != w.dtype:
            return Verdict("wrong", f"result {i} has form {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}")
    doubtful = [i for i, pair in enumerate(pairs) if _off(*pair, rounding).any()]
    if not doubtful:
        return Verdict("pass")
    moved = [_in_float64(program, arrays, run) for run in range(RUNS)]
    with_nan = _has_nan(program, arrays)
    for i in doubtful:
        g, w, f = pairs[i]
        off = _off(g, w, f, rounding) & ~_within(pairs[i], [m[i] for m in moved], rounding)
        if with_nan and g.dtype.kind == "f":
            off &= ~np.isnan(g)
        if off.any():
            at = tuple(int(k) for k in np.argwhere(off)[0])
            found = f"got {g[at]}, want {w[at]}, float64 {f[at]}"
            return Verdict("wrong", f"result {i} at {list(at)} and {off.sum() - 1} more of {off.size}: {found}")
    return Verdict("pass")


def _has_nan(program: Program, arrays: Sequence[np.ndarray]) -> bool:
    """Whether an argument or a line is NaN somewhere."""
    values = jax.jit(replace(program, outputs=tuple(line.value for line in program.lines)).function())(*arrays)
    return any(bool(np.isnan(a).any()) for a in (*arrays, *map(np.asarray, values)))


def _in_float64(program: Program, arrays: Sequence[np.ndarray], run: int | None = None) -> list[np.ndarray]:
    """The results in float64; of a numbered run, with the values of lines moved at random by their rounding."""

    def moved(line: Line, value: Any) -> Any:
        size = ROUNDING.get(line.value.dtype)
        if run is None or size is None:
            return value
        noise = np.random.default_rng([run, int(line.value.name[1:])]).uniform(-1, 1, line.value.shape)
        return value * (1 + size * noise)

    with jax.enable_x64(True):
        try:
            return [np.asarray(a) for a in jax.jit(program.function(True, moved))(*arrays)]
        except TypeError:  # a type of the loop's values that differs in float64
            return [np.asarray(a) for a in jax.jit(program.function())(*arrays)]


def _alike(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether the results are those of jax.jit up to a few roundings; then float64 has nothing to say."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if got.dtype.kind != "f":
        return bool(np.array_equal(got, want))
    with np.errstate(all="ignore"):
        return bool(np.all(_same(got, want) | (np.abs(got - want) <= 4 * ROUNDING["f32"] * np.abs(want))))


def _off(got: np.ndarray, want: np.ndarray, wide: np.ndarray, rounding: float) -> np.ndarray:
    """Where the result is neither what jax.jit gave nor as near to float64."""
    if got.dtype.kind != "f":
        return got != want
    g, w, f = (a.astype(np.float64) for a in (got, want, wide))
    f = np.where(np.isfinite(f), f, w)
    with np.errstate(all="ignore"):
        room = NEAR * rounding * (np.abs(f) + _scale(f)) + FACTOR * np.abs(w - f) + FACTOR * _scale(w - f)
        return ~((np.abs(g - f) <= room) | _same(g, w) | _same(g, wide.astype(np.float32).astype(np.float64)))


def _within(pair: Sequence[np.ndarray], moved: Sequence[np.ndarray], rounding: float) -> np.ndarray:
    """Where the result lies among those that rounding may lead to."""
    got, *others = (a.astype(np.float64) for a in (*pair, *moved))
    runs = np.stack(others)
    with np.errstate(all="ignore"):
        low, high = np.nanmin(runs, 0), np.nanmax(runs, 0)
        room = 2 * (high - low) + (NEAR * rounding * np.abs(runs).max(0) if pair[0].dtype.kind == "f" else 0)
        inside = (got >= low - room) & (got <= high + room)
    return inside | np.any(_same(got[None], runs), 0)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _scale(values: np.ndarray) -> float:
    """The size of the larger ones among the finite values."""
    finite = np.abs(values[np.isfinite(values)])
    return float(np.quantile(finite, 0.9)) if finite.size else 0.0


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]

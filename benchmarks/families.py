"""Kernel families, each compiled by gevo as a program of its own, against JAX, OpenBLAS and PyTorch on one core.

    python benchmarks/families.py [--only softmax] [--quick] [--out build/bench]

Every row is a small JAX function. `gevo us` is its time inside a program; the other times are of one call from
Python, as each library is used. `jax/gevo` compares calls, JAX's with gevo's; `less calls` what is left of them when
each system's cost of a call (first line) is taken off. `% peak` is of the measured multiply-add peak, `% copy` of
a streaming copy of as many bytes, both measured beside each row, because the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import ctypes as c
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from common import (
    COLOURS,
    OUT,
    System,
    calls,
    fastest,
    interleaved,
    line,
    machine,
    parsed,
    picture,
    ratio,
    save,
    settle,
    started,
)
from family_kernels import Kernel, kernels
from fitness.cpu import CpuRunner
from fitness.loader import Loader
from fitness.timing import peak_flops
from mlir_passes.llvm import object_from_ir
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program
from mlir_passes.program import Program
from workloads.cache import cache_folder
from workloads.frontends.jax import lower

OTHERS = ("jax", "blas", "torch")
RATES = ("GF/s", "% peak", "KiB", "% copy", "jax/gevo", "less calls")
HEAD = ("kernel", "calls", *(f"{name} us" for name in ("gevo", *OTHERS)), *RATES)
SMOKE = "--only 64x64"
FORMS = {
    "calls": "d",
    **{f"{name}_us": ".1f" for name in ("gevo", *OTHERS)},
    "gflops": ".1f",
    "share_of_peak": ".0%",
    "KiB": ".0f",
    "share_of_copy": ".0%",
    "jax_over_gevo": ".2f",
    "less_calls": ".2f",
}
WIDTHS = (30, 5, 8, 8, 8, 8, 6, 6, 6, 6, 8, 10)
DRAM_BYTES = 64 << 20
TOLERANCE = 1e-3


@dataclass
class Row:
    """What was measured of a kernel. times: (runs, windows) seconds a call; peaks: FLOP/s beside each run."""

    kernel: Kernel
    program: Program | None = None
    times: dict[str, np.ndarray] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    peaks: list[float] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Inputs and outputs, once each."""
        if self.kernel.moved:
            return self.kernel.moved
        made = jax.eval_shape(self.kernel.function, *self.kernel.arrays)
        return sum(a.size * a.dtype.itemsize for a in (*self.kernel.arrays, *jax.tree.leaves(made)))

    @property
    def flops(self) -> int:
        if self.kernel.flops is not None or self.program is None:
            return self.kernel.flops or 0
        return sum(self.program.kernels[call.kernel].flops for call in self.program.plan.calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows with this in their name")
    parser.add_argument("--quick", action="store_true", help="gevo and JAX alone, 3 runs of 5 windows")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    settle(1)
    runs, windows = (1, 3) if arguments.smoke else (3, 5) if arguments.quick else (5, 15)
    others = ("jax",) if arguments.quick else OTHERS
    with one_thread():
        cost = {name: float(t.min()) for name, t in interleaved(smallest_calls(others), runs, windows).items()}
        costs = ", ".join(f"{name} {s * 1e6:.2f} us" for name, s in cost.items())
        print(f"{machine()}\none call that does next to nothing: {costs}\n{line(HEAD, WIDTHS)}")
        rows = []
        for kernel in kernels():
            if arguments.only in kernel.name:
                rows.append(measured(kernel, others, runs, windows, arguments.smoke))
                print(line(cells(rows[-1], cost), WIDTHS), flush=True)
                for name, reason in rows[-1].reasons.items():
                    print(f"    {name}: {reason}")
    if arguments.smoke or not arguments.only:
        save([record(row, cost) for row in rows], arguments.out / "families.csv")
        picture(arguments.out / "roofline.png", partial(draw_roofline, rows), (10, 5.5))


def one_thread() -> Any:
    """OpenBLAS with one thread inside; it chose its pool when NumPy was imported."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def measured(kernel: Kernel, others: tuple[str, ...], runs: int, windows: int, smoke: bool) -> Row:
    row = Row(kernel)
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(kernel.function)(*kernel.arrays))]

    def gevo() -> System:
        row.program = compiled(kernel)
        runner = CpuRunner(row.program)
        runner.write_batch(kernel.arrays)
        runner.run()
        for found, wanted in zip(runner.metrics, expected, strict=True):
            np.testing.assert_allclose(found, wanted, TOLERANCE, TOLERANCE * max(1e-6, np.abs(wanted).max()))
        return System(runner.run)

    makers = {"gevo": gevo, "jax": partial(jax_call, kernel), "blas": partial(blas_call, kernel)}
    makers |= {"torch": partial(torch_call, kernel), "copy": partial(copy, row.bytes)}
    wanted = {"gevo", "copy", *others} - ({"blas"} if kernel.numpy is None else set())
    systems, row.reasons = started({name: make for name, make in makers.items() if name in wanted}, smoke)
    taken: dict[str, list[np.ndarray]] = {name: [] for name in systems}
    for _ in range(runs):
        row.peaks.append(peak_flops())
        for name, times in interleaved(systems, 1, windows, seconds=1.0).items():
            taken[name].append(times[0])
    for name, found in taken.items():  # a slow moment has fewer windows
        row.times[name] = np.array([times[: min(map(len, found))] for times in found])
    return row


def compiled(kernel: Kernel) -> Program:
    """The kernel as gevo compiles it: all arrays as batch, all results as metrics."""
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kernel.arrays]
    text = canonical_text(lower(kernel.function, shapes, "kernel", Path(__file__)).text, "kernel")
    return compile_program(text, "kernel", 0, len(shapes), ObjectCache(cache_folder() / "objects"))


def jax_call(kernel: Kernel) -> System:
    function, arrays = jax.jit(kernel.function), [jnp.asarray(a) for a in kernel.arrays]
    return System(calls(lambda: jax.block_until_ready(function(*arrays))))


def blas_call(kernel: Kernel) -> System:
    function = kernel.numpy
    assert function is not None, kernel.name
    out = function(*kernel.arrays)
    return System(calls(lambda: function(*kernel.arrays, out=out)))


def torch_call(kernel: Kernel) -> System:
    import torch  # pyright: ignore[reportMissingImports]

    function = kernel.torch
    assert function is not None, kernel.name
    torch.set_num_threads(1)
    arrays = [torch.from_numpy(a) for a in kernel.arrays]
    return System(calls(lambda: function(*arrays)))


def smallest_calls(others: tuple[str, ...]) -> dict[str, System]:
    """Each system on one number: what a call costs. gevo's is of `CpuRunner.run`."""
    kernel = Kernel("negate", jnp.negative, (np.ones(1, np.float32),), lambda x: -x)
    runner = CpuRunner(compiled(kernel))
    makers = {"jax": partial(jax_call, kernel), "torch": partial(torch_call, kernel)}
    makers = {name: make for name, make in makers.items() if name in others}
    return {"gevo": System(calls(runner.run)), **started(makers)[0]}


def copy(size: int) -> System:
    """A streaming copy that moves `size` bytes: half of them read, half written."""
    half = max(64, size // 2)
    loader = Loader()
    loader.add(object_from_ir(_COPY_LOOP), "copy")
    run = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_int64, c.c_int64)(loader.address("copies"))
    source, target = np.ones(half, np.uint8), np.zeros(half, np.uint8)

    def copies(count: int, _alive: object = loader) -> None:
        run(target.ctypes.data, source.ctypes.data, half, count)

    return System(copies)


_COPY_LOOP = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define void @copies(ptr %to, ptr %from, i64 %bytes, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %to, ptr align 16 %from, i64 %bytes, i1 false)
  call void asm sideeffect "", "~{memory}"()
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, %times
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
"""


def record(row: Row, cost: dict[str, float]) -> dict[str, Any]:
    """The row's figures; None where there is none. low, high: of jax_over_gevo, over the runs."""
    found: dict[str, Any] = {"kernel": row.kernel.name, "calls": row.program and len(row.program.plan.calls)}
    for name in ("gevo", *OTHERS):
        found[f"{name}_us"] = fastest(row.times[name]) * 1e6 if name in row.times else None
    found |= dict.fromkeys(["gflops", "share_of_peak", "share_of_copy", "jax_over_gevo", "low", "high", "less_calls"])
    found |= {"flops": row.flops, "bytes": row.bytes, "peak_gflops": float(np.median(row.peaks)) / 1e9}
    gevo, jaxs = row.times.get("gevo"), row.times.get("jax")
    if gevo is not None:
        found["share_of_copy"] = ratio(row.times["copy"], gevo)[0]
        if row.flops:
            rates = row.flops / gevo.min(axis=1)
            found["gflops"] = float(np.median(rates)) / 1e9
            found["share_of_peak"] = float(np.median(rates / row.peaks))
    if gevo is not None and jaxs is not None:
        found["jax_over_gevo"], found["low"], found["high"] = ratio(jaxs, gevo + cost["gevo"])
        found["less_calls"] = max(0.0, fastest(jaxs) - cost["jax"]) / fastest(gevo)
    return found


def cells(row: Row, cost: dict[str, float]) -> Iterator[object]:
    """The record as the table shows it."""
    found = record(row, cost)
    found["KiB"] = row.bytes / 1024
    yield found["kernel"]
    for key, form in FORMS.items():
        yield None if found[key] is None else format(found[key], form)


def draw_roofline(rows: list[Row], axes: Any) -> None:
    """GF/s over FLOP a byte of every row, under the multiply-add peak and the copy rates of three sizes."""
    known = [row for row in rows if "gevo" in row.times and row.flops]
    peak = float(np.median([row.peaks for row in known])) / 1e9
    span = np.geomspace(0.01, 500, 100)
    for size, name in ((16 << 10, "16 KiB"), (256 << 10, "256 KiB"), (DRAM_BYTES, "64 MiB")):
        rate = size / interleaved({"copy": copy(size)}, 5, 10)["copy"].min() / 1e9
        axes.plot(span, np.minimum(peak, span * rate), color="#bbbbbb", lw=1, zorder=1)
        axes.text(span[0] * 1.1, span[0] * rate * 1.4, f"copy of {name}: {rate:.0f} GB/s", fontsize=7, rotation=30)
    for name in ("jax", "gevo"):
        shown = [row for row in known if name in row.times]
        x = [row.flops / row.bytes for row in shown]
        y = [row.flops / fastest(row.times[name]) / 1e9 for row in shown]
        axes.scatter(x, y, s=22, color=COLOURS[name], label=name, zorder=3)
    for number, row in enumerate(known, 1):
        at = row.flops / row.bytes, row.flops / fastest(row.times["gevo"]) / 1e9
        axes.annotate(number, at, fontsize=7, xytext=(3, 3), textcoords="offset points")
    names = "\n".join(f"{number:2d} {row.kernel.name}" for number, row in enumerate(known, 1))
    axes.text(1.02, 1.0, names, transform=axes.transAxes, fontsize=7, va="top", family="monospace")
    axes.set(xscale="log", yscale="log", xlabel="FLOP / byte (each operand once)", ylabel="GF/s")
    axes.set_title(f"Kernel families on one core, measured peak {peak:.0f} GF/s")
    axes.legend()


if __name__ == "__main__":
    main()

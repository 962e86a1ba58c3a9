"""Time of a variant as a ratio to the base: interleaved windows in one process, checked results, physical values.

A window's value is the median of its calls, which leaves out a call that was preempted. The ratio is the median
over pairs of neighbouring windows, because contention on a shared core comes and goes in phases: both windows of
a pair see the same phase, two minima need not.
"""

from __future__ import annotations

import ctypes as c
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.job import Timing
from fitness.loader import Loader
from fitness.result import Failure, Outcome
from mlir_passes import llvm

MARGIN = 2.0  # over the measured f32 peak: bf16 dot instructions do twice as much, and clocks boost
_POISON = 0xFF  # a NaN in every float type
_MAX_CALLS = 1000
# Windows of fewer calls than this feel their first one, which finds the data of the other subject in the caches: on
# mobilenet_predict (9 ms, 14 MiB) it takes 15 % longer. There one call goes before that is not timed.
_FEW = 5
_ROOFLINE_LOOPS = 20_000
_LANES = 12  # independent multiply-adds in flight: latency 4 x 2 units, and some room


@dataclass(frozen=True)
class Timed:
    """Seconds of one step, minimum over windows; median of the paired ratios, its standard error, and how many."""

    runtime_s: float
    base_s: float
    ratio: float
    spread: float
    pairs: int


class Subject:
    """A runner with what it is timed on: a snapshot of its state and batches that rotate, one a call."""

    def __init__(self, runner: CpuRunner, state: Sequence[Array], batches: Sequence[Sequence[Array]]) -> None:
        self.runner, self._state, self._batches = runner, state, batches
        self._expected: dict[int, bytes] = {}

    def window(self, calls: int) -> float:
        """Median seconds of `calls` steps from the snapshot; restoring and feeding batches are not timed."""
        if calls < _FEW:
            self._run(1)
        return float(np.median(self._run(calls))) * 1e-9

    def right(self, calls: int) -> bool:
        """Whether the last window of `calls` steps left what an untimed run of them leaves, bit for bit."""
        left = self.runner.outputs()
        if calls not in self._expected:
            self._run(calls)
            self._expected[calls] = self.runner.outputs()
        return left == self._expected[calls]

    def _run(self, calls: int) -> list[int]:
        """Nanoseconds of each of `calls` steps from the snapshot."""
        self._reset()
        times: list[int] = []
        for call in range(calls):
            self.runner.write_batch(self._batches[call % len(self._batches)])
            start = time.perf_counter_ns()
            self.runner.run()
            times.append(time.perf_counter_ns() - start)
        return times

    def _reset(self) -> None:
        for view in self.runner.metrics:
            view.reshape(-1).view(np.uint8).fill(_POISON)
        self.runner.write_state(self._state)


def compare(variant: Subject, base: Subject, timing: Timing) -> Timed | Failure:
    """Time `variant` against `base`, window by window in turn; who goes first alternates."""
    subjects = (variant, base)
    calls = [_calls(subject, timing.window_s) for subject in subjects]
    windows: tuple[list[float], list[float]] = ([], [])
    for turn in range(timing.rounds):
        for which in (turn % 2, 1 - turn % 2):
            windows[which].append(subjects[which].window(calls[which]))
            if not subjects[which].right(calls[which]):
                return Failure(Outcome.WRONG, "the outputs of a timed run differ from those of an untimed one")
        if turn + 1 >= timing.least and _sure(windows, timing.enough):
            break
    return summary(*windows)


def _sure(windows: tuple[list[float], list[float]], enough: float) -> bool:
    """Whether the spread of the ratios says that more windows would hardly move their median."""
    low, middle, high = quartiles([v / max(b, 1e-12) for v, b in zip(*windows, strict=True)])
    return high - low < enough * middle * math.sqrt(len(windows[0]))


def summary(variant_s: Sequence[float], base_s: Sequence[float]) -> Timed | Failure:
    """The figures of paired windows; a time that no clock should give is a Failure."""
    odd = [t for t in (*variant_s, *base_s) if not (math.isfinite(t) and t > 0)]
    if odd:
        return Failure(Outcome.WRONG, f"a window took {odd[0]} s a step")
    low, middle, high = quartiles([v / b for v, b in zip(variant_s, base_s, strict=True)])
    return Timed(min(variant_s), min(base_s), middle, error_of_median(high - low, len(variant_s)), len(variant_s))


def error_of_median(interquartile: float, count: int) -> float:
    """Standard error of the median of `count` values with this interquartile range: 1.25 R / (1.35 sqrt(n)).

    By McGill, Tukey and Larsen, "Variations of box plots" (1978), which give it for the middle of any sample that is
    normal there; single windows may lie far out. It knows the noise within one process only.
    """
    return 1.25 * interquartile / (1.35 * math.sqrt(count))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """As `np.percentile` gives them, which would import numpy.ma, 20 ms, in every child."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def above_roofline(flops: int, runtime_s: float, peak_flops: float) -> Failure | None:
    """A Failure if a step of `flops` in `runtime_s` is faster than this CPU can be."""
    if flops <= MARGIN * peak_flops * runtime_s:
        return None
    rates = f"{flops / runtime_s / 1e9:.1f} GF/s, this CPU does {peak_flops / 1e9:.1f}"
    return Failure(Outcome.WRONG, f"the time is not physical: {rates}")


def _calls(subject: Subject, window_s: float) -> int:
    """Steps that fill a window, from the faster of two single ones."""
    step_s = min(subject.window(1) for _ in range(2))
    return min(_MAX_CALLS, max(1, round(window_s / max(step_s, 1e-9))))


def peak_flops() -> float:
    """f32 flop/s of one core, measured: a loop of independent multiply-adds in registers."""
    lanes = llvm.host().vector_bytes // 4
    loader = Loader()
    loader.add(llvm.object_from_ir(_fma_loop(lanes)), "roofline")
    run = c.CFUNCTYPE(c.c_float, c.c_int64, c.c_float)(loader.address("fma"))
    best = math.inf
    for _ in range(5):
        start = time.perf_counter_ns()
        run(_ROOFLINE_LOOPS, 0.5)
        best = min(best, (time.perf_counter_ns() - start) * 1e-9)
    return 2 * lanes * _LANES * _ROOFLINE_LOOPS / best


def _fma_loop(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    phis = "\n".join(f"  %a{k} = phi {vector} [%v, %entry], [%b{k}, %loop]" for k in range(_LANES))
    name = f"@llvm.fma.v{lanes}f32"
    fmas = "\n".join(f"  %b{k} = call {vector} {name}({vector} %a{k}, {vector} %v, {vector} %v)" for k in range(_LANES))
    sums = [f"  %s0 = fadd {vector} %b0, %v"]
    sums += [f"  %s{k} = fadd {vector} %s{k - 1}, %b{k}" for k in range(1, _LANES)]
    return f"""
declare {vector} {name}({vector}, {vector}, {vector})
define float @fma(i64 %n, float %x) {{
entry:
  %v0 = insertelement {vector} poison, float %x, i32 0
  %v = shufflevector {vector} %v0, {vector} poison, <{lanes} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
{phis}
{fmas}
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, %n
  br i1 %done, label %exit, label %loop
exit:
{chr(10).join(sums)}
  %r = extractelement {vector} %s{_LANES - 1}, i32 0
  ret float %r
}}
"""

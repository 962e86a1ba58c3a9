"""One kernel made in two ways: are the results the same, and which is faster?

Calls go round over copies of the memory that a step had for the kernel, as many as fill what the whole step touches,
because a kernel timed on data that its last call left in the cache looks up to 12 % better than it is in a step.
Windows of both ways take turns over the same copies, and a ratio is the median of pairs (see `timing`).
"""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fitness.calls import Argument, Capture
from fitness.cpu import PAGE, Array
from fitness.loader import Loader
from fitness.rows import row_loop, table_of
from fitness.timing import quartiles
from mlir_passes.kernels import blas
from mlir_passes.objects import KernelObject
from workloads.dtypes import dtype_named, is_float

TOLERANCE = 1e-3  # of a result and of the root mean square of all: far over rounding, far under a missing term
_STEP = {"float16": 2**-11, "bfloat16": 2**-8}  # what rounding changes at most
_TICK_S = 1e-9  # what a clock can tell
_MOST_COPIES = 64
_MOST_BYTES = 256 << 20
_WINDOW_S = 0.0005
_SCREEN = 4  # pairs after which a way that is slower is given up
_SLOWER = 1.05
_POISON = 0xFF  # a NaN in every float type


@dataclass(frozen=True)
class Made:
    """A compiled kernel: its object, and the name of its function in it."""

    made: KernelObject
    symbol: str


@dataclass(frozen=True)
class Ratio:
    """Seconds of the rival over those of the default: median and interquartile range of pairs.

    sure: whether the rival is faster in more pairs than chance gives it, by two standard deviations.
    """

    ratio: float
    spread: float
    sure: bool = False


def compare(capture: Capture, default: Made, rival: Made, step_bytes: int, rounds: int, screen: bool) -> Ratio | str:
    """Time `rival` against `default`, or say what is wrong with its results.

    step_bytes: what a step touches. screen: stop early where the rival is clearly slower.
    """
    blas.symbol()  # a rival may call the library
    arena = _Copies(capture, step_bytes)
    loader = Loader()
    tables = [arena.table(loader, made, name) for name, made in (("default", default), ("rival", rival))]
    problem = arena.difference(tables[0], tables[1])
    if problem:
        return problem
    arena.restore()
    counts = [arena.calls(table) for table in tables]
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds):
        windows = {which: arena.window(tables[which], counts[which]) for which in (turn % 2, 1 - turn % 2)}
        pairs.append((windows[1], windows[0]))
        if screen and turn + 1 == _SCREEN and _median(pairs) > _SLOWER:
            break
    return summary(pairs)


def summary(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """The figures of pairs (rival, default)."""
    low, middle, high = quartiles([rival_s / max(default_s, _TICK_S) for rival_s, default_s in pairs])
    faster = sum(rival_s < default_s for rival_s, default_s in pairs)
    return Ratio(middle, high - low, faster > len(pairs) / 2 + math.sqrt(len(pairs)))


def _median(pairs: Sequence[tuple[float, float]]) -> float:
    return median(a / max(b, _TICK_S) for a, b in pairs)


class _Copies:
    """Copies of a kernel's memory, which calls take in turn."""

    def __init__(self, capture: Capture, step_bytes: int) -> None:
        self._capture = capture
        size = len(capture.data)
        wanted = min(-(-step_bytes // size) + 1, _MOST_COPIES, max(2, _MOST_BYTES // size))
        self._count = max(2, wanted)
        pages = -(-self._count * size // PAGE) * PAGE
        memory = mmap.mmap(-1, pages, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory: Array = np.frombuffer(memory, np.uint8)[: self._count * size].reshape(self._count, size)
        self._next = 0
        self.restore()

    def restore(self) -> None:
        self._memory[...] = self._capture.data

    def table(self, loader: Loader, made: Made, name: str) -> Array:
        """A row a copy."""
        loader.add(made.made.code, name)
        address = loader.address(made.symbol)
        starts = [self._memory.ctypes.data + i * self._memory.strides[0] for i in range(self._count)]
        places = [argument.offset for argument in self._capture.arguments]
        return table_of([[address, *(start + p for p in places), 0, made.made.shards] for start in starts])

    def window(self, table: Array, calls: int) -> float:
        """Seconds a call, over `calls` of them; goes on with the copy after the last one used."""
        loop = row_loop(table.shape[1] - 1).function
        start = time.perf_counter_ns()
        left = calls
        while left:
            run = min(left, self._count - self._next)
            loop(table.ctypes.data + self._next * table.strides[0], run, 1)
            self._next = (self._next + run) % self._count
            left -= run
        return (time.perf_counter_ns() - start) * 1e-9 / calls

    def calls(self, table: Array) -> int:
        """How many fill a window."""
        call_s = min(self.window(table, 1) for _ in range(3))
        return min(10_000, max(1, round(_WINDOW_S / max(call_s, 1e-9))))

    def difference(self, one: Array, other: Array) -> str:
        """What the second way does to memory that the first does not, "" for nothing of account."""
        first, second = self._left_by(one), self._left_by(other)
        for number, argument in enumerate(self._capture.arguments):
            part = slice(argument.offset, argument.offset + argument.bytes)
            problem = _unlike(first[part], second[part], argument)
            if problem:
                return f"argument {number}: {problem}"
            first[part] = second[part]
        return "" if np.array_equal(first, second) else "it writes outside its buffers"

    def _left_by(self, table: Array) -> Array:
        """The first copy after one call from the captured memory, results that nothing reads poisoned before."""
        memory, arguments = self._memory[0], self._capture.arguments
        memory[...] = self._capture.data
        for argument in arguments:
            if argument.written and not any(_overlap(argument, a) for a in arguments if not a.written):
                memory[argument.offset : argument.offset + argument.bytes] = _POISON
        row_loop(table.shape[1] - 1).function(table.ctypes.data, 1, 1)
        return memory.copy()


def _overlap(one: Argument, other: Argument) -> bool:
    return one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes


def _unlike(expected: Array, got: Array, argument: Argument) -> str:
    """How two results differ, "" if only by rounding."""
    a, b = expected.view(dtype_named(argument.dtype)), got.view(dtype_named(argument.dtype))
    if not is_float(a.dtype):
        return "" if np.array_equal(a, b) else "other values"
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return "other elements are not finite"
    if not finite.any():
        return ""
    x, y = x[finite], y[finite]
    tolerance = max(TOLERANCE, 2 * _STEP.get(argument.dtype, 0))
    off = np.abs(x - y) - tolerance * (np.abs(x) + np.sqrt(np.mean(x * x)))
    worst = int(np.argmax(off))
    return "" if off[worst] <= 0 else f"{y[worst]:.6g} instead of {x[worst]:.6g}"


def to_json(found: Ratio | str) -> dict[str, Any]:
    return {"wrong": found} if isinstance(found, str) else vars(found)

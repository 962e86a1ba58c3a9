"""A step call by call: how long each takes within the step, and what memory a kernel finds there."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.loader import Loader
from fitness.rows import row_loop, table_of
from mlir_passes import llvm
from mlir_passes.objects import KernelObject
from mlir_passes.program import Buffer, KernelCall, Program

ALIGN = 64
_NOTHING = "define void @nothing() {\n  ret void\n}"
_MOST_STEPS = 50
_LEAST_PAIRS, _MOST_PAIRS = 8, 300


@dataclass(frozen=True)
class Argument:
    """A buffer of a kernel within the memory captured for it. written: whether the kernel may store there."""

    offset: int
    bytes: int
    dtype: str
    written: bool


@dataclass(frozen=True)
class Capture:
    """All memory that a call reads and writes, as it was before the call; buffers that share memory still do."""

    data: Array
    arguments: tuple[Argument, ...]


class StepCalls:
    """A loaded program whose calls are run one at a time, on one thread; of one that pages it raises FitnessError."""

    def __init__(self, program: Program, state: Sequence[Array], batches: Sequence[Sequence[Array]]) -> None:
        if program.plan.transfers:
            raise FitnessError("calls between which memory is paged are not run one at a time", "step calls")
        self._program, self._state, self._batches = program, state, batches
        self._runner = CpuRunner(program)  # holds the arena, and makes libraries visible
        self._loader = Loader()
        for key in sorted({call.kernel for call in program.plan.calls}):
            self._loader.add(program.objects[key], key)
        self._loader.add(llvm.object_from_ir(_NOTHING), "nothing")
        start = self._runner.arena.ctypes.data
        rows = [self._row(call, start) for call in program.plan.calls]
        self._table = table_of([*rows, [self._loader.address("nothing")]])
        self._run = row_loop(self._table.shape[1] - 1).function

    def times(self, budget_s: float) -> list[float]:
        """Seconds of each call, median over some steps; what the clock and the call into the loop cost is off."""
        rows = len(self._table)
        found: list[list[int]] = []
        end = time.monotonic() + budget_s
        self._runner.write_state(self._state)
        for batch in self._steps():
            self._runner.write_batch(batch)
            found.append([self._timed(row) for row in range(rows)])
            if len(found) >= 3 and time.monotonic() > end:
                break
        *calls, nothing = np.median(np.array(found), axis=0)
        return [max(0.0, (float(t) - float(nothing)) * 1e-9) for t in calls]

    def duel(self, key: str, rival: KernelObject, symbol: str, budget_s: float) -> list[tuple[float, float]]:
        """Seconds a step in the calls of a kernel, with the rival and with its own object, in pairs of steps."""
        self._loader.add(rival.code, "rival")
        rows = [i for i, call in enumerate(self._program.plan.calls) if call.kernel == key]
        other = self._table.copy()
        for row in rows:
            call = self._program.plan.calls[row]
            other[row, 0] = self._loader.address(symbol)
            other[row, len(call.args) + 2] = rival.shards
        tables, pairs = (other, self._table), list[tuple[float, float]]()
        end = time.monotonic() + budget_s
        self._runner.write_state(self._state)
        while len(pairs) < _LEAST_PAIRS or (len(pairs) < _MOST_PAIRS and time.monotonic() < end):
            self._runner.write_batch(self._batches[len(pairs) % len(self._batches)])
            first = len(pairs) % 2
            took = {which: self._step(tables[which], rows) for which in (first, 1 - first)}
            pairs.append((took[0], took[1]))
        return pairs

    def _step(self, table: Array, timed: Sequence[int]) -> float:
        """One step of the rows of a table; seconds of the rows `timed` together."""
        spent, begin = 0, 0
        for row in timed:
            if row > begin:
                self._run(self._at(begin), row - begin, 1)
            start = time.perf_counter_ns()
            self._run(table.ctypes.data + row * table.strides[0], 1, 1)
            spent += time.perf_counter_ns() - start
            begin = row + 1
        rest = len(self._program.plan.calls) - begin
        if rest:
            self._run(self._at(begin), rest, 1)
        return spent * 1e-9

    def capture(self, keys: Collection[str]) -> dict[str, Capture]:
        """What each of these kernels finds at its first call in a step."""
        found: dict[str, Capture] = {}
        self._runner.write_state(self._state)
        self._runner.write_batch(self._batches[0])
        for row, call in enumerate(self._program.plan.calls):
            if call.kernel in keys and call.kernel not in found:
                found[call.kernel] = self._captured(call)
            self._run(self._at(row), 1, 1)
        return found

    def _steps(self) -> Iterator[Sequence[Array]]:
        for step in range(_MOST_STEPS):
            yield self._batches[step % len(self._batches)]

    def _timed(self, row: int) -> int:
        at = self._at(row)
        start = time.perf_counter_ns()
        self._run(at, 1, 1)
        return time.perf_counter_ns() - start

    def _at(self, row: int) -> int:
        return self._table.ctypes.data + row * self._table.strides[0]

    def _row(self, call: KernelCall, start: int) -> list[int]:
        kernel, buffers = self._program.kernels[call.kernel], self._program.plan.buffers
        places = [start + buffers[i].offset for i in call.args]
        return [self._loader.address(kernel.symbol), *places, 0, kernel.shards]

    def _captured(self, call: KernelCall) -> Capture:
        kernel, plan = self._program.kernels[call.kernel], self._program.plan
        buffers = [plan.buffers[i] for i in call.args]
        places, size = _places(buffers)
        data = np.zeros(size, np.uint8)
        for buffer, place in zip(buffers, places, strict=True):
            data[place : place + buffer.bytes] = self._runner.arena[buffer.offset : buffer.offset + buffer.bytes]
        both = zip(buffers, places, strict=True)
        arguments = [Argument(p, b.bytes, b.dtype, i >= kernel.inputs) for i, (b, p) in enumerate(both)]
        return Capture(data, tuple(arguments))


def _places(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Where each buffer goes in memory of its own, and the size of that: buffers that overlap keep doing so."""
    places: dict[int, int] = {}
    end, here, before = 0, 0, 0  # of the buffers so far in the arena; the place and the offset of the block at hand
    size = 0
    for offset, bytes_ in sorted({(b.offset, b.bytes) for b in buffers}):
        if offset >= end:  # a new block, and a gap in which a write past the last one shows
            here, before = -(-(size + ALIGN) // ALIGN) * ALIGN + offset % ALIGN, offset
        places[offset] = here + offset - before
        size, end = max(size, places[offset] + bytes_), max(end, offset + bytes_)
    return [places[b.offset] for b in buffers], -(-(size + ALIGN) // ALIGN) * ALIGN

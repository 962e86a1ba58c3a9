"""Runs a program on this CPU: one arena, one table of calls, one tiny compiled loop over it.

A row of the table is a function, its buffers, and the slices `begin, end` of its outermost loop. With more threads
than one the rows are grouped to tasks (`fitness.spmd`) that threads claim (`fitness.team`).
"""

from __future__ import annotations

import ctypes as c
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fitness.errors import FitnessError
from fitness.loader import Loader
from fitness.spmd import Phase, Slices, orders, schedule
from fitness.team import Team, row_call
from mlir_passes import llvm
from mlir_passes.kernels import blas
from mlir_passes.program import Buffer, Plan, Program

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
PAGE = mmap.PAGESIZE
POISONS = (0xAA, 0x55)
_WIDTH_STEP = 4
_LOOP = """
define void @run(ptr %table, i64 %rows, i64 %times) {{
entry:
  br label %step
step:
  %t = phi i64 [0, %entry], [%t1, %after]
  br label %row
row:
  %i = phi i64 [0, %step], [%i1, %row]
  %p = getelementptr [{columns} x ptr], ptr %table, i64 %i
  %f = load ptr, ptr %p
{loads}
  call void %f({args})
  %i1 = add i64 %i, 1
  %last = icmp eq i64 %i1, %rows
  br i1 %last, label %after, label %row
after:
  %t1 = add i64 %t, 1
  %done = icmp eq i64 %t1, %times
  br i1 %done, label %exit, label %step
exit:
  ret void
}}
"""


class CpuRunner:
    """A loaded program. `state`, `batch` and `metrics` are views of the arena, in signature order.

    slack: bytes after the arena that belong to nobody, to find writes past it. guard: an unreadable page right
    after the arena (rounded up to 64 bytes), so that a kernel that leaves it dies at once. threads: how many work
    at a step; the results are those of one, bit for bit.
    """

    def __init__(self, program: Program, slack: int = 0, guard: bool = False, threads: int = 1) -> None:
        plan = program.plan
        _check_plan(plan)
        if threads < 1:
            raise FitnessError(f"expected 1 thread or more, got {threads}", "threads")
        self.plan = plan
        self._room = _allocate(plan.peak_bytes, slack, guard)
        self.arena = self._room[: plan.peak_bytes]
        self._views = [_view(self._room, b) for b in plan.buffers]
        self.state = [self._views[i] for i in plan.state]
        self.batch = [self._views[i] for i in plan.batch]
        self.metrics = [self._views[i] for i in plan.metrics]
        self._loader = Loader()
        _check_libraries(program)
        for key in sorted({call.kernel for call in plan.calls}):
            self._loader.add(program.objects[key], key)
        self._go = self._prepared(program, threads)

    def _prepared(self, program: Program, threads: int) -> Callable[[int], None]:
        """What runs a number of steps: a loop over the rows, or a team where there is work for two."""
        kernels, calls = program.kernels, program.plan.calls
        if not calls:
            return lambda times: None
        phases = schedule(program.plan, kernels, threads) if threads > 1 else ()
        busy = max(map(len, phases), default=1)
        if busy > 1:
            table = self._rows(program, [part for phase in phases for task in phase for part in task.parts])
            keep = (self._room, self._loader, table)
            return Team(_tasks(phases, table), np.array(orders(phases, threads)), table.shape[1] - 1, keep).run
        table = self._rows(program, [Slices(i, 0, kernels[call.kernel].shards) for i, call in enumerate(calls)])
        loop, place, rows = row_loop(table.shape[1] - 1), table.ctypes.data, len(table)
        self._table = table  # its memory is what the loop reads
        return lambda times: loop.function(place, rows, times)

    def _rows(self, program: Program, parts: Sequence[Slices]) -> Array:
        """The rows (function, arguments, begin, end), padded with null to a common width."""
        plan = program.plan
        most = max(len(call.args) for call in plan.calls) + 2
        table = np.zeros((len(parts), 1 + -(-most // _WIDTH_STEP) * _WIDTH_STEP), np.uint64)
        start = self._room.ctypes.data
        for row, part in zip(table, parts, strict=True):
            call = plan.calls[part.call]
            given = [*(start + plan.buffers[i].offset for i in call.args), part.begin, part.end]
            row[0] = self._loader.address(program.kernels[call.kernel].symbol)
            row[1 : 1 + len(given)] = given
        return table

    def run(self, times: int = 1) -> None:
        """Run the whole table `times` times, one step after the other."""
        if times > 0:
            self._go(times)

    def write_state(self, leaves: Sequence[Array]) -> None:
        for view, leaf in zip(self.state, leaves, strict=True):
            view[...] = leaf

    def read_state(self) -> list[Array]:
        """Copies of the state leaves."""
        return [view.copy() for view in self.state]

    def write_batch(self, leaves: Sequence[Array]) -> None:
        for view, leaf in zip(self.batch, leaves, strict=True):
            view[...] = leaf

    def poison(self, byte: int) -> None:
        """Fill arena and slack, so that what nobody writes can be told."""
        self._room.fill(byte)

    def outputs(self) -> bytes:
        """State and metrics as bytes, to compare runs bit for bit."""
        return b"".join(view.tobytes() for view in (*self.state, *self.metrics))

    def high_water(self, state: Sequence[Array], batch: Sequence[Array]) -> int:
        """Bytes of the arena that one step touches, measured: the last byte that two poisoned runs wrote, plus 1.

        Independent of `peak_bytes`. A byte counts as untouched only if it kept its poison in both runs.
        Raises FitnessError if the results depend on the poison: then the step reads what nobody wrote.
        """
        touched = np.zeros(len(self._room), bool)
        results: list[bytes] = []
        for byte in POISONS:
            self.poison(byte)
            self.write_state(state)
            self.write_batch(batch)
            self.run()
            touched |= self._room != byte
            results.append(self.outputs())
        if results[0] != results[1]:
            raise FitnessError("the step reads arena bytes that nothing wrote", "high water")
        return len(touched) - int(touched[::-1].argmax()) if touched.any() else 0


def _check_plan(plan: Plan) -> None:
    """A plan that names bytes outside its arena never runs."""
    for b in plan.buffers:
        size = int(np.prod(b.shape, dtype=np.int64)) * dtype_of(b).itemsize
        if size != b.bytes:
            raise FitnessError(f"buffer {b.name} has {b.bytes} bytes, its shape and type need {size}", "plan")
        if b.offset < 0 or b.offset + b.bytes > plan.peak_bytes:
            raise FitnessError(f"buffer {b.name} ends at {b.offset + b.bytes}, the arena at {plan.peak_bytes}", "plan")


def _check_libraries(program: Program) -> None:
    """Make the library that kernels call visible to the loader, or say that it is not here."""
    if not blas.serves(k.library for k in program.kernels.values()):
        raise FitnessError("NumPy brings no library that its kernels call", "program", "Compile the program again")


def dtype_of(buffer: Buffer) -> np.dtype[Any]:
    try:
        return np.dtype(buffer.dtype)
    except TypeError:
        raise FitnessError(f"buffer {buffer.name}: NumPy has no type {buffer.dtype!r}", "plan") from None


def _view(room: Array, b: Buffer) -> Array:
    return room[b.offset : b.offset + b.bytes].view(dtype_of(b)).reshape(b.shape)


def _allocate(size: int, slack: int, guard: bool) -> Array:
    """`size + slack` bytes at a 64-byte boundary, private to this process after a fork."""
    used = -(-(size + slack) // ALIGNMENT) * ALIGNMENT
    pages = -(-max(used, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, pages + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    if not guard:
        return whole[: size + slack]
    libc = c.CDLL(None, use_errno=True)
    if libc.mprotect(_address(whole, pages), c.c_size_t(PAGE), 0):
        raise FitnessError(f"no guard page: errno {c.get_errno()}", "arena")
    return whole[pages - used :][: size + slack]


def _address(array: Array, offset: int) -> c.c_void_p:
    return c.c_void_p(array.ctypes.data + offset)


def _tasks(phases: Sequence[Phase], table: Array) -> Array:
    """The tasks as `Team` wants them; the table has their rows one after the other."""
    tasks: list[tuple[int, int, int, int, bool]] = []
    row = 0
    for phase in phases:
        first = len(tasks)
        for task in phase:
            address = table.ctypes.data + row * table.strides[0]
            tasks.append((address, len(task.parts), first, first + len(phase), len(phase) > 1))
            row += len(task.parts)
    return np.array(tasks, np.int64)


@dataclass(frozen=True)
class RowLoop:
    """The compiled loop, and what holds its code."""

    owner: Loader
    function: Any


@cache
def row_loop(width: int) -> RowLoop:
    """The loop over a table of rows, for rows of `width` arguments: function(table, rows, times)."""
    loader = Loader()
    ir_text = _LOOP.format(columns=width + 1, **row_call(width))
    loader.add(llvm.object_from_ir(ir_text, level=2), f"loop{width}")
    return RowLoop(loader, c.CFUNCTYPE(None, c.c_void_p, c.c_int64, c.c_int64)(loader.address("run")))

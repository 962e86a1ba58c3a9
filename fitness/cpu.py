"""Runs a program on this CPU: one arena, one table of calls, one tiny compiled loop over it.

A row of the table is a function, its buffers, and the slices `begin, end` of its outermost loop. With more threads
than one the rows are grouped to tasks (`fitness.spmd`) that threads claim (`fitness.team`). Where memory is paged
(`fitness.paging`), rows between them join the kernels, which then run on one thread, with the transfers.
"""

from __future__ import annotations

import ctypes as c
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fitness.errors import FitnessError
from fitness.loader import Loader
from fitness.page_file import PageFile
from fitness.paging import Pager
from fitness.rows import row_loop, table_of
from fitness.spmd import Phase, Slices, orders, schedule
from fitness.team import Team
from fitness.typed import dtype_of
from mlir_passes.kernels import blas
from mlir_passes.program import Buffer, Plan, Program

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
PAGE = mmap.PAGESIZE
POISONS = (0xAA, 0x55)


class CpuRunner:
    """A loaded program. `batch` and `metrics` are views of the arena, in signature order.

    slack: bytes after the arena that belong to nobody, to find writes past it. guard: an unreadable page right
    after the arena (rounded up to 64 bytes), so that a kernel that leaves it dies at once. threads: how many work
    at a step; the results are those of one, bit for bit. page_dir: the folder of the page file, if the plan has one.
    """

    def __init__(
        self,
        program: Program,
        slack: int = 0,
        guard: bool = False,
        threads: int = 1,
        page_dir: Path | None = None,
    ) -> None:
        plan = program.plan
        _check_plan(plan)
        if threads < 1:
            raise FitnessError(f"expected 1 thread or more, got {threads}", "threads")
        self.plan = plan
        self._pages = PageFile(page_dir, plan.paged_bytes) if plan.paged_bytes else None
        self._room = _allocate(plan.peak_bytes, slack, guard)
        self.arena = self._room[: plan.peak_bytes]
        self._state = [plan.buffers[i] for i in plan.state]
        self._views = [_view(self._room, b) if b.role != "page" else None for b in self._state]
        self.batch = [_view(self._room, plan.buffers[i]) for i in plan.batch]
        self.metrics = [_view(self._room, plan.buffers[i]) for i in plan.metrics]
        self._loader = Loader()
        _check_libraries(program)
        for key in sorted({call.kernel for call in plan.calls}):
            self._loader.add(program.objects[key], key)
        self._go = self._prepared(program, threads)

    @property
    def state(self) -> list[Array]:
        """The state leaves in signature order: views of the arena, and read-only copies of what stands in the page
        file."""
        return [self._stored(b) if v is None else v for b, v in zip(self._state, self._views, strict=True)]

    def _stored(self, buffer: Buffer) -> Array:
        assert self._pages is not None, "checked with the plan"
        return self._pages.read(buffer.offset, buffer.bytes).view(dtype_of(buffer)).reshape(buffer.shape)

    def _prepared(self, program: Program, threads: int) -> Callable[[int], None]:
        """What runs a number of steps: a loop over the rows, or a team where there is work for two."""
        kernels, calls = program.kernels, program.plan.calls
        if not calls:
            return lambda times: None
        phases = schedule(program.plan, kernels, threads) if threads > 1 else ()
        busy = max(map(len, phases), default=1)
        if busy > 1:
            table = table_of([self._row(program, part) for phase in phases for task in phase for part in task.parts])
            keep = (self._room, self._loader, table)
            return Team(_tasks(phases, table), np.array(orders(phases, threads)), table.shape[1] - 1, keep).run
        rows = [self._row(program, Slices(i, 0, kernels[call.kernel].shards)) for i, call in enumerate(calls)]
        if self._pages is not None:
            return self._paged(rows, self._pages)
        table = table_of(rows)
        loop, place = row_loop(table.shape[1] - 1), table.ctypes.data
        self._table = table  # its memory is what the loop reads
        return lambda times: loop.function(place, len(rows), times)

    def _paged(self, calls: Sequence[Sequence[int]], pages: PageFile) -> Callable[[int], None]:
        """What runs a number of steps whose calls have these rows, with the transfers between them."""
        pager = Pager(self.plan, self._room.ctypes.data, pages, self._room)
        rows: list[Sequence[int]] = []
        for index, call in enumerate(calls):
            rows += [*pager.before(index), call]
        table = table_of([*rows, *pager.before(len(calls))])
        loop = row_loop(table.shape[1] - 1)

        def go(times: int) -> None:
            pager.ready()
            loop.function(table.ctypes.data, len(table), times)
            pager.check()

        return go

    def _row(self, program: Program, part: Slices) -> list[int]:
        """Function, buffers, begin, end."""
        call, start = program.plan.calls[part.call], self._room.ctypes.data
        places = [start + program.plan.buffers[i].offset for i in call.args]
        return [self._loader.address(program.kernels[call.kernel].symbol), *places, part.begin, part.end]

    def run(self, times: int = 1) -> None:
        """Run the whole table `times` times, one step after the other; raises FitnessError where a transfer to or
        from the page file fails, and then state and metrics are worth nothing."""
        if times > 0:
            self._go(times)

    def write_state(self, leaves: Sequence[Array]) -> None:
        for number, leaf in zip(range(len(self._state)), leaves, strict=True):
            self.write_leaf(number, leaf)

    def write_leaf(self, number: int, leaf: Array) -> None:
        """Give the state leaf of this number its value."""
        buffer, view = self._state[number], self._views[number]
        if view is not None:
            view[...] = leaf
            return
        assert self._pages is not None, "checked with the plan"
        whole = np.empty(buffer.shape, dtype_of(buffer))
        whole[...] = leaf
        self._pages.write(buffer.offset, whole)

    def read_state(self) -> list[Array]:
        """Copies of the state leaves."""
        return [view.copy() for view in self.state]

    def write_batch(self, leaves: Sequence[Array]) -> None:
        for view, leaf in zip(self.batch, leaves, strict=True):
            view[...] = leaf

    def poison(self, byte: int) -> None:
        """Fill arena, slack and page file, so that what nobody writes can be told."""
        self._room.fill(byte)
        if self._pages is not None:
            self._pages.fill(byte)

    def outputs(self) -> bytes:
        """State and metrics as bytes, to compare runs bit for bit."""
        return b"".join(view.tobytes() for view in (*self.state, *self.metrics))

    def high_water(self, state: Sequence[Array], batch: Sequence[Array]) -> int:
        """Bytes of the arena that one step touches; see `high_waters`."""
        return self.high_waters(state, batch)[0]

    def high_waters(self, state: Sequence[Array], batch: Sequence[Array]) -> tuple[int, int]:
        """Bytes of the arena and of the page file that one step touches, measured: the last byte that two poisoned
        runs wrote, plus 1.

        Independent of `peak_bytes` and `paged_bytes`. A byte counts as untouched only if it kept its poison in both
        runs. Raises FitnessError if the results depend on the poison: then the step reads what nobody wrote.
        """
        touched = [np.zeros(len(self._room), bool), np.zeros(0, bool)]
        results: list[bytes] = []
        for byte in POISONS:
            self.poison(byte)
            self.write_state(state)
            self.write_batch(batch)
            self.run()
            touched[0] |= self._room != byte
            if self._pages is not None:
                written = self._pages.read(0, self._pages.end()) != byte
                written[: len(touched[1])] |= touched[1]
                touched[1] = written
            results.append(self.outputs())
        if results[0] != results[1]:
            raise FitnessError("the step reads arena bytes that nothing wrote", "high water")
        return _end(touched[0]), _end(touched[1])


def _end(touched: Array) -> int:
    """One past the last that is true."""
    return len(touched) - int(touched[::-1].argmax()) if touched.any() else 0


def _check_plan(plan: Plan) -> None:
    """A plan that names bytes outside its arena or its page file never runs."""
    for b in plan.buffers:
        size = int(np.prod(b.shape, dtype=np.int64)) * dtype_of(b).itemsize
        if size != b.bytes:
            raise FitnessError(f"buffer {b.name} has {b.bytes} bytes, its shape and type need {size}", "plan")
        end, where = (plan.paged_bytes, "page file") if b.role == "page" else (plan.peak_bytes, "arena")
        if b.offset < 0 or b.offset + b.bytes > end:
            raise FitnessError(f"buffer {b.name} ends at {b.offset + b.bytes}, the {where} at {end}", "plan")
    before = 0
    for t in plan.transfers:
        here, there = plan.buffers[t.buffer], plan.buffers[t.page]
        if (here.role == "page", there.role, here.bytes) != (False, "page", there.bytes) or t.kind not in ("in", "out"):
            raise FitnessError(f"a transfer of {here.name} and {there.name} is none", "plan")
        if not before <= t.start <= t.end <= len(plan.calls):
            raise FitnessError(f"a transfer of {here.name} goes from call {t.start} to call {t.end}", "plan")
        before = t.start


def _check_libraries(program: Program) -> None:
    """Make the library that kernels call visible to the loader, or say that it is not here."""
    if not blas.serves(k.library for k in program.kernels.values()):
        raise FitnessError("NumPy brings no library that its kernels call", "program", "Compile the program again")


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

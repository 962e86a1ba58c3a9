"""Transfers between the arena and the page file, done beside the kernels by a thread of compiled code.

The loop over the kernels and the thread go through a table of rows each. Two counts join them: of transfers that may
begin, and of those that have ended. Who waits for a count takes it down again, so both are zero after a step, and the
tables can be run any number of times; as transfers are done in order, no count of each single one is needed. A
transfer that fails leaves its error, zeros what it could not read in, and is counted like any other: nobody waits for
ever, and no kernel reads an index that was never there.
"""

from __future__ import annotations

import ctypes as c
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fitness.errors import StoreError
from fitness.loader import Loader
from fitness.page_file import PageFile
from fitness.team import SPINS, aligned, end_threads, row_call, start_thread
from mlir_passes import llvm
from mlir_passes.program import Plan, Transfer

_LINE = 8  # 64-bit words of a cache line
_ARGUMENTS = 5  # of a transfer

# The control block, one cache line each: the thread's rows, their number, stop, the first error; the count of transfers
# that may begin; that of those that have ended. The fifth word of a count is the number of its sleepers.
_ERROR, _BEGIN, _ENDED, _WORDS = 3, _LINE, 2 * _LINE, 3 * _LINE

_TRANSFER = """
define void @page_{kind}(i64 %fd64, ptr %memory, i64 %bytes, i64 %offset, ptr %error) {{
entry:
  %fd = trunc i64 %fd64 to i32
  %nothing = icmp eq i64 %bytes, 0
  br i1 %nothing, label %exit, label %copy
copy:
  %at = phi ptr [%memory, %entry], [%at1, %more], [%at, %ask]
  %left = phi i64 [%bytes, %entry], [%left1, %more], [%left, %ask]
  %place = phi i64 [%offset, %entry], [%place1, %more], [%place, %ask]
  %n = call i64 @{call}(i32 %fd, ptr %at, i64 %left, i64 %place)
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %more, label %odd
more:
  %at1 = getelementptr i8, ptr %at, i64 %n
  %left1 = sub i64 %left, %n
  %place1 = add i64 %place, %n
  %done = icmp eq i64 %left1, 0
  br i1 %done, label %exit, label %copy
odd:
  %none = icmp eq i64 %n, 0
  br i1 %none, label %fail, label %ask
ask:
  %errno.p = call ptr @__errno_location()
  %errno = load i32, ptr %errno.p
  %interrupted = icmp eq i32 %errno, 4
  br i1 %interrupted, label %copy, label %fail
fail:
  %code = phi i32 [5, %odd], [%errno, %ask]
  %code64 = zext i32 %code to i64
  %first = cmpxchg ptr %error, i64 0, i64 %code64 seq_cst seq_cst
{after}
  br label %exit
exit:
  ret void
}}
"""
_ZERO = "  call void @llvm.memset.p0.i64(ptr %at, i8 0, i64 %left, i1 false)"
_ENGINE = """
declare i64 @pread(i32, ptr, i64, i64)
declare i64 @pwrite(i32, ptr, i64, i64)
declare ptr @__errno_location()
declare i64 @syscall(i64, ...)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.x86.sse2.pause()

; Adds n to a count, and wakes who sleeps on it.
define void @post(ptr %count, i64 %n) {{
  %sleepers.p = getelementptr i64, ptr %count, i64 4
  %old = atomicrmw add ptr %count, i64 %n seq_cst
  %sleepers = load atomic i64, ptr %sleepers.p seq_cst, align 8
  %none = icmp eq i64 %sleepers, 0
  br i1 %none, label %exit, label %wake
wake:
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %count, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %exit
exit:
  ret void
}}

; Waits until a count is n or more, and takes n from it. One thread takes from a count.
define void @take(ptr %count, i64 %n) {{
entry:
  %sleepers = getelementptr i64, ptr %count, i64 4
  br label %look
look:
  %k = phi i64 [0, %entry], [%k1, %spin], [0, %sleep]
  %have = load atomic i64, ptr %count acquire, align 8
  %enough = icmp sge i64 %have, %n
  br i1 %enough, label %got, label %more
more:
  %k1 = add i64 %k, 1
  %tired = icmp eq i64 %k1, {spins}
  br i1 %tired, label %sleep, label %spin
spin:
  call void @llvm.x86.sse2.pause()
  br label %look
sleep:
  %seen = trunc i64 %have to i32
  %a = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %count, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %b = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %look
got:
  %taken = atomicrmw sub ptr %count, i64 %n seq_cst
  ret void
}}

; Does one transfer after the other, round and round, each when it may begin.
define ptr @engine(ptr %control) {{
entry:
  %table = load ptr, ptr %control
  %rows.p = getelementptr i64, ptr %control, i64 1
  %rows = load i64, ptr %rows.p
  %stop.p = getelementptr i64, ptr %control, i64 2
  %begin = getelementptr i64, ptr %control, i64 {begin}
  %ended = getelementptr i64, ptr %control, i64 {ended}
  br label %row
row:
  %i = phi i64 [0, %entry], [%next, %work]
  call void @take(ptr %begin, i64 1)
  %stop = load atomic i64, ptr %stop.p acquire, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %exit, label %work
work:
  %p = getelementptr [{columns} x ptr], ptr %table, i64 %i
  %f = load ptr, ptr %p
{loads}
  call void %f({args})
  call void @post(ptr %ended, i64 1)
  %i1 = add i64 %i, 1
  %last = icmp eq i64 %i1, %rows
  %next = select i1 %last, i64 0, i64 %i1
  br label %row
exit:
  ret ptr null
}}

define void @stop(ptr %control) {{
  %stop.p = getelementptr i64, ptr %control, i64 2
  store atomic i64 1, ptr %stop.p release, align 8
  %begin = getelementptr i64, ptr %control, i64 {begin}
  call void @post(ptr %begin, i64 1)
  ret void
}}
"""


@dataclass(frozen=True)
class Event:
    """What the loop over the kernels does between two calls. do: the transfer of this number, itself. begin: permit
    so many more transfers. end: wait for so many more."""

    what: str
    number: int


def events(transfers: Sequence[Transfer], calls: int) -> tuple[tuple[Event, ...], ...]:
    """For each call, what is done before it; and, last, what is done at the end of the step.

    A transfer that is waited for at once, while no other can be on its way, needs no thread.
    """
    found: list[tuple[Event, ...]] = []
    queue: list[Transfer] = []  # of the thread
    number = awaited = 0
    for position in range(calls + 1):
        here: list[Event] = []
        while number < len(transfers) and transfers[number].start == position:
            transfer = transfers[number]
            if transfer.end == position and all(t.end <= position for t in queue[awaited:]):
                here += _waiting(len(queue) - awaited)
                awaited = len(queue)
                here.append(Event("do", number))
            else:
                queue.append(transfer)
                here.append(Event("begin", 1))
            number += 1
        due = max((i + 1 for i, t in enumerate(queue) if t.end <= position), default=0)
        here += _waiting(due - awaited)
        awaited = max(awaited, due)
        found.append(tuple(here))
    return tuple(found)


def _waiting(count: int) -> list[Event]:
    return [Event("end", count)] if count > 0 else []


class Pager:
    """Does the transfers of a plan whose arena begins at an address, between it and a page file.

    The thread starts with the first run in a process, since a fork takes none along; between steps it sleeps.
    keep: what holds the arena.
    """

    def __init__(self, plan: Plan, arena: int, file: PageFile, keep: object) -> None:
        self._plan, self._arena, self._file = plan, arena, file
        self._events = events(plan.transfers, len(plan.calls))
        alone = len(os.sched_getaffinity(0)) == 1  # then who spins keeps the other from what it waits for
        self._code, self._control = _code(1 if alone else SPINS), aligned(_WORDS)
        done_here = {event.number for position in self._events for event in position if event.what == "do"}
        rows = [self._transfer(i) for i in range(len(plan.transfers)) if i not in done_here]
        self._table = np.array(rows, np.uint64).reshape(len(rows), 1 + _ARGUMENTS)
        self._keep, self._pid = (keep, file, self._table, self._control, self._code), 0
        self._finish: Any = None

    def before(self, call: int) -> list[list[int]]:
        """Rows for the loop over the kernels, before the call of this index or at the end of the step."""
        return [self._row(event) for event in self._events[call]]

    def ready(self) -> None:
        """Call this before the loop runs: the file and the thread are this process's own from then on."""
        if self._pid == os.getpid():
            return
        self._file.own()
        if self._finish is not None:
            self._finish.detach()  # the thread belongs to the process that this one was forked from
        self._control[:] = 0
        self._control[:2] = self._table.ctypes.data, len(self._table)
        if len(self._table):
            handles: list[int] = []
            control, pid = self._control.ctypes.data, os.getpid()
            self._finish = weakref.finalize(self, end_threads, handles, self._code.stop, control, pid, self._keep)
            handles.append(start_thread(self._code.engine, control))
        self._pid = os.getpid()

    def check(self) -> None:
        """Call this after the loop: raises StoreError where a transfer failed."""
        code, self._control[_ERROR] = int(self._control[_ERROR]), 0
        if code:
            raise StoreError(
                f"a transfer to or from the page file failed: {os.strerror(code)} (errno {code})",
                str(self._file.folder),
                "State and results of this run are lost; name another folder with --page-dir",
            )

    def _row(self, event: Event) -> list[int]:
        control = self._control.ctypes.data
        if event.what == "do":
            return self._transfer(event.number)
        if event.what == "begin":
            return [self._code.post, control + 8 * _BEGIN, event.number]
        return [self._code.take, control + 8 * _ENDED, event.number]

    def _transfer(self, number: int) -> list[int]:
        transfer = self._plan.transfers[number]
        buffer, page = self._plan.buffers[transfer.buffer], self._plan.buffers[transfer.page]
        function = self._code.page_out if transfer.kind == "out" else self._code.page_in
        error = self._control.ctypes.data + 8 * _ERROR
        return [function, self._file.fd, self._arena + buffer.offset, buffer.bytes, page.offset, error]


@dataclass(frozen=True)
class _Code:
    """The compiled functions, as addresses; `stop` to be called from here."""

    owner: Loader
    page_out: int
    page_in: int
    post: int
    take: int
    engine: int
    stop: Any


@cache
def _code(spins: int) -> _Code:
    """The code, for waits of so many spins before a sleep."""
    loader = Loader()
    text = _ENGINE.format(begin=_BEGIN, ended=_ENDED, spins=spins, columns=1 + _ARGUMENTS, **row_call(_ARGUMENTS))
    text += _TRANSFER.format(kind="out", call="pwrite", after="")
    text += _TRANSFER.format(kind="in", call="pread", after=_ZERO)
    loader.add(llvm.object_from_ir(text, level=2), "paging")
    at = {name: loader.address(name) for name in ("page_out", "page_in", "post", "take", "engine")}
    return _Code(owner=loader, stop=c.CFUNCTYPE(None, c.c_void_p)(loader.address("stop")), **at)

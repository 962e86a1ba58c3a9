"""Threads that do the tasks of a schedule together: the compiled loop, its control block, and the helpers.

All threads run one loop: go through the tasks of the open phase, one's own first, then those of others; claim each
that is free by a compare-and-swap and do it; tell at the end how many were done. Nobody claims a task that cannot
start at once, so the caller waits for a helper only if that one is at work in the phase; a helper that the system does
not run costs nothing. Results do not depend on who does what.

Who waits spins for some microseconds, then sleeps on a futex. Where another process wants a core, two things keep
threads worth having (a busy second core: 1.37 times the speed of one thread with both, 1.05 and 0.98 with one of
them; benchmarks/threads.py). Each thread gives way (sched_yield) between two tasks every millisecond: else the system
takes its core away inside a task, and everybody waits for that task for some milliseconds. And a helper leaves the
core that the caller is on, where a wake-up tends to put it.
"""

from __future__ import annotations

import ctypes as c
import os
import signal
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fitness.errors import FitnessError
from fitness.loader import Loader
from mlir_passes import llvm

Array = np.ndarray[Any, Any]
SPINS = 2000  # pauses: 58 us on Zen 3, 90 us on Skylake and later; to wake a sleeper takes some us of system time
_GIVE_WAY_NS = 1_000_000  # Linux takes a core away after 1.4 to 4 ms (base slice by number of cores, timer tick)
_LINE = 8  # 64-bit words of a cache line
_STAMP = 5  # word of a task that says in how many steps it was claimed
_CORES = 1024  # bits of a set of cores
_CONTROL_WORDS = 8 * _LINE + _CORES // 64

# The control block, one cache line each: tasks and their number (read only); nothing; tasks done; tasks to do, both
# counted over all runs; bell (a 32-bit count of runs) and stop; sleepers on `done`; sleepers on the bell; core of the
# caller. After them, the cores that helpers may use.
# A task, one line: address and number of its rows; first task of its phase and of the next one; whether sleepers are
# worth waking for its phase; steps in which it was claimed.
# What a thread has of its own, one line: control block, its order of the tasks (pairs: task, where
# to go on if it is claimed), when it gave way last.
_TEAM = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.x86.sse2.pause()

define internal i64 @now() {{
  %t = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t
  %p = getelementptr i64, ptr %t, i64 1
  %ns = load i64, ptr %p
  %s9 = mul i64 %s, 1000000000
  %sum = add i64 %s9, %ns
  ret i64 %sum
}}

; The caller says on which core it is; a helper that is on the same one leaves it.
define internal void @part(ptr %control, i1 %helper) noinline {{
  %set = alloca [128 x i8]
  %core = call i32 @sched_getcpu()
  %callers.p = getelementptr i64, ptr %control, i64 56
  %callers = load atomic i32, ptr %callers.p monotonic, align 4
  %same = icmp eq i32 %core, %callers
  br i1 %same, label %met, label %apart
met:
  br i1 %helper, label %leave, label %exit
apart:
  br i1 %helper, label %exit, label %say
say:
  store atomic i32 %core, ptr %callers.p monotonic, align 4
  ret void
leave:
  %allowed = getelementptr i64, ptr %control, i64 64
  call void @llvm.memcpy.p0.p0.i64(ptr %set, ptr %allowed, i64 128, i1 false)
  %at = lshr i32 %core, 3
  %byte.p = getelementptr i8, ptr %set, i32 %at
  %byte = load i8, ptr %byte.p
  %low = and i32 %core, 7
  %bit = shl i32 1, %low
  %bit8 = trunc i32 %bit to i8
  %others = xor i8 %bit8, -1
  %left = and i8 %byte, %others
  store i8 %left, ptr %byte.p
  %r = call i32 @sched_setaffinity(i32 0, i64 128, ptr %set)
  ret void
exit:
  ret void
}}

; Sleeps while the word is as it was seen; may return early.
define internal void @sleep(ptr %word, i32 %seen, ptr %sleepers) noinline {{
  %a = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %b = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  ret void
}}

; Wakes who sleeps on the word, which the caller has changed.
define internal void @wake(ptr %word, ptr %sleepers) {{
  %n = load atomic i64, ptr %sleepers seq_cst, align 8
  %none = icmp eq i64 %n, 0
  br i1 %none, label %exit, label %call
call:
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
exit:
  ret void
}}

; Waits until `needed` tasks are done; may return early.
define internal void @await(ptr %control, i64 %needed) noinline {{
entry:
  %done.p = getelementptr i64, ptr %control, i64 16
  %sleepers = getelementptr i64, ptr %control, i64 40
  br label %spin
spin:
  %k = phi i64 [0, %entry], [%k1, %more]
  call void @llvm.x86.sse2.pause()
  %done = load atomic i64, ptr %done.p acquire, align 8
  %enough = icmp uge i64 %done, %needed
  br i1 %enough, label %exit, label %more
more:
  %k1 = add i64 %k, 1
  %tired = icmp eq i64 %k1, {spins}
  br i1 %tired, label %bed, label %spin
bed:
  %seen = trunc i64 %done to i32
  call void @sleep(ptr %done.p, i32 %seen, ptr %sleepers)
  ret void
exit:
  ret void
}}

; Does tasks until none is left to claim. self: what the thread has of its own.
define internal void @serve(ptr %control, i1 %helper, ptr %self) {{
entry:
  %tasks = load ptr, ptr %control
  %count.p = getelementptr i64, ptr %control, i64 1
  %count = load i64, ptr %count.p
  %done.p = getelementptr i64, ptr %control, i64 16
  %goal.p = getelementptr i64, ptr %control, i64 24
  %sleepers = getelementptr i64, ptr %control, i64 40
  %order.p = getelementptr i64, ptr %self, i64 1
  %order = load ptr, ptr %order.p
  %since.p = getelementptr i64, ptr %self, i64 2
  br label %look
look:
  call void @part(ptr %control, i1 %helper)
  %done = load atomic i64, ptr %done.p acquire, align 8
  %goal = load atomic i64, ptr %goal.p acquire, align 8
  %none = icmp uge i64 %done, %goal
  br i1 %none, label %exit, label %find
find:
  %step = udiv i64 %done, %count
  %next = add i64 %step, 1
  %before = mul i64 %step, %count
  %i = sub i64 %done, %before
  %any = getelementptr [8 x i64], ptr %tasks, i64 %i
  %first.p = getelementptr i64, ptr %any, i64 2
  %first = load i64, ptr %first.p
  %stop.p = getelementptr i64, ptr %any, i64 3
  %stop = load i64, ptr %stop.p
  %end = add i64 %before, %stop
  br label %scan
scan:
  %at = phi i64 [%first, %find], [%at1, %following]
  %mine = phi i64 [0, %find], [%told, %following]
  %number.p = getelementptr [2 x i64], ptr %order, i64 %at
  %number = load i64, ptr %number.p
  %task = getelementptr [8 x i64], ptr %tasks, i64 %number
  %stamp.p = getelementptr i64, ptr %task, i64 5
  %stamp = load atomic i64, ptr %stamp.p acquire, align 8
  %free = icmp eq i64 %stamp, %step
  br i1 %free, label %claim, label %taken
claim:
  %swap = cmpxchg ptr %stamp.p, i64 %step, i64 %next acq_rel acquire
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %begin, label %taken
taken:
  %skip.p = getelementptr i64, ptr %number.p, i64 1
  %skip = load i64, ptr %skip.p
  br label %following
begin:
  %row0 = load ptr, ptr %task
  %rows.p = getelementptr i64, ptr %task, i64 1
  %rows = load i64, ptr %rows.p
  br label %row
row:
  %k = phi i64 [0, %begin], [%k1, %row]
  %p = getelementptr [{columns} x ptr], ptr %row0, i64 %k
  %f = load ptr, ptr %p
{loads}
  call void %f({args})
  %k1 = add i64 %k, 1
  %last = icmp eq i64 %k1, %rows
  br i1 %last, label %finish, label %row
finish:
  %at2 = add i64 %at, 1
  %mine1 = add i64 %mine, 1
  %time = call i64 @now()
  %since = load i64, ptr %since.p
  %ran = sub i64 %time, %since
  %long = icmp ugt i64 %ran, {give_way_ns}
  br i1 %long, label %tell, label %following
following:
  %at1 = phi i64 [%skip, %taken], [%at2, %finish], [%resume, %yield]
  %told = phi i64 [%mine, %taken], [%mine1, %finish], [0, %yield]
  %through = icmp uge i64 %at1, %stop
  br i1 %through, label %rest, label %scan
rest:
  %idle = icmp eq i64 %told, 0
  br i1 %idle, label %open, label %tell
tell:
  %new = phi i64 [%mine1, %finish], [%told, %rest]
  %giving = phi i1 [true, %finish], [false, %rest]
  %resume = phi i64 [%at2, %finish], [%at1, %rest]
  %had = atomicrmw add ptr %done.p, i64 %new seq_cst
  %have = add i64 %had, %new
  %closed = icmp eq i64 %have, %end
  br i1 %closed, label %close, label %told.all
close:
  %all = icmp eq i64 %have, %goal
  %wrapped = icmp eq i64 %stop, %count
  %opened = select i1 %wrapped, i64 0, i64 %stop
  %opening = getelementptr [8 x i64], ptr %tasks, i64 %opened
  %shared.p = getelementptr i64, ptr %opening, i64 4
  %shared = load i64, ptr %shared.p
  %worth = icmp ne i64 %shared, 0
  %ring = or i1 %worth, %all
  br i1 %ring, label %wakes, label %told.all
wakes:
  call void @wake(ptr %done.p, ptr %sleepers)
  br label %told.all
told.all:
  br i1 %giving, label %yield, label %open
yield:
  %y = call i32 @sched_yield()
  %again = call i64 @now()
  store i64 %again, ptr %since.p
  call void @part(ptr %control, i1 %helper)
  br label %following
open:
  %now = load atomic i64, ptr %done.p acquire, align 8
  %over = icmp uge i64 %now, %end
  br i1 %over, label %look, label %pending
pending:
  %ending = icmp uge i64 %end, %goal
  br i1 %ending, label %exit, label %wait
wait:
  call void @await(ptr %control, i64 %end)
  br label %look
exit:
  ret void
}}

define void @run(ptr %self, i64 %times) {{
entry:
  %control = load ptr, ptr %self
  %count.p = getelementptr i64, ptr %control, i64 1
  %count = load i64, ptr %count.p
  %done.p = getelementptr i64, ptr %control, i64 16
  %goal.p = getelementptr i64, ptr %control, i64 24
  %bell = getelementptr i64, ptr %control, i64 32
  %idle = getelementptr i64, ptr %control, i64 48
  %more = mul i64 %count, %times
  %old = load i64, ptr %goal.p
  %goal = add i64 %old, %more
  store atomic i64 %goal, ptr %goal.p release, align 8
  %r = atomicrmw add ptr %bell, i32 1 seq_cst
  call void @wake(ptr %bell, ptr %idle)
  call void @serve(ptr %control, i1 false, ptr %self)
  br label %look
look:
  %done = load atomic i64, ptr %done.p acquire, align 8
  %all = icmp uge i64 %done, %goal
  br i1 %all, label %exit, label %wait
wait:
  call void @await(ptr %control, i64 %goal)
  br label %look
exit:
  ret void
}}

define ptr @helper(ptr %self) {{
entry:
  %control = load ptr, ptr %self
  %bell = getelementptr i64, ptr %control, i64 32
  %stop.p = getelementptr i64, ptr %control, i64 33
  %idle = getelementptr i64, ptr %control, i64 48
  br label %top
top:
  %heard = load atomic i32, ptr %bell acquire, align 4
  %stop = load atomic i64, ptr %stop.p acquire, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %exit, label %work
work:
  call void @serve(ptr %control, i1 true, ptr %self)
  br label %spin
spin:
  %k = phi i64 [0, %work], [%k1, %more]
  call void @llvm.x86.sse2.pause()
  %now = load atomic i32, ptr %bell acquire, align 4
  %rung = icmp ne i32 %now, %heard
  br i1 %rung, label %top, label %more
more:
  %k1 = add i64 %k, 1
  %tired = icmp eq i64 %k1, {spins}
  br i1 %tired, label %bed, label %spin
bed:
  call void @sleep(ptr %bell, i32 %heard, ptr %idle)
  br label %top
exit:
  ret ptr null
}}

; Ends the helpers.
define void @stop(ptr %control) {{
  %bell = getelementptr i64, ptr %control, i64 32
  %stop.p = getelementptr i64, ptr %control, i64 33
  %idle = getelementptr i64, ptr %control, i64 48
  store atomic i64 1, ptr %stop.p release, align 8
  %r = atomicrmw add ptr %bell, i32 1 seq_cst
  call void @wake(ptr %bell, ptr %idle)
  ret void
}}
"""


@dataclass(frozen=True)
class _Code:
    """The compiled loop for one width of rows."""

    owner: Loader
    run: Any
    stop: Any
    helper: int


class Team:
    """Runs a table of tasks with further threads.

    The threads start with the first run in a process, since a fork takes none along; between runs they sleep.
    tasks: rows (address of the first table row, table rows, first task of the phase and of the next, wake).
    orders: for each thread, the caller first, what `fitness.spmd.orders` gives.
    keep: whatever the table rows point into.
    """

    def __init__(self, tasks: Array, orders: Array, width: int, keep: object) -> None:
        self._tasks = aligned(len(tasks) * _LINE).reshape(-1, _LINE)
        self._tasks[:, :_STAMP] = tasks
        self._orders, self._keep = np.ascontiguousarray(orders, np.int64), keep
        self._code = _code(width)
        self._pid = 0
        self._self = 0
        self._finish: Any = None

    def run(self, times: int) -> None:
        """Do all tasks `times` times, one step after the other."""
        if self._pid != os.getpid():
            self._start()
        self._code.run(self._self, times)

    def close(self) -> None:
        """End the helpers; another run starts new ones."""
        if self._finish is not None:
            self._finish()
        self._pid = 0

    def _start(self) -> None:
        if self._finish is not None:
            self._finish.detach()  # they belong to the process that this one was forked from
        words = aligned(_CONTROL_WORDS)
        words[:2] = self._tasks.ctypes.data, len(self._tasks)
        self._tasks[:, _STAMP] = 0
        _allow(words[-_CORES // 64 :])
        handles: list[int] = []
        own = aligned(len(self._orders) * _LINE).reshape(-1, _LINE)
        for mine, order in zip(own, self._orders, strict=True):
            mine[:2] = words.ctypes.data, order.ctypes.data
        self._self, self._pid = own.ctypes.data, os.getpid()
        keep = (words, own, self._tasks, self._orders, self._keep, self._code)
        self._finish = weakref.finalize(self, end_threads, handles, self._code.stop, words.ctypes.data, self._pid, keep)
        for mine in own[1:]:
            handles.append(start_thread(self._code.helper, mine.ctypes.data))


def end_threads(handles: list[int], stop: Any, control: int, pid: int, keep: object) -> None:
    """Stop and join the helpers; what they use is held up to here."""
    if os.getpid() != pid:
        return
    stop(control)
    for handle in handles:
        c.CDLL(None).pthread_join(c.c_ulong(handle), None)


def start_thread(function: int, argument: int) -> int:
    """A thread that handles no signals: those are the interpreter's."""
    handle = c.c_ulong()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        error = c.CDLL(None).pthread_create(c.byref(handle), None, c.c_void_p(function), c.c_void_p(argument))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if error:
        raise FitnessError(f"no thread: {os.strerror(error)}", "threads", "Ask for fewer with --threads")
    return handle.value


def aligned(words: int) -> Array:
    """That many zeros from the start of a cache line on."""
    memory = np.zeros(words + _LINE, np.int64)
    return memory[-(memory.ctypes.data // 8) % _LINE :][:words]


def _allow(words: Array) -> None:
    """Set the bits of the cores that this process may use."""
    for core in os.sched_getaffinity(0):
        words.view(np.uint8)[core // 8] |= np.uint8(1 << core % 8)


@cache
def _code(width: int) -> _Code:
    loader = Loader()
    text = _TEAM.format(columns=width + 1, spins=SPINS, give_way_ns=_GIVE_WAY_NS, **row_call(width))
    loader.add(llvm.object_from_ir(text, level=2), f"team{width}")
    run = c.CFUNCTYPE(None, c.c_void_p, c.c_int64)(loader.address("run"))
    stop = c.CFUNCTYPE(None, c.c_void_p)(loader.address("stop"))
    return _Code(loader, run, stop, loader.address("helper"))


def row_call(width: int) -> dict[str, str]:
    """IR that loads a row's arguments from %p on, and names them. A callee ignores what it does not know (System V)."""
    loads = [f"  %q{k} = getelementptr ptr, ptr %p, i64 {k + 1}\n  %a{k} = load ptr, ptr %q{k}" for k in range(width)]
    return {"loads": "\n".join(loads), "args": ", ".join(f"ptr %a{k}" for k in range(width))}

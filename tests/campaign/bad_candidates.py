"""An evaluator whose genomes say what to do: {"do": name, ...}. It imports no MLIR."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from fitness.job import Context, Job
from fitness.result import Measure, Outcome, Result


def evaluator(context: Context) -> Callable[[Job, Any], Result | None]:
    if context.profile == "does not load":
        raise ValueError("no such profile")
    if context.profile == "aborts":
        os.abort()
    return evaluate


def real_evaluator(context: Context) -> Callable[[Job, Any], Result | None]:
    """The real one; `{"do": "modules"}` asks what a worker that has the base loaded has imported."""
    from fitness.evaluate import evaluator as real

    inner = real(context)
    return lambda job, channel: evaluate(job, channel) if "do" in job.genome else inner(job, channel)


def evaluate(job: Job, channel: Any) -> Result | None:
    genome = job.genome
    channel.stage(genome.get("stage", "edit"))
    fingerprint = str(genome.get("fingerprint", genome.get("value", "base")))
    if channel.known(fingerprint):
        return None
    action = ACTIONS[genome.get("do", "fine")]
    detail = action(genome)
    objectives = {"peak_bytes": Measure(float(genome.get("value", 1)), "plan")}
    return Result(Outcome.OK, detail=detail or "", fingerprint=fingerprint, objectives=objectives)


def fine(genome: Mapping[str, Any]) -> None:
    time.sleep(genome.get("sleep", 0))


def loop(genome: Mapping[str, Any]) -> None:
    while True:
        pass


def sleep(genome: Mapping[str, Any]) -> None:
    time.sleep(3600)


def segfault(genome: Mapping[str, Any]) -> None:
    ctypes.string_at(0)


def abort(genome: Mapping[str, Any]) -> None:
    os.write(2, b'Assertion `isa<To>(Val) && "cast<Ty>() argument of incompatible type!"\' failed.\n')
    os.abort()


def allocate(genome: Mapping[str, Any]) -> None:
    keep = []
    while True:
        keep.append(bytearray(b"x" * (16 << 20)))


def allocate_in_c(genome: Mapping[str, Any]) -> None:
    """Like a kernel that does not look at what malloc gives: ends in a segfault with memory full."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while True:
        ctypes.memset(libc.malloc(16 << 20), 1, 16 << 20)


def no_memory(genome: Mapping[str, Any]) -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def throw(genome: Mapping[str, Any]) -> None:
    raise RuntimeError("a bug in the evaluator")


def leave(genome: Mapping[str, Any]) -> None:
    os._exit(0)


def recurse(genome: Mapping[str, Any]) -> None:
    """A stack overflow in native code: libc's qsort with itself as comparison."""
    libc = ctypes.CDLL(None)
    compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    sys.setrecursionlimit(10**8)

    @compare_type
    def compare(a: Any, b: Any) -> int:
        libc.qsort(array, 2, 8, compare)
        return 0

    array = (ctypes.c_int64 * 2)(1, 2)
    libc.qsort(array, 2, 8, compare)


def torn(genome: Mapping[str, Any]) -> None:
    """Die in the middle of a line on the pool's pipe."""
    for fd in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.write(fd, b'\n{"job": 1, "event": "result", "resu')
        except OSError:
            continue
    os.kill(os.getpid(), signal.SIGSEGV)


def print_much(genome: Mapping[str, Any]) -> None:
    print('{"event": "ready"}')
    for _ in range(1000):
        os.write(1, b"x" * 1000 + b"\n")


def spawn(genome: Mapping[str, Any]) -> None:
    """Leave a grandchild behind."""
    if not os.fork():
        time.sleep(3600)
        os._exit(0)


def kill_worker(genome: Mapping[str, Any]) -> None:
    """Kill the worker: always, or only if the file `once` is not there yet."""
    once = genome.get("once")
    if once and os.path.exists(once):
        return
    if once:
        open(once, "w").close()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def modules(genome: Mapping[str, Any]) -> str:
    return " ".join(sorted({name.split(".")[0] for name in sys.modules}))


def limits(genome: Mapping[str, Any]) -> str:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    return " ".join([*(os.environ[n] for n in names), str(os.getpgid(0) == os.getpid()), str(os.getsid(0))])


ACTIONS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    action.__name__: action
    for action in (
        fine,
        loop,
        sleep,
        segfault,
        abort,
        allocate,
        allocate_in_c,
        no_memory,
        throw,
        leave,
        recurse,
        torn,
        print_much,
        spawn,
        kill_worker,
        modules,
        limits,
    )
}

"""The forked child that evaluates one job: its limits, its words to the pool, its exit."""

from __future__ import annotations

import ctypes as c
import math
import os
import resource
import signal
import traceback
from typing import TYPE_CHECKING

from fitness.job import Job, Limits
from fitness.lines import Lines, write_line

if TYPE_CHECKING:
    from fitness.evaluate import Evaluate

_PR_SET_PDEATHSIG = 1
_STACK_BYTES = 64 << 20
_FILE_BYTES = 256 << 20
_BUG = 70


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` dies; ends it now if that has happened."""
    c.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_BUG)


def run_child(evaluate: Evaluate, job: Job, number: int, limits: Limits, out: int, log: int, parent: int) -> None:
    """Evaluate `job` and exit; never returns. `out` takes events, `log` whatever is printed."""
    try:
        os.setpgid(0, 0)
        die_with(parent)
        write_line(out, {"job": number, "event": "started", "pid": os.getpid()})
        os.dup2(log, 1)
        os.dup2(log, 2)
        set_limits(limits)
        result = evaluate(job, PipeChannel(number, out))
        if result is not None:
            write_line(out, {"job": number, "event": "result", "result": result.to_json()})
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(_BUG)


class PipeChannel:
    """Events on the pipe that the worker's pool reads; answers on standard input."""

    def __init__(self, number: int, out: int) -> None:
        self._number, self._out = number, out
        self._answers = Lines(0)

    def stage(self, name: str) -> None:
        write_line(self._out, {"job": self._number, "event": "stage", "stage": name})

    def known(self, fingerprint: str) -> bool:
        write_line(self._out, {"job": self._number, "event": "fingerprint", "fingerprint": fingerprint})
        while True:
            messages = self._answers.read()
            if messages is None:
                os._exit(_BUG)
            for message in messages:
                if message.get("answer") == self._number:
                    return bool(message["known"])


def set_limits(limits: Limits) -> None:
    """Bound what this process may use; dumps no core."""
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_AS, memory_use()[0] + limits.memory_bytes)
    _set(resource.RLIMIT_CPU, math.ceil(limits.cpu_s))
    _set(resource.RLIMIT_STACK, _STACK_BYTES)
    _set(resource.RLIMIT_FSIZE, max(_FILE_BYTES, limits.memory_bytes))  # a page file holds what memory does not


def _set(kind: int, value: int) -> None:
    """Lower the soft limit; the hard one stays, so that CPU time over it ends as SIGXCPU."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def memory_use() -> tuple[int, int]:
    """Address space and resident memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        pages = file.read().split()
    return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()

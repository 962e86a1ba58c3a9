"""The worker process: loads the base once, then forks a child for each job and says how it ended.

Run as `python -m fitness.worker PARENT` with JSON lines on standard input: first the context and the evaluator
("module:function"), then jobs. Events go to standard output. It never imports a frontend.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fitness.child import die_with, memory_use, run_child
from fitness.death import Death
from fitness.job import Context, Job, Limits
from fitness.lines import Lines, write_line

if TYPE_CHECKING:
    from fitness.evaluate import Evaluate

STDERR_CHARS = 500


def main(parent: int) -> int:
    """Serve until standard input ends."""
    die_with(parent)
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not come between the events
    lines = Lines(0)
    first = _next(lines, [])
    if first is None:
        return 0
    context = Context.from_json(first["context"])
    module, _, name = first["evaluator"].partition(":")
    try:
        evaluate = getattr(import_module(module), name)(context)
    except Exception as error:
        traceback.print_exc()
        write_line(out, {"event": "failed", "detail": f"{type(error).__name__}: {error}"})
        return 1
    gc.collect()
    gc.freeze()
    write_line(out, {"event": "ready"})
    waiting: list[dict[str, Any]] = []
    while True:
        message = _next(lines, waiting)
        if message is None:
            return 0
        job = Job(message["index"], message["genome"])
        _serve(evaluate, job, message["job"], context.limits, out)


def _next(lines: Lines, waiting: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The next message that is not an answer for a child that died before it read it; None at the end."""
    while not waiting:
        messages = lines.read()
        if messages is None:
            return None
        waiting += [m for m in messages if "answer" not in m]
    return waiting.pop(0)


def _serve(evaluate: Evaluate, job: Job, number: int, limits: Limits, out: int) -> None:
    """One job in one child, up to its last trace."""
    log = os.memfd_create("gevo-child")
    resident = memory_use()[1]
    me = os.getpid()
    pid = os.fork()
    if not pid:
        run_child(evaluate, job, number, limits, out, log, me)
    death = watch(pid, limits.wall_s, resident, log)
    os.close(log)
    write_line(out, {"job": number, "event": "ended", "death": asdict(death)})


def watch(pid: int, wall_s: float, resident: int, log: int) -> Death:
    """Wait for the child, kill its process group at the deadline or when it left something behind, and reap it."""
    handle = os.pidfd_open(pid)
    ended = bool(select.select([handle], [], [], wall_s)[0])
    kill_group(pid)
    _, status, usage = os.wait4(pid, 0)
    os.close(handle)
    signalled = os.WIFSIGNALED(status)
    return Death(
        how="deadline" if not ended else "signal" if signalled else "exit",
        number=os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status),
        grown_bytes=max(0, usage.ru_maxrss * 1024 - resident),
        cpu_s=usage.ru_utime + usage.ru_stime,
        stderr=_tail(log),
    )


def kill_group(pid: int) -> None:
    """SIGKILL the process and its group, if they are there."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _tail(log: int) -> str:
    size = os.fstat(log).st_size
    start = max(0, size - STDERR_CHARS)
    return os.pread(log, STDERR_CHARS, start).decode(errors="replace").strip()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

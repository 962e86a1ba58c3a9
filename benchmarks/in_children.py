"""Many small tasks, each in a forked child with limits: a crash, a hang or an abort is a result with a name.

A child does task after task until one ends it; then the next child goes on with the next task.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MEMORY = 8 << 30  # bytes of data that a child may have
PER_CHILD = 400  # tasks, since XLA keeps what it compiled


@dataclass(frozen=True)
class Died:
    """A task that ended its process: `how` says by what."""

    how: str


def results(tasks: Sequence[Any], work: Callable[[Any], Any], seconds: float = 60.0) -> Iterator[tuple[Any, Any]]:
    """Each task with what `work` made of it, or Died, in order."""
    done = 0
    while done < len(tasks):
        batch = tasks[done : done + PER_CHILD]
        for result in _one_child(batch, work, seconds):
            yield tasks[done], result
            done += 1


def _one_child(tasks: Sequence[Any], work: Callable[[Any], Any], seconds: float) -> Iterator[Any]:
    """The results of the first tasks: up to the one that ended the child, or all."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as errors:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            os.dup2(errors.fileno(), 2)
            os.dup2(errors.fileno(), 1)
            _serve(tasks, work, write)
        os.close(write)
        answered = 0
        try:
            while answered < len(tasks):
                data = _message(read, seconds)
                if data is None:
                    break
                answered += 1
                yield pickle.loads(data)
        finally:
            status = _ended(child)
            os.close(read)
        if answered < len(tasks):
            errors.seek(0)
            yield Died(_how(status, errors.read().decode(errors="replace")))


def _ended(child: int) -> int | None:
    """The status of a child that is done; None if it had to be killed."""
    for _ in range(40):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.025)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _serve(tasks: Sequence[Any], work: Callable[[Any], Any], write: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        for task in tasks:
            data = pickle.dumps(work(task))
            os.write(write, struct.pack("<Q", len(data)) + data)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(3)


def _message(pipe: int, seconds: float) -> bytes | None:
    """The next message; None at the end of the pipe, or if it does not come in time."""
    head = _bytes(pipe, 8, seconds)
    return None if head is None else _bytes(pipe, struct.unpack("<Q", head)[0], seconds)


def _bytes(pipe: int, count: int, seconds: float) -> bytes | None:
    data = b""
    while len(data) < count:
        if not select.select([pipe], [], [], seconds)[0]:
            return None
        more = os.read(pipe, count - len(data))
        if not more:
            return None
        data += more
    return data


def _how(status: int | None, errors: str) -> str:
    """The signal, and the line of what was printed that says most."""
    if status is None:
        return "ran out of time"
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not re.match(r"[IW]\d{4} ", line)]
    telling = [line for line in lines if re.search(r"Assertion|LLVM ERROR|Error:|error:|Fatal", line)]
    said = (telling or lines or [""])[-1][-300:]
    name = signal.Signals(status & 127).name if os.WIFSIGNALED(status) else f"exit {os.waitstatus_to_exitcode(status)}"
    return f"{name} {said}".strip()

"""A function in a forked child, with limits and a deadline: whatever it does, the caller goes on."""

from __future__ import annotations

import json
import os
import select
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fitness.child import die_with, set_limits
from fitness.death import Death, cause
from fitness.job import Limits
from fitness.worker import kill_group, watch

_BUG = 70


def isolated(work: Callable[[], Any], limits: Limits, stage: str) -> Any:
    """What `work` returns, as JSON brings it; a `Failure` if it raised or died. stage: names what it does."""
    log, (read, write) = os.memfd_create("gevo-child"), os.pipe()
    me = os.getpid()
    pid = os.fork()
    if not pid:
        _child(work, limits, write, log, me)
    os.close(write)
    try:
        data = _read_all(read, time.monotonic() + limits.wall_s)
        death = watch(pid, 0.0 if data is None else 1.0, 0, log)
    except BaseException:  # Ctrl-C: the child goes too
        kill_group(pid)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise
    finally:
        os.close(read)
        os.close(log)
    if data and death.how == "exit" and death.number == 0:
        return json.loads(data)
    return cause(Death("deadline") if data is None else death, stage, limits)


def _child(work: Callable[[], Any], limits: Limits, write: int, log: int, parent: int) -> None:
    """Never returns."""
    try:
        os.setpgid(0, 0)
        die_with(parent)
        os.dup2(log, 1)
        os.dup2(log, 2)
        set_limits(limits)
        data = json.dumps(work()).encode()
        while data:
            data = data[os.write(write, data) :]
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(_BUG)


def _read_all(fd: int, deadline: float) -> bytes | None:
    """All that comes before the pipe's end; None if the deadline comes first."""
    data = b""
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 1 << 16)
        if not part:
            return data
        data += part
    return None

"""One writer a run: a POSIX record lock, which the system drops when the process ends, however it ends.

Such a lock is not inherited by forked workers, so a worker that outlives a killed campaign does not hold it.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from gevo.errors import RunLocked

PATIENCE_S = 0.5  # `holder` takes the lock for an instant, and must not turn a writer away


class WriterLock:
    """Holds the lock file at `path` while entered; raises RunLocked naming the process that has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> WriterLock:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + PATIENCE_S
        while not _taken(self._file):
            if time.monotonic() > deadline:
                pid = _written_pid(self._path)
                os.close(self._file)
                raise RunLocked(
                    f"process {pid} writes to this run", self._path.parent, "Wait for it, or stop it with Ctrl-C"
                )
            time.sleep(0.02)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def holder(path: Path) -> int | None:
    """The process, other than this one, that writes to the run whose lock file is `path`; None if there is none."""
    if not path.exists() or not os.access(path, os.W_OK):
        return None
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return None if _taken(file) else int(_written_pid(path))
    finally:
        os.close(file)


def _taken(file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _written_pid(path: Path) -> str:
    return path.read_text().strip() or "0"

"""The file that memory is paged to: it has no name, and goes with the process that holds it."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from fitness.errors import StoreError

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 20
_TODO = "Name a folder with room that you may write to (--page-dir)"


class PageFile:
    """A file of `bytes` bytes in a folder, that of temporary files by default; raises StoreError where there is none.

    Its name is taken away at once, so a crash leaves nothing behind, and it works on if the folder vanishes. Its room
    is reserved, so that a full disk is told now. A forked process gets a file of its own, with what this one holds
    then, when it first uses it.
    """

    def __init__(self, folder: Path | None, bytes: int) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self.bytes = bytes
        self.fd = _reserved(self.folder, bytes)
        self._pid = os.getpid()
        weakref.finalize(self, os.close, self.fd)

    def own(self) -> None:
        """Part from the file of the process that this one was forked from; `fd` keeps its number."""
        if self._pid == os.getpid():
            return
        fresh = _reserved(self.folder, self.bytes)
        try:
            for offset in range(0, self.bytes, _CHUNK):
                _write(fresh, offset, _read(self.fd, offset, min(_CHUNK, self.bytes - offset)))
            os.dup2(fresh, self.fd, inheritable=False)
        except OSError as error:
            raise self._broken(error) from error
        finally:
            os.close(fresh)
        self._pid = os.getpid()

    def write(self, offset: int, data: Array) -> None:
        """Put the bytes of an array there."""
        self.own()
        try:
            _write(self.fd, offset, data.tobytes())
        except OSError as error:
            raise self._broken(error) from error

    def read(self, offset: int, size: int) -> Array:
        """Bytes of the file as a new array that nobody writes to."""
        self.own()
        try:
            return np.frombuffer(_read(self.fd, offset, size), np.uint8)
        except OSError as error:
            raise self._broken(error) from error

    def fill(self, byte: int) -> None:
        """Write `byte` all over."""
        for offset in range(0, self.bytes, _CHUNK):
            self.write(offset, np.full(min(_CHUNK, self.bytes - offset), byte, np.uint8))

    def end(self) -> int:
        """Where the file ends: over `bytes` if somebody wrote past them."""
        self.own()
        return os.fstat(self.fd).st_size

    def _broken(self, error: OSError) -> StoreError:
        return StoreError(f"the page file fails: {error.strerror}", str(self.folder), _TODO)


def _reserved(folder: Path, size: int) -> int:
    """The descriptor of a new file without a name, its room reserved."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="gevo-pages-", buffering=0) as file:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
            return os.dup(file.fileno())
    except OSError as error:
        raise StoreError(f"no page file of {size} bytes: {error.strerror}", str(folder), _TODO) from error


def _write(fd: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def _read(fd: int, offset: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.pread(fd, size, offset)
        if not part:
            raise OSError(5, "it is shorter than it was")
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)

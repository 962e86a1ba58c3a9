"""The write-ahead log: one JSON object a line, behind its CRC-32 and its length in bytes.

A line is synced to disk before the next is written, so only the last one can be torn: a bad last line is
a write that a crash cut off, a bad line before a good one is damage.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gevo.errors import RunDamaged
from gevo.files import sync_folder


@dataclass(frozen=True)
class LogContent:
    """The rows of a log, the bytes they take, and the bytes of a torn line behind them."""

    rows: tuple[dict[str, Any], ...]
    good_bytes: int
    torn_bytes: int


def read_log(path: Path) -> LogContent:
    """All whole rows of the log at `path`; raises RunDamaged naming the line of one that is damaged."""
    raw = path.read_bytes() if path.exists() else b""
    rows: list[dict[str, Any]] = []
    good, at, bad = 0, 0, 0
    for number, line in enumerate(raw.splitlines(keepends=True), 1):
        at += len(line)
        row = _decoded(line)
        if row is None:
            bad = bad or number
            continue
        if bad:
            raise RunDamaged(
                f"line {bad} fails its checksum, but line {number} after it is whole, so no crash cut it off",
                path,
                f"Restore the file from a copy, or delete line {bad}: `resume` evaluates its genome again",
            )
        rows.append(row)
        good = at
    return LogContent(tuple(rows), good, len(raw) - good)


class LogWriter:
    """Appends rows to the log at `path`; a torn tail is cut off first. `append` returns when the row is on disk."""

    def __init__(self, path: Path) -> None:
        self.torn_bytes = 0
        content = read_log(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        sync_folder(path.parent)
        if content.torn_bytes:
            self.torn_bytes = content.torn_bytes
            os.ftruncate(self._file, content.good_bytes)
            os.fsync(self._file)

    def append(self, row: dict[str, Any]) -> None:
        line = _encoded(row)
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"wrote {written} of {len(line)} bytes of a log line: is the disk full?")
        os.fsync(self._file)

    def clear(self) -> None:
        """Empty the log, once its rows are safe elsewhere."""
        os.ftruncate(self._file, 0)
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _encoded(row: dict[str, Any]) -> bytes:
    body = json.dumps(row, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %d %s\n" % (zlib.crc32(body), len(body), body)


def _decoded(line: bytes) -> dict[str, Any] | None:
    parts = line.split(b" ", 2)
    if len(parts) != 3 or not line.endswith(b"\n"):
        return None
    checksum, length, body = parts[0], parts[1], parts[2][:-1]
    if length != b"%d" % len(body) or checksum != b"%08x" % zlib.crc32(body):
        return None
    return json.loads(body)

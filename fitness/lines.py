"""JSON lines over a pipe. What does not parse is a line that a killed writer left torn: it is skipped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any


def write_line(fd: int, message: Mapping[str, Any]) -> None:
    """Write one message. It starts on a new line, whatever a killed writer left before it."""
    data = b"\n" + json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


class Lines:
    """Messages from a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that one read brings, maybe none; None at the end of the pipe."""
        data = os.read(self._fd, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [message for message in map(_parsed, lines) if message is not None]


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None

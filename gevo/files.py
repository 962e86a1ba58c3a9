"""Writes that are whole or not there: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: Path, fill: Callable[[Path], None]) -> None:
    """`path` with what `fill` writes; a crash at any moment leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    fill(temporary)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda temporary: _write_text(temporary, text))


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)

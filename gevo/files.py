"""Writes that are whole or not there: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gevo.errors import Unwritable


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


def check_new_folder(folder: Path) -> None:
    """Make the folders above `folder`; raise Unwritable where it is there already with something in it, or cannot be
    made."""
    if folder.exists() and not folder.is_dir():
        raise Unwritable("there is a file of that name", folder, "Give a new folder with --to")
    if folder.exists() and any(folder.iterdir()):
        raise Unwritable("the folder is not empty", folder, "Give a new one with --to")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        todo = "Give a folder you may write to with --to"
        raise Unwritable(f"cannot be made: {error.strerror}", folder, todo) from error


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)

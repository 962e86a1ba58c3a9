"""Folders of the cache, and the writes into it that survive a crash and a second process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workloads.errors import Kind, WorkloadError


def cache_folder() -> Path:
    """GEVO_CACHE, else gevo's folder in the user's XDG cache; read at each call, not made."""
    if own := os.environ.get("GEVO_CACHE"):
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "gevo"


@contextmanager
def temporary_folder(parent: Path) -> Generator[Path]:
    """A new folder in `parent`, removed at the end unless it was renamed away."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    except OSError as error:
        raise WorkloadError(
            f"cannot write the cache: {error.strerror}",
            str(parent),
            "Set GEVO_CACHE to a folder you may write to",
            Kind.CACHE,
        ) from error
    try:
        folder.chmod(0o755)  # mkdtemp makes it private to the user
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(made: Path, final: Path) -> Path:
    """`final`, with the content of the finished folder `made`; if another process was first, its content stays."""
    try:
        made.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    return final

"""Real text for byte models: the source of Python's own standard library, split by file."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np

from workloads.data import SPLIT_SEED
from workloads.errors import Kind, WorkloadError
from workloads.workload import SPLITS, Arrays

LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}  # folders
MASK = 256  # the token that hides a byte
NOT_ASKED = -1  # the label where no byte is hidden: a one-hot of it is all zeros
ROWS = (20_000, 128, 1_000)  # of train, validation and test


def next_bytes(length: int, rows: tuple[int, int, int] = ROWS) -> dict[str, Arrays]:
    """x: `length` bytes of text in a row, y: the byte that follows each of them; int32 (rows, length)."""
    return {name: (r[:, :-1], r[:, 1:]) for name, r in _rows(length + 1, rows).items()}


def masked_bytes(length: int, share: float = 0.15, rows: tuple[int, int, int] = ROWS) -> dict[str, Arrays]:
    """x: `length` bytes of text in a row, some hidden as MASK; y: those, else NOT_ASKED; int32 (rows, length).

    Each row hides the same number of bytes, `share` of them (BERT's 15 %), drawn once and for all.
    """
    splits: dict[str, Arrays] = {}
    for name, found in _rows(length, rows).items():
        order = np.random.default_rng(SPLIT_SEED).random(found.shape).argsort(axis=1)
        hidden = order < round(share * length)
        splits[name] = (np.where(hidden, MASK, found), np.where(hidden, found, NOT_ASKED))
    return splits


def standard_library() -> dict[str, bytes]:
    """The bytes of the library's .py files by split: of ten files eight to train, by a hash of the file's name.

    They differ between versions of Python.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    texts: dict[str, list[bytes]] = {name: [] for name in SPLITS}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if not LEFT_OUT.intersection(name.parts):
            tenth = hashlib.sha256(name.as_posix().encode()).digest()[0] % 10
            texts[{8: "validation", 9: "test"}.get(tenth, "train")].append(path.read_bytes())
    return {name: b"".join(parts) for name, parts in texts.items()}


def _rows(width: int, rows: tuple[int, int, int]) -> dict[str, np.ndarray[Any, Any]]:
    """int32 (rows, width) by split: as many pieces of its text as asked, drawn by a fixed seed."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for (name, text), count in zip(standard_library().items(), rows, strict=True):
        pieces = len(text) // width
        if pieces < count:
            raise WorkloadError(
                f"the source of the standard library has {pieces} pieces of {width} bytes to {name}, not {count}",
                sysconfig.get_path("stdlib"),
                "Use a Python that was installed with its whole library as .py files",
                Kind.DATA,
            )
        take = np.random.default_rng(SPLIT_SEED).choice(pieces, count, replace=False)
        found[name] = np.frombuffer(text, np.uint8)[: pieces * width].reshape(pieces, width)[take].astype(np.int32)
    return found

"""gevo evolves training steps in MLIR. `gevo.load` runs what `gevo export` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fitness.step import Step


def load(folder: Path | str, threads: int = 1) -> Step:
    """The exported program in `folder` as a function: `state, metrics = step(state, batch)` with NumPy arrays.

    threads: cores that work at one step; the results are those of one, bit for bit.
    """
    from fitness.program import load_step  # on use: `gevo --help` must not load an LLVM

    return load_step(folder, threads)

"""gevo evolves training steps in MLIR. `gevo.load` runs what `gevo export` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fitness.prediction import Prediction
    from fitness.step import Step


def load(folder: Path | str, threads: int = 1, page_dir: Path | None = None) -> Step | Prediction:
    """The exported program in `folder` as a function on NumPy arrays.

    Of a training: `state, metrics = step(state, batch)`. Of a prediction: `scores = predict(x)`, with the weights that
    it was searched with, for any number of rows.

    threads: cores that work at one step; the results are those of one, bit for bit. page_dir: where a program that
    pages has its page file, by default the folder of temporary files.
    """
    from fitness.program import load_step  # on use: `gevo --help` must not load an LLVM

    return load_step(folder, threads, page_dir)

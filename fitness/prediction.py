"""A loaded program of a prediction as a function: `scores = predict(x)` on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.step import CONVERT, check_count, foreign, holds

Leaves = Sequence[Any] | Mapping[str, Any]


class Prediction:
    """Calls a program with weights of its own: those it was saved with, until `use` gives it others.

    A call takes any number of rows, runs them in batches of `batch_size`, and returns their scores, (rows, classes),
    as a new array. The last batch is filled up with rows given before.
    """

    def __init__(
        self, runner: CpuRunner, state_names: Sequence[str], batch_names: Sequence[str], initial: Sequence[Array] = ()
    ) -> None:
        self._runner = runner
        self._initial = list(initial)
        self.state_names, self.batch_names = tuple(state_names), tuple(batch_names)
        check_count("state", self.state_names, runner.plan.state)
        check_count("batch", self.batch_names, runner.batch)
        self.batch_size = runner.batch[0].shape[0]
        self.peak_bytes = runner.plan.peak_bytes
        self._ready = bool(self._initial) or not self.state_names
        if self._initial:
            self.use(self._initial)

    def initial_state(self) -> list[Array]:
        """The weights that it was saved with, in signature order."""
        if not self._initial:
            raise FitnessError("the program was saved without weights", "predict", "Give it yours with use(state)")
        return [leaf.copy() for leaf in self._initial]

    def use(self, state: Leaves) -> None:
        """Predict with these weights from now on; raises FitnessError where a shape or type is not as expected."""
        for number, leaf in foreign("state", state, self.state_names, self._runner.state).items():
            self._runner.write_leaf(number, leaf)
        self._ready = True

    def __call__(self, x: Any) -> Array:
        """Scores of the rows of `x`: an array, or a list or dict of them where a batch has several leaves."""
        if not self._ready:
            self.initial_state()
        leaves = self._leaves(x)
        count, size, scores = len(leaves[0]), self.batch_size, self._runner.metrics[0]
        made = np.empty((count, *scores.shape[1:]), scores.dtype)
        for start in range(0, count, size):
            rows = np.arange(start, start + size) % count
            self._runner.write_batch([leaf[rows] for leaf in leaves])
            self._runner.run()
            made[start : start + size] = scores[: count - start]
        return made

    def _leaves(self, x: Any) -> list[Array]:
        """The leaves of `x` in order; raises FitnessError where their rows are not as expected."""
        one = len(self.batch_names) == 1 and not isinstance(x, Mapping)
        given: Leaves = [x] if one and not _is_list_of(x, self._runner.batch[0]) else x
        if isinstance(given, Mapping):
            given = [given[name] for name in self.batch_names if name in given]
        leaves = [np.asarray(leaf) for leaf in given]
        if len(leaves) != len(self.batch_names):
            order = f"In order: {', '.join(self.batch_names)}"
            raise FitnessError(f"expected {len(self.batch_names)} arrays, got {len(leaves)}", "predict", order)
        for name, view, leaf in zip(self.batch_names, self._runner.batch, leaves, strict=True):
            wanted, got = (*view.shape[1:],), leaf.shape[1:] if leaf.ndim else None
            if wanted != got or not holds(view, leaf) or len(leaf) != len(leaves[0]):
                expected = f"{view.dtype}[rows{''.join(f', {n}' for n in wanted)}]"
                raise FitnessError(
                    f"{name}: expected {expected}, got {leaf.dtype}{list(leaf.shape)}",
                    "predict",
                    CONVERT,
                )
        return leaves


def _is_list_of(x: Any, view: Array) -> bool:
    """Whether `x` is a list that holds the one leaf of a batch, and not that leaf itself."""
    return isinstance(x, list | tuple) and len(x) == 1 and np.ndim(x[0]) == view.ndim

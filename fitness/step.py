"""A loaded program as a function: `state, metrics = step(state, batch)` on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError

CONVERT = "Convert the array first"
Leaves = Sequence[Any] | Mapping[str, Any]


class Step:
    """Calls a program. The returned state is views of the arena, in the form it was given (list or dict by names).

    The arena is donated: the next call overwrites the state returned before it. Passing that state back copies
    nothing; any other array is checked and copied in. `batch_views` may be filled in place and passed, so that
    a batch is not copied either. Metrics are copies, and so is state that stands in a page file, which may not be
    written to.
    """

    def __init__(
        self, runner: CpuRunner, state_names: Sequence[str], batch_names: Sequence[str], initial: Sequence[Array] = ()
    ) -> None:
        self._runner = runner
        self._initial = list(initial)
        self.state_names, self.batch_names = tuple(state_names), tuple(batch_names)
        check_count("state", self.state_names, runner.plan.state)
        check_count("batch", self.batch_names, runner.batch)
        self.batch_views = runner.batch
        self._state = runner.state
        self.peak_bytes = runner.plan.peak_bytes

    def initial_state(self) -> list[Array]:
        """The state that the variant was measured from (the workload's first seed), in signature order."""
        if not self._initial:
            raise FitnessError("the program was saved without an initial state", "step", "Give the step your own")
        return [leaf.copy() for leaf in self._initial]

    def __call__(self, state: Leaves, batch: Leaves) -> tuple[Any, list[Array]]:
        leaves = foreign("state", state, self.state_names, self._state)
        rows = foreign("batch", batch, self.batch_names, self._runner.batch)
        arena = self._runner.arena  # an array that lies in it could be overwritten before it is read
        for given in (leaves, rows):
            given.update({i: a.copy() for i, a in given.items() if np.may_share_memory(a, arena)})
        for number, leaf in leaves.items():
            self._runner.write_leaf(number, leaf)
        for number, leaf in rows.items():
            self._runner.batch[number][...] = leaf
        try:
            self._runner.run()
        finally:
            self._state = self._runner.state  # after a failed run the state before it is no more what stands there
        new = list(self._state)
        metrics = [view.copy() for view in self._runner.metrics]
        if isinstance(state, Mapping):
            return dict(zip(self.state_names, new, strict=True)), metrics
        return new, metrics


def foreign(what: str, given: Leaves, names: Sequence[str], views: Sequence[Array]) -> dict[int, Array]:
    """The views that must be filled, by number, each with its array: all but those that were given themselves.

    A type that the expected one holds exactly will do: uint8 for float32, int32 for int64. Raises FitnessError where
    count, name, shape or type is not as expected.
    """
    if isinstance(given, Mapping):
        odd = [n for n in names if n not in given] + [n for n in given if n not in names]
        if odd:
            raise FitnessError(f"{what}: names do not match at {odd[0]!r}", "step", f"Expected {', '.join(names)}")
        given = [given[n] for n in names]
    if len(given) != len(names):
        order = f"In order: {', '.join(names)}"
        raise FitnessError(f"{what}: expected {len(names)} arrays, got {len(given)}", "step", order)
    pairs = enumerate(zip(views, given, strict=True))
    found = {i: np.asarray(leaf) for i, (view, leaf) in pairs if leaf is not view}
    for i, array in found.items():
        view = views[i]
        if array.shape != view.shape or not holds(view, array):
            raise FitnessError(f"{what} {names[i]}: expected {_type(view)}, got {_type(array)}", "step", CONVERT)
    return found


def holds(view: Array, given: Array) -> bool:
    """Whether elements of `given` are the same numbers in the type of `view`."""
    if given.dtype == view.dtype:
        return True
    rounds = given.dtype.kind in "iu" and view.dtype.kind == "f" and given.itemsize >= view.itemsize  # int64 to float64
    return np.can_cast(given.dtype, view.dtype, "safe") and not rounds


def _type(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def check_count(what: str, names: Sequence[str], views: Sequence[object]) -> None:
    """Raises FitnessError unless each view has a name."""
    if len(names) != len(views):
        raise FitnessError(f"the signature has {len(names)} {what} leaves, the plan {len(views)}", "step")

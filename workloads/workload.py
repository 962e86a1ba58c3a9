"""What a workload is: the user's functions before tracing, plain data in a folder after it.

This file imports numpy only, so that the search, the evaluators and an exported
program can read a prepared workload without JAX or PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workloads.dtypes import from_bits
from workloads.errors import WorkloadError

SPLITS = ("train", "validation", "test")
STORAGES = ("f32", "f16", "bf16")
TASKS = ("training", "prediction")
Arrays = tuple[np.ndarray[Any, Any], ...]


@dataclass(frozen=True)
class ArraySpec:
    """One array argument or result: its path in the user's tree, its shape, its NumPy dtype name, one of
    `dtypes.ELEMENTS`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def array_specs(data: Iterable[dict[str, Any]]) -> tuple[ArraySpec, ...]:
    """The specs that JSON has."""
    return tuple(ArraySpec(s["name"], tuple(s["shape"]), s["dtype"]) for s in data)


@dataclass(frozen=True)
class Quality:
    """How a trained state, or a prediction, is scored.

    kind: "accuracy" (error = 1 - share of rows where argmax of `predict`'s scores is the label)
        or "loss" (error = mean of the step's first metric over the split, the state held; not for a prediction).
    steps: training steps before scoring, none for a prediction; seeds: one initial state a seed, the error is
        their mean.
    """

    kind: str = "accuracy"
    steps: int = 300
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Signature:
    """What the arguments and results of the function that is tuned (`entry`) and of `@predict` are, in order.

    task "training": `@step(state..., batch...) -> (state..., metrics...)` is tuned;
        `@predict(state..., inputs...) -> scores` scores what it learned, where `inputs` are the first leaves of a
        batch with `eval_batch` rows. `predict_inputs` is empty where there is no `@predict`.
    task "prediction": `@predict(state..., batch...) -> metrics` is tuned, its one metric the scores, (rows, classes);
        the state (its weights) is only read, and `predict_inputs` is empty.
    labels: what an example has beside the leaves of a batch, which scoring alone sees; only for a prediction.
    storage: see `Workload`.
    """

    name: str
    frontend: str
    state: tuple[ArraySpec, ...]
    batch: tuple[ArraySpec, ...]
    metrics: tuple[ArraySpec, ...]
    predict_inputs: tuple[ArraySpec, ...] = ()
    quality: Quality = field(default_factory=Quality)
    storage: tuple[str, ...] = ("f32",)
    task: str = "training"
    labels: tuple[ArraySpec, ...] = ()

    @property
    def is_prediction(self) -> bool:
        return self.task == "prediction"

    @property
    def entry(self) -> str:
        """The name of the function that is tuned: only "step" gives new state."""
        return "predict" if self.is_prediction else "step"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Signature:
        def specs(key: str) -> tuple[ArraySpec, ...]:
            return array_specs(data.get(key, ()))

        quality = dict(data.get("quality", {}))
        if "seeds" in quality:
            quality["seeds"] = tuple(quality["seeds"])
        return Signature(
            name=data["name"],
            frontend=data["frontend"],
            state=specs("state"),
            batch=specs("batch"),
            metrics=specs("metrics"),
            predict_inputs=specs("predict_inputs"),
            quality=Quality(**quality),
            storage=checked_storage(data.get("storage", ("f32",))),
            task=checked_task(data.get("task", "training")),
            labels=specs("labels"),
        )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A training or prediction step to tune, as the user writes it (about 15 lines; see `examples/`).

    init: seed -> state, a tree of arrays. step: pure, static shapes, `(state, batch) -> (state, metrics)`.
    predict: `(state, x) -> scores` of shape (rows, classes), or None with `Quality(kind="loss")`.
        Without `step` it is `predict` that is tuned, with `batch_size` rows: the state is only read, and the error is
        that of the tuned function's own scores. See `workloads.trained` for a state that `gevo train` made.
    data: () -> {"train": (x, y), "validation": ..., "test": ...}, NumPy arrays with equal row counts in a split.
        Data and state may be of any type in `dtypes.ELEMENTS`, and are kept as they are.
    eval_batch: rows of `predict` where a training is scored.
    storage: the numerics rule. What a variant may store f32 values between kernels in, of `STORAGES`; arithmetic,
        state, batch and metrics stay as they are. Permit what this step still learns with: see `benchmarks/storage.py`.
    """

    init: Callable[[int], Any]
    data: Callable[[], dict[str, Arrays]]
    step: Callable[[Any, Any], tuple[Any, Any]] | None = None
    predict: Callable[[Any, Any], Any] | None = None
    batch_size: int = 32
    eval_batch: int = 500
    quality: Quality = field(default_factory=Quality)
    frontend: str = "jax"
    storage: tuple[str, ...] = ("f32",)


def checked_storage(given: Iterable[str]) -> tuple[str, ...]:
    """The numerics rule in the order of `STORAGES`; f32 is always permitted. Raises ValueError."""
    names = tuple(given)
    unknown = [name for name in names if name not in STORAGES]
    if unknown or isinstance(given, str):
        raise ValueError(f"storage is {given!r}, expected a tuple of {', '.join(STORAGES)}")
    return tuple(name for name in STORAGES if name == "f32" or name in names)


def checked_task(given: str) -> str:
    """`given`, if it is one of `TASKS`; raises ValueError."""
    if given not in TASKS:
        raise ValueError(f"task is {given!r}, expected {' or '.join(TASKS)}")
    return given


@dataclass(frozen=True)
class PreparedWorkload:
    """A traced workload: a folder of plain files, cached by the hash of what it was made from.

    signature.json, step.mlir (the function that is tuned, `Signature.entry`), lines.mlir (optional: the same with the
    lines of the user's source), predict.mlir (optional), init_<seed>.npz (leaves s0, s1, ...), data.json (folder of
    the arrays), <split>_<leaf>.npy, notes.json (optional: what to tell the user once). The arrays hold their rows flat,
    so that workloads which see one data set in different shapes share its file; bfloat16 is kept as its bits.
    """

    folder: Path
    signature: Signature

    @staticmethod
    def load(folder: Path) -> PreparedWorkload:
        path = folder / "signature.json"
        if not path.is_file():
            raise WorkloadError("no prepared workload here", str(folder), "Run the command that made it again")
        return PreparedWorkload(folder, Signature.from_json(json.loads(path.read_text())))

    @property
    def step_text(self) -> str:
        return (self.folder / "step.mlir").read_text()

    @property
    def lined_text(self) -> str:
        """`step_text`, with the lines of the user's source as locations where the frontend knows them."""
        path = self.folder / "lines.mlir"
        return path.read_text() if path.is_file() else self.step_text

    @property
    def predict_text(self) -> str | None:
        path = self.folder / "predict.mlir"
        return path.read_text() if path.is_file() else None

    @property
    def notes(self) -> list[str]:
        """What the frontend had to say, such as that JAX reads labels of 64 bits in 32."""
        path = self.folder / "notes.json"
        return json.loads(path.read_text()) if path.is_file() else []

    def initial_state(self, seed: int) -> list[np.ndarray[Any, Any]]:
        """State leaves in signature order, as `init(seed)` gave them."""
        with np.load(self.folder / f"init_{seed}.npz") as leaves:
            return [from_bits(leaves[f"s{i}"], leaf.dtype) for i, leaf in enumerate(self.signature.state)]

    def split(self, name: str) -> Arrays:
        """The arrays of one split, in batch order, then the labels of a prediction; memory-mapped read-only."""
        where = self.folder / json.loads((self.folder / "data.json").read_text())["folder"]
        specs = (*self.signature.batch, *self.signature.labels)
        stored = (np.load(where / f"{name}_{i}.npy", mmap_mode="r") for i in range(len(specs)))
        return tuple(from_bits(a, s.dtype).reshape(len(a), *s.shape[1:]) for a, s in zip(stored, specs, strict=True))

    def batches(self, seed: int, steps: int) -> Iterator[Arrays]:
        """`steps` training batches in an order that depends on the seed alone; epochs reshuffle, short tails drop."""
        arrays = self.split("train")[: len(self.signature.batch)]
        rows, size = len(arrays[0]), self.signature.batch[0].shape[0]
        rng = np.random.default_rng(seed)
        order = np.empty(0, np.int64)
        for _ in range(steps):
            if len(order) < size:
                order = rng.permutation(rows)
            take, order = order[:size], order[size:]
            yield tuple(a[take] for a in arrays)

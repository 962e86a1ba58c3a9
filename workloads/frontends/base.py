"""What a frontend is: a function from a source to a `Traced`, run in a process of its own."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from workloads.cache import temporary_folder
from workloads.dtypes import ELEMENTS, bits
from workloads.errors import Kind, WorkloadError
from workloads.workload import SPLITS, Arrays, ArraySpec, PreparedWorkload, Signature, Workload

# name of a frontend of Python workloads -> "module:function", a function (name, Workload, path) -> Traced
FRONTENDS = {"jax": "workloads.frontends.jax:trace"}
FRESH_SEEDS = 5  # those of the final check, beside the ones that a search uses

Trace: TypeAlias = Callable[[str, Workload, Path], "Traced"]


@dataclass(frozen=True)
class Traced:
    """What a frontend gives: the functions as linalg-on-tensors text, and every array they need.

    step: the one that is tuned. predict: what scores a training. lines: `step` with locations in the user's source.
    notes: what the user should hear once, such as how JAX reads an array of 64-bit numbers.
    """

    signature: Signature
    step: str
    predict: str | None
    initial: Mapping[int, Arrays]
    splits: Mapping[str, Arrays]
    lines: str = ""
    notes: tuple[str, ...] = ()


def frontend(name: str, where: str) -> Trace:
    """The trace function of the frontend that the `Workload` in the file `where` names."""
    if name not in FRONTENDS:
        raise WorkloadError(f"unknown frontend {name!r}", where, f"The known ones are {', '.join(FRONTENDS)}")
    module, _, function = FRONTENDS[name].partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise missing(error, where) from error


def missing(error: ModuleNotFoundError, where: str) -> WorkloadError:
    """The error for a library that is not installed, with the extra that brings it where one does."""
    library = (error.name or "").partition(".")[0]
    known = library in ("jax", "jaxlib", "sklearn")
    todo = "Run: pip install 'gevo[jax]'" if known else f"Install {library} into this environment"
    return WorkloadError(f"{library} is not installed", where, todo, Kind.PACKAGE)


def save(traced: Traced, folder: Path, arrays: Path) -> PreparedWorkload:
    """The prepared workload in `folder`; its data is kept once by content in `arrays` and linked from there."""
    (folder / "signature.json").write_text(json.dumps(traced.signature.to_json(), indent=1))
    (folder / "step.mlir").write_text(traced.step)
    if traced.lines:
        (folder / "lines.mlir").write_text(traced.lines)
    if traced.predict is not None:
        (folder / "predict.mlir").write_text(traced.predict)
    for seed, leaves in traced.initial.items():
        named: dict[str, Any] = {f"s{i}": bits(leaf) for i, leaf in enumerate(leaves)}
        np.savez(folder / f"init_{seed}.npz", **named)
    for split, leaves in traced.splits.items():
        for index, leaf in enumerate(leaves):
            stored = _store(leaf, arrays)
            (folder / f"{split}_{index}.npy").symlink_to(os.path.relpath(stored, folder))
    (folder / "data.json").write_text(json.dumps({"folder": "."}))
    (folder / "notes.json").write_text(json.dumps(traced.notes))
    return PreparedWorkload.load(folder)


def check_splits(splits: Mapping[str, Arrays], where: str, eval_batch: int, batch: int) -> dict[str, Arrays]:
    """The splits as contiguous arrays of our dtypes, after checking names, row counts and row shapes."""

    def fail(what: str, todo: str) -> WorkloadError:
        return WorkloadError(what, where, todo)

    if set(splits) != set(SPLITS):
        raise fail(f"data() gave the splits {sorted(splits)}", f"Return exactly {', '.join(SPLITS)}")
    checked = {n: tuple(as_leaf(a, f"data {n}[{i}]", where) for i, a in enumerate(splits[n])) for n in SPLITS}
    form = [(a.shape[1:], a.dtype) for a in checked["train"]]
    for name, leaves in checked.items():
        rows = sorted({len(a) if a.ndim else 0 for a in leaves})
        if len(rows) != 1:
            raise fail(f"the arrays of split {name!r} differ in rows: {rows}", "Give each array one row an example")
        if [(a.shape[1:], a.dtype) for a in leaves] != form:
            raise fail(f"rows of split {name!r} differ from train's in shape or dtype", "Make them alike")
        alike = name == "train" or eval_batch == batch
        least, what = (batch, "batch_size") if alike else (eval_batch, "eval_batch")
        if rows[0] < least:
            raise fail(f"split {name!r} has {rows[0]} rows, fewer than {what}={least}", f"Lower {what}")
    return checked


def as_leaf(value: Any, what: str, where: str) -> np.ndarray[Any, Any]:
    """`value` as a dense NumPy array of the type it has, one of `ELEMENTS`, in the byte order of this machine."""
    array = np.asarray(value)
    if array.dtype.name not in ELEMENTS:
        raise WorkloadError(f"{what} has dtype {array.dtype}", where, f"Cast it to one of {', '.join(ELEMENTS)}")
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(native).reshape(array.shape)


def spec(name: str, array: np.ndarray[Any, Any], rows: int | None = None) -> ArraySpec:
    """The `ArraySpec` of `array`, or of `rows` of its rows."""
    shape = array.shape if rows is None else (rows, *array.shape[1:])
    return ArraySpec(name, tuple(shape), array.dtype.name)


def batch_names(count: int) -> tuple[str, ...]:
    return ("x", "y", *(f"batch{i}" for i in range(2, count)))[:count]


def seeds(quality_seeds: tuple[int, ...]) -> list[int]:
    """Those of a search, and the first others."""
    others = (seed for seed in itertools.count() if seed not in quality_seeds)
    return sorted({*quality_seeds, *itertools.islice(others, FRESH_SEEDS)})


def _store(array: np.ndarray[Any, Any], arrays: Path) -> Path:
    """The file in `arrays` that holds these rows, flat: (rows, elements of a row)."""
    flat = bits(array.reshape(len(array), -1) if array.ndim > 1 else array)
    digest = hashlib.sha256(f"{flat.dtype} {flat.shape}".encode() + flat.tobytes()).hexdigest()[:32]
    path = arrays / f"{digest}.npy"
    if not path.is_file():
        with temporary_folder(arrays) as work:
            np.save(work / "array.npy", flat)
            (work / "array.npy").replace(path)
    return path

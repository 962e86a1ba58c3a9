"""Trained states in the cache: what `gevo train` keeps and the `init` of a prediction asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workloads.cache import cache_folder, temporary_folder
from workloads.dtypes import bits, from_bits
from workloads.errors import Kind, WorkloadError
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload


def trained(spec: str, cache: Path | None = None) -> dict[str, Any]:
    """The state that `gevo train SPEC` kept, as nested dicts by the names of its leaves: `trained(...)["params"]["w"]`.

    spec: as on the command line; f"{__file__}:training" names a training in the same file. Raises WorkloadError where
    the training is not known, and where nothing was kept of it as it is now: its step, first state or data are others.
    """
    prepared = prepare(spec, cache)
    path = trained_file(prepared, cache)
    if not path.is_file():
        raise WorkloadError("it is not trained on this machine", spec, f"Run: gevo train {spec}", Kind.DATA)
    with np.load(path) as leaves:
        state = enumerate(prepared.signature.state)
        return nested({leaf.name: from_bits(leaves[f"s{i}"], leaf.dtype) for i, leaf in state})


def trained_file(prepared: PreparedWorkload, cache: Path | None = None) -> Path:
    """Where a training's state is kept: named by what it is made from, which seed and number of steps are not."""
    made_from = hashlib.sha256(prepared.step_text.encode())
    for leaf in prepared.initial_state(0):
        made_from.update(leaf.tobytes())
    for file in sorted(prepared.folder.glob("train_*.npy")):
        made_from.update(file.resolve().name.encode())  # of what it holds, see `frontends.base.save`
    name = f"{prepared.signature.name}-{made_from.hexdigest()[:16]}.npz"
    return (cache or cache_folder()) / "trained" / name


def keep(state: Sequence[np.ndarray[Any, Any]], path: Path) -> None:
    """Write the leaves s0, s1, ... of a state, whole or not at all; equal states give equal bytes."""
    named: dict[str, Any] = {f"s{i}": bits(leaf) for i, leaf in enumerate(state)}
    with temporary_folder(path.parent) as work:
        np.savez(work / path.name, **named)
        (work / path.name).replace(path)


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts of leaves whose names are paths: {"a.b": 1} -> {"a": {"b": 1}}."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *folders, last = name.split(".")
        inside = tree
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[last] = leaf
    return tree

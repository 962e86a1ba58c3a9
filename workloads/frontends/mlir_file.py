"""A step that is MLIR already: `file.mlir` with `@step` (and `@predict`), and `file.json` that says what it is.

The JSON file is a `Signature` with two entries more, both relative to its own folder:
"data": "file.py:function" or "module:function" that returns the splits, or a folder of <split>.npz
with the arrays x, y, ...; "initial": a folder of init_<seed>.npz with the leaves s0, s1, ... An array of another type
than the signature's is converted, with a word, where no integer changes; bfloat16 may stand as its 16 bits.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from workloads.dtypes import ELEMENTS, dtype_named, from_bits, is_float
from workloads.errors import WorkloadError
from workloads.frontends.base import Traced, batch_names, check_splits
from workloads.frontends.user_code import load_module, user_code
from workloads.workload import SPLITS, Arrays, ArraySpec, Signature

Array = np.ndarray[Any, Any]


def trace_file(name: str, path: Path) -> Traced:
    """The workload in `path`, after checking its functions and arrays against the signature file beside it."""
    beside = path.with_suffix(".json")
    described = _read_json(beside)
    try:
        signature = Signature.from_json({**described, "name": name, "frontend": "mlir"})
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadError(
            f"not a signature: {error}", str(beside), "It needs state, batch, metrics, predict_inputs and quality"
        ) from error
    _check_types(signature, str(beside))
    text = path.read_text()
    state, metrics = [*signature.state], [*signature.metrics]
    predict = None
    if signature.is_prediction:
        _check_prediction(signature, str(beside))
        _check_function(text, path, "predict", [*state, *signature.batch], metrics)
    else:
        _check_function(text, path, "step", [*state, *signature.batch], [*state, *metrics])
    if signature.predict_inputs:
        _check_function(text, path, "predict", [*state, *signature.predict_inputs], None)
        predict = text
    elif signature.quality.kind == "accuracy" and not signature.is_prediction:
        raise WorkloadError("accuracy needs predict_inputs", str(beside), 'Add them, or use "kind": "loss"')
    batch_rows = signature.batch[0].shape[0]
    rows = signature.predict_inputs[0].shape[0] if signature.predict_inputs else 1
    rows = batch_rows if signature.is_prediction else rows
    notes: dict[str, None] = {}
    splits = check_splits(_data(described, beside), str(beside), rows, batch_rows)
    specs = (*signature.batch, *signature.labels)
    for split, arrays in splits.items():
        pairs = zip(specs, arrays, strict=True)
        splits[split] = tuple(_as_described(a, s, f"data {s.name}", str(beside), notes) for s, a in pairs)
        for spec, array in zip(specs, arrays, strict=True):
            if spec.shape[1:] != array.shape[1:]:
                raise WorkloadError(
                    f"data {spec.name} has rows {array.dtype}{list(array.shape[1:])}", str(beside), f"Expected {spec}"
                )
    initial = _initial(described, beside, signature, notes)
    return Traced(signature, text, predict, initial, splits, notes=tuple(notes))


def _check_types(signature: Signature, where: str) -> None:
    for spec in (*signature.state, *signature.batch, *signature.metrics, *signature.predict_inputs, *signature.labels):
        if spec.dtype not in ELEMENTS:
            raise WorkloadError(f"{spec.name} has dtype {spec.dtype!r}", where, f"Known are {', '.join(ELEMENTS)}")


def _as_described(array: Array, spec: ArraySpec, what: str, where: str, notes: dict[str, None]) -> Array:
    """`array` in the type of `spec`. Another float type is rounded and another integer type kept, each with a note; an
    integer that would change, and anything else, is a WorkloadError."""
    wanted, array = dtype_named(spec.dtype), from_bits(array, spec.dtype)
    if array.dtype == wanted:
        return array
    both = array.dtype.kind + wanted.kind
    fits = set(both) <= set("iu") and np.array_equal(array.astype(wanted).astype(array.dtype), array)
    if not fits and not (is_float(array.dtype) and is_float(wanted)):
        raise WorkloadError(f"{what} is {array.dtype}, the signature says {wanted}", where, "Make one like the other")
    notes[f"{what} is {array.dtype}; kept as {wanted}, as the signature says"] = None
    return array.astype(wanted)


def _check_prediction(signature: Signature, where: str) -> None:
    """Raises unless the scores of a prediction can be counted right or wrong."""
    if signature.quality.kind != "accuracy":
        raise WorkloadError("a prediction has no loss of its own", where, 'Use "kind": "accuracy"')
    if len(signature.labels) != 1 or len(signature.metrics) != 1 or signature.predict_inputs:
        raise WorkloadError(
            "a prediction has one entry in labels and one in metrics, its scores, and no predict_inputs",
            where,
            "Write them so; batch has what @predict is given beside the state",
        )
    scores, rows = signature.metrics[0].shape, signature.batch[0].shape[0]
    if len(scores) != 2 or scores[0] != rows:
        raise WorkloadError(f"the scores have shape {list(scores)}", where, f"Give one row of scores each: [{rows}, n]")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise WorkloadError("the signature file is missing", str(path), "Write it beside the .mlir file")
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise WorkloadError(f"not JSON: {error}", str(path), "Mend it there") from error


def _check_function(text: str, path: Path, name: str, inputs: list[ArraySpec], results: list[ArraySpec] | None) -> None:
    """Raises unless `@name` takes exactly `inputs` and, if given, returns `results`."""
    head = re.search(rf"func\.func\s+(?:public\s+)?@{name}\s*\((.*?)\)\s*->\s*(\([^)]*\)|tensor<[^>]*>)", text, re.S)
    if head is None:
        raise WorkloadError(f"no public function @{name} with results", str(path), f"Define func.func @{name}(...)")
    for what, specs, part in (("arguments", inputs, head.group(1)), ("results", results, head.group(2))):
        given = re.findall(r"tensor<([^>]*)>", part)
        expected = [_type(spec) for spec in specs] if specs is not None else given
        if given != expected:
            raise WorkloadError(
                f"@{name} has {what} {given}", str(path), f"The signature asks for {expected}; make one like the other"
            )


def _type(spec: ArraySpec) -> str:
    return "x".join([*map(str, spec.shape), ELEMENTS[spec.dtype]])


def _data(described: dict[str, Any], beside: Path) -> dict[str, Arrays]:
    given = str(described.get("data", ""))
    if not given:
        raise WorkloadError('"data" is missing', str(beside), 'Name "file.py:function" or a folder of .npz files')
    file, _, function = given.rpartition(":")
    if not function or not file:
        names = batch_names(len(described["batch"]) + len(described.get("labels", ())))
        return {split: _npz(beside.parent / given / f"{split}.npz", names) for split in SPLITS}
    source = beside.parent / file if file.endswith(".py") else beside
    with user_code(source, f"calling {given}"):
        module = load_module(source) if file.endswith(".py") else importlib.import_module(file)
        return getattr(module, function)()


def _initial(
    described: dict[str, Any], beside: Path, signature: Signature, notes: dict[str, None]
) -> dict[int, Arrays]:
    folder = beside.parent / str(described.get("initial", "."))
    names = tuple(f"s{i}" for i in range(len(signature.state)))
    found = {int(p.stem.removeprefix("init_")): _npz(p, names) for p in sorted(folder.glob("init_*.npz"))}
    lacking = [seed for seed in signature.quality.seeds if seed not in found]
    if lacking:
        raise WorkloadError(f"no initial state for seeds {lacking}", str(folder), "Save init_<seed>.npz with s0, ...")
    for seed, leaves in found.items():
        pairs = list(zip(signature.state, leaves, strict=True))
        for spec, leaf in pairs:
            if spec.shape != leaf.shape:
                raise WorkloadError(
                    f"init_{seed}: {spec.name} is {leaf.dtype}{list(leaf.shape)}", str(folder), f"Expected {spec}"
                )
        found[seed] = tuple(
            _as_described(leaf, spec, f"state leaf {spec.name}", str(folder), notes) for spec, leaf in pairs
        )
    return found


def _npz(path: Path, names: tuple[str, ...]) -> Arrays:
    try:
        with np.load(path) as arrays:
            found = (arrays[name] for name in names)
            return tuple(from_bits(a, "bfloat16") if a.dtype.str[1:] == "V2" else a for a in found)
    except (OSError, KeyError, ValueError) as error:
        raise WorkloadError(str(error), str(path), f"Expected a file with the arrays {', '.join(names)}") from error

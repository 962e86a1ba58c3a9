"""The JAX frontend: traces `step` and `predict`, and lowers them to linalg on tensors as MLIR text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax.lax import linalg

from workloads.dtypes import dtype_named, is_float
from workloads.errors import WorkloadError
from workloads.frontends.base import Traced, as_leaf, batch_names, check_splits, seeds, spec
from workloads.frontends.stablehlo import NO_METRICS, Lowered, legalise
from workloads.frontends.user_code import user_code
from workloads.frontends.x64 import kept, read_as, store_wide
from workloads.workload import Arrays, ArraySpec, Signature, Workload, checked_storage

RANDOM = re.compile(r"\b(threefry2x32|random_\w+)\b")  # primitives of the random generator, in a printed jaxpr


@dataclass(frozen=True)
class Tree:
    """Leaves of a tree in JAX's order with their names, and the structure to put them back in."""

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    structure: Any

    @staticmethod
    def of(tree: Any, root: str) -> Tree:
        with_paths, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = (jax.tree_util.keystr(path, simple=True, separator=".") or root for path, _ in with_paths)
        return Tree(tuple(names), tuple(leaf for _, leaf in with_paths), structure)


def trace(name: str, workload: Workload, path: Path) -> Traced:
    """The traced workload: its functions over flat leaves, initial states by seed, and the data."""
    where = str(path)
    notes: list[str] = []
    if workload.step is None:
        _check_prediction(workload, where)
    initial = {seed: _state(workload, path, seed, notes) for seed in seeds(workload.quality.seeds)}
    first = initial[min(initial)]
    with user_code(path, "calling data()"):
        given = workload.data()
    scored_rows = workload.batch_size if workload.step is None else workload.eval_batch
    splits = check_splits(given, where, scored_rows, workload.batch_size)
    data_names = batch_names(len(splits["train"]))
    arguments = 1 if workload.step is None else len(data_names)  # the labels of a prediction are none
    for split, arrays in splits.items():
        read = (kept(a, f"data {n}", notes) for n, a in zip(data_names[:arguments], arrays, strict=False))
        splits[split] = (*read, *arrays[arguments:])
    data = tuple(spec(n, a, workload.batch_size) for n, a in zip(data_names, splits["train"], strict=True))
    made = Signature(
        name=name,
        frontend="jax",
        state=tuple(map(spec, first.names, first.leaves)),
        batch=data,
        metrics=(),
        quality=workload.quality,
        storage=_storage(workload, where),
    )
    leaves = {seed: tree.leaves for seed, tree in initial.items()}
    if workload.step is None:
        predict, scores = _predict(workload, path, first, splits, workload.batch_size)
        made = replace(
            made, task="prediction", batch=data[:1], labels=data[1:], metrics=(_metric("scores", scores, where),)
        )
        return Traced(made, predict.text, None, leaves, splits, predict.lines, tuple(notes))
    step, metrics = _step(workload, path, first, data)
    made, score = replace(made, metrics=metrics), None
    if workload.predict is not None or workload.quality.kind != "loss":
        predict, _ = _predict(workload, path, first, splits, workload.eval_batch)
        inputs = (spec(data_names[0], splits["train"][0], workload.eval_batch),)
        made, score = replace(made, predict_inputs=inputs), predict.text
    return Traced(made, step.text, score, leaves, splits, step.lines, tuple(notes))


def _check_prediction(workload: Workload, where: str) -> None:
    """Raises unless a workload without a step is a prediction whose scores can be counted right or wrong."""
    if workload.predict is None:
        raise WorkloadError(
            "the workload has neither step nor predict", where, "Give step= to tune a training, predict= a prediction"
        )
    if workload.quality.kind == "loss":
        raise WorkloadError(
            "a prediction has no loss of its own", where, "Use Quality(kind='accuracy'), or give step= for a training"
        )


def _storage(workload: Workload, where: str) -> tuple[str, ...]:
    try:
        return checked_storage(workload.storage)
    except ValueError as error:
        raise WorkloadError(str(error), where, 'Write Workload(..., storage=("f32", "f16"))') from error


def _state(workload: Workload, path: Path, seed: int, notes: list[str]) -> Tree:
    with user_code(path, f"calling init({seed})"):
        state = workload.init(seed)
    tree = Tree.of(state, "state")
    for name, leaf in zip(tree.names, tree.leaves, strict=True):
        if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise WorkloadError(
                f"state leaf {name} is a typed random key, which is no array",
                str(path),
                "Keep jax.random.key_data(key) in the state, and wrap_key_data it in the step",
            )
    named = list(zip((f"state leaf {n}" for n in tree.names), tree.leaves, strict=True))
    with user_code(path, f"reading the arrays of init({seed})"):
        arrays = [(what, np.asarray(leaf if _is_numpy(leaf) else jax.numpy.asarray(leaf))) for what, leaf in named]
    leaves = tuple(kept(as_leaf(array, what, str(path)), what, notes) for what, array in arrays)
    return Tree(tree.names, leaves, tree.structure)


def _is_numpy(leaf: Any) -> bool:
    """Whether a leaf has a type of its own already; a Python number gets the one that JAX gives it."""
    return isinstance(leaf, np.ndarray | np.generic)


def _step(
    workload: Workload, path: Path, first: Tree, batch: Sequence[ArraySpec]
) -> tuple[Lowered, tuple[ArraySpec, ...]]:
    """`@step`, and its metrics, after checking that the state keeps its leaves, shapes and dtypes."""
    unflatten, step, count = first.structure.unflatten, workload.step, len(first.leaves)
    assert step is not None
    state = [spec(n, leaf) for n, leaf in zip(first.names, first.leaves, strict=True)]
    arguments = [*state, *batch]
    with user_code(path, "tracing step"):
        result = jax.eval_shape(lambda *a: step(unflatten(a[:count]), a[count:]), *map(_read, arguments))
    if not isinstance(result, tuple) or len(result) != 2:
        raise WorkloadError(
            f"step returned a {type(result).__name__}", str(path), "Return two things: (state, metrics)"
        )
    new, metrics = Tree.of(result[0], "state"), Tree.of(result[1], "metric")
    _check_same_state(first, new, str(path))

    def flat(*leaves: Any) -> tuple[Any, ...]:
        state_and_metrics = step(unflatten(leaves[:count]), leaves[count:])
        return tuple(jax.tree.leaves(state_and_metrics))

    specs = tuple(_metric(n, leaf, str(path)) for n, leaf in zip(metrics.names, metrics.leaves, strict=True))
    first_metric = metrics.leaves[0] if metrics.leaves else None
    if workload.quality.kind == "loss" and (
        first_metric is None or first_metric.shape or not is_float(first_metric.dtype)
    ):
        raise WorkloadError(
            "the first metric is no floating-point scalar, and Quality(kind='loss') is its mean",
            str(path),
            "Return the loss as the first metric in the order of its names",
        )
    names = {len(state) + k: metric.name for k, metric in enumerate(specs)}
    return lower(flat, arguments, "step", path, state, names), specs


def _read(argument: ArraySpec) -> jax.ShapeDtypeStruct:
    """An argument as JAX traces it."""
    return jax.ShapeDtypeStruct(argument.shape, read_as(dtype_named(argument.dtype)))


def _check_same_state(old: Tree, new: Tree, where: str) -> None:
    if old.structure != new.structure:
        lost, added = set(old.names) - set(new.names), set(new.names) - set(old.names)
        names = f"lost {sorted(lost)}, added {sorted(added)}"
        differ = names if lost or added else f"{old.structure} -> {new.structure}"
        raise WorkloadError(f"step changes the tree of the state ({differ})", where, "Return the same tree as init")
    for name, before, after in zip(old.names, old.leaves, new.leaves, strict=True):
        if (before.shape, read_as(before.dtype)) != (after.shape, after.dtype):
            raise WorkloadError(
                f"step changes state leaf {name} from {read_as(before.dtype)}{list(before.shape)} "
                f"to {after.dtype}{list(after.shape)}",
                where,
                "Return it with the shape and dtype that init gave",
            )


def _metric(name: str, leaf: Any, where: str) -> ArraySpec:
    return spec(name, as_leaf(np.empty(leaf.shape, leaf.dtype), f"metric {name}", where))


def _predict(workload: Workload, path: Path, first: Tree, splits: dict[str, Arrays], rows: int) -> tuple[Lowered, Any]:
    """`@predict` for a batch of `rows`, and the form of its scores."""
    if workload.quality.kind not in ("accuracy", "loss"):
        raise WorkloadError(
            f"unknown quality kind {workload.quality.kind!r}", str(path), "Use Quality(kind='accuracy') or 'loss'"
        )
    if workload.predict is None:
        raise WorkloadError("accuracy needs predict", str(path), "Give predict=..., or Quality(kind='loss')")
    predict, x = workload.predict, splits["train"][0]

    def flat(*leaves: Any) -> Any:
        return predict(first.structure.unflatten(leaves[:-1]), leaves[-1])

    arguments = [*map(spec, first.names, first.leaves), spec("x", x, rows)]
    with user_code(path, "tracing predict"):
        scores = jax.eval_shape(flat, *map(_read, arguments))
    shape = getattr(scores, "shape", None)
    if workload.quality.kind == "accuracy" and (shape is None or len(shape) != 2 or shape[0] != rows):
        raise WorkloadError(
            f"predict gave shape {shape} for {rows} rows", str(path), "Return one array of scores, (rows, classes)"
        )
    if workload.step is not None and np.dtype(scores.dtype).kind == "u":  # the IR has no signs to compare them by
        raise WorkloadError(f"predict gave scores of {scores.dtype}", str(path), "Return signed or floating-point ones")
    return lower(flat, arguments, "predict", path), scores


def lower(
    function: Callable[..., Any],
    arguments: Sequence[ArraySpec | jax.ShapeDtypeStruct],
    name: str,
    path: Path,
    results: Sequence[ArraySpec] = (),
    metrics: Mapping[int, str] = NO_METRICS,
) -> Lowered:
    """`function` as the public function `@name`, in linalg on tensors. Its arguments, and its leading results where
    `results` are given, have the types that they are stored in, whatever JAX computes with. metrics: names of results
    that are only told."""
    stored = [dtype_named(str(a.dtype)) for a in arguments]
    read = [jax.ShapeDtypeStruct(a.shape, read_as(dtype)) for a, dtype in zip(arguments, stored, strict=True)]
    with user_code(path, f"tracing {name}"):
        traced = jax.jit(function, keep_unused=True).trace(*read)
    # the TPU rule of the random generator is unrolled; the CPU rule is a loop, which hides ops from the search
    platforms = ("tpu",) if RANDOM.search(str(traced.jaxpr)) else ("cpu",)
    with user_code(path, f"lowering {name}"):
        parameters = mlir.LoweringParameters(override_lowering_rules=_portable_rules())
        lowered = traced.lower(lowering_platforms=platforms, _private_parameters=parameters)
        module = lowered.compiler_ir("stablehlo")
    store_wide(module, stored, [dtype_named(spec.dtype) for spec in results])
    return legalise(module, name, path, metrics)


def _portable_rules() -> Any:
    """JAX's own rules for matrix factors where those for the CPU are calls into LAPACK."""
    primitives = linalg.cholesky_p, linalg.triangular_solve_p, linalg.lu_p
    return tuple((primitive, mlir._lowerings[primitive].rule) for primitive in primitives)  # pyright: ignore

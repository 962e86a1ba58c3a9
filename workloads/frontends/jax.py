"""The JAX frontend: traces `step` and `predict`, and lowers them to linalg on tensors as MLIR text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax.lax import linalg

from workloads.errors import WorkloadError
from workloads.frontends.base import Traced, as_leaf, batch_names, check_splits, seeds, spec
from workloads.frontends.stablehlo import NO_METRICS, Lowered, legalise
from workloads.frontends.user_code import user_code
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
    if workload.step is None:
        _check_prediction(workload, where)
    initial = {seed: _state(workload, path, seed) for seed in seeds(workload.quality.seeds)}
    first = initial[min(initial)]
    with user_code(path, "calling data()"):
        given = workload.data()
    scored_rows = workload.batch_size if workload.step is None else workload.eval_batch
    splits = check_splits(given, where, scored_rows, workload.batch_size)
    leaves = {seed: _leaves(tree, where) for seed, tree in initial.items()}
    state = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in first.leaves]
    data_names = batch_names(len(splits["train"]))
    data = tuple(spec(n, a, workload.batch_size) for n, a in zip(data_names, splits["train"], strict=True))
    made = Signature(
        name=name,
        frontend="jax",
        state=tuple(spec(n, a) for n, a in zip(first.names, leaves[min(leaves)], strict=True)),
        batch=data,
        metrics=(),
        quality=workload.quality,
        storage=_storage(workload, where),
    )
    if workload.step is None:
        predict, scores = _predict(workload, path, first, state, splits, workload.batch_size)
        made = replace(
            made, task="prediction", batch=data[:1], labels=data[1:], metrics=(_metric("scores", scores, where),)
        )
        return Traced(made, predict.text, None, leaves, splits, predict.lines)
    batch = [jax.ShapeDtypeStruct((workload.batch_size, *a.shape[1:]), a.dtype) for a in splits["train"]]
    step, metrics = _step(workload, path, first, state, batch)
    made, score = replace(made, metrics=metrics), None
    if workload.predict is not None or workload.quality.kind != "loss":
        predict, _ = _predict(workload, path, first, state, splits, workload.eval_batch)
        inputs = (spec(data_names[0], splits["train"][0], workload.eval_batch),)
        made, score = replace(made, predict_inputs=inputs), predict.text
    return Traced(made, step.text, score, leaves, splits, step.lines)


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


def _state(workload: Workload, path: Path, seed: int) -> Tree:
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
    with user_code(path, f"reading the arrays of init({seed})"):
        arrays = tuple(np.asarray(jax.numpy.asarray(leaf)) for leaf in tree.leaves)
    return Tree(tree.names, arrays, tree.structure)


def _leaves(tree: Tree, where: str) -> Arrays:
    return tuple(as_leaf(a, f"state leaf {n}", where) for n, a in zip(tree.names, tree.leaves, strict=True))


def _step(
    workload: Workload, path: Path, first: Tree, state: list[Any], batch: list[Any]
) -> tuple[Lowered, tuple[ArraySpec, ...]]:
    """`@step`, and its metrics, after checking that the state keeps its leaves, shapes and dtypes."""
    unflatten, step = first.structure.unflatten, workload.step
    assert step is not None
    with user_code(path, "tracing step"):
        result = jax.eval_shape(lambda *a: step(unflatten(a[: len(state)]), a[len(state) :]), *state, *batch)
    if not isinstance(result, tuple) or len(result) != 2:
        raise WorkloadError(
            f"step returned a {type(result).__name__}", str(path), "Return two things: (state, metrics)"
        )
    new, metrics = Tree.of(result[0], "state"), Tree.of(result[1], "metric")
    _check_same_state(first, new, str(path))

    def flat(*leaves: Any) -> tuple[Any, ...]:
        state_and_metrics = step(unflatten(leaves[: len(state)]), leaves[len(state) :])
        return tuple(jax.tree.leaves(state_and_metrics))

    specs = tuple(_metric(n, leaf, str(path)) for n, leaf in zip(metrics.names, metrics.leaves, strict=True))
    if workload.quality.kind == "loss" and (not specs or specs[0].shape or specs[0].dtype != "float32"):
        raise WorkloadError(
            "the first metric is no float32 scalar, and Quality(kind='loss') is its mean",
            str(path),
            "Return the loss as the first metric in the order of its names",
        )
    names = {len(state) + k: metric.name for k, metric in enumerate(specs)}
    return lower(flat, [*state, *batch], "step", path, names), specs


def _check_same_state(old: Tree, new: Tree, where: str) -> None:
    if old.structure != new.structure:
        lost, added = set(old.names) - set(new.names), set(new.names) - set(old.names)
        names = f"lost {sorted(lost)}, added {sorted(added)}"
        differ = names if lost or added else f"{old.structure} -> {new.structure}"
        raise WorkloadError(f"step changes the tree of the state ({differ})", where, "Return the same tree as init")
    for name, before, after in zip(old.names, old.leaves, new.leaves, strict=True):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise WorkloadError(
                f"step changes state leaf {name} from {before.dtype}{list(before.shape)} "
                f"to {after.dtype}{list(after.shape)}",
                where,
                "Return it with the shape and dtype that init gave",
            )


def _metric(name: str, leaf: Any, where: str) -> ArraySpec:
    return spec(name, as_leaf(np.empty(leaf.shape, leaf.dtype), f"metric {name}", where))


def _predict(
    workload: Workload, path: Path, first: Tree, state: list[Any], splits: dict[str, Arrays], rows: int
) -> tuple[Lowered, Any]:
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

    arguments = [*state, jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype)]
    with user_code(path, "tracing predict"):
        scores = jax.eval_shape(flat, *arguments)
    shape = getattr(scores, "shape", None)
    if workload.quality.kind == "accuracy" and (shape is None or len(shape) != 2 or shape[0] != rows):
        raise WorkloadError(
            f"predict gave shape {shape} for {rows} rows", str(path), "Return one array of scores, (rows, classes)"
        )
    return lower(flat, arguments, "predict", path), scores


def lower(
    function: Callable[..., Any], arguments: list[Any], name: str, path: Path, metrics: Mapping[int, str] = NO_METRICS
) -> Lowered:
    """`function` as the public function `@name`, in linalg on tensors. metrics: names of results that are only told."""
    with user_code(path, f"tracing {name}"):
        traced = jax.jit(function, keep_unused=True).trace(*arguments)
    # the TPU rule of the random generator is unrolled; the CPU rule is a loop, which hides ops from the search
    platforms = ("tpu",) if RANDOM.search(str(traced.jaxpr)) else ("cpu",)
    with user_code(path, f"lowering {name}"):
        parameters = mlir.LoweringParameters(override_lowering_rules=_portable_rules())
        lowered = traced.lower(lowering_platforms=platforms, _private_parameters=parameters)
        module = lowered.compiler_ir("stablehlo")
    return legalise(module, name, path, metrics)


def _portable_rules() -> Any:
    """JAX's own rules for matrix factors where those for the CPU are calls into LAPACK."""
    primitives = linalg.cholesky_p, linalg.triangular_solve_p, linalg.lu_p
    return tuple((primitive, mlir._lowerings[primitive].rule) for primitive in primitives)  # pyright: ignore

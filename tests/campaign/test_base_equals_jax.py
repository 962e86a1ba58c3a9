"""The compiled base step against the user's own functions under JAX, on real data; and the planned peak, measured.

Teacher-forced: before each step our runner is given the state that JAX reached, so that each step's own error
is seen and not the drift of a trajectory. `pytest -s` prints the errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitness.cpu import CpuRunner
from mlir_passes.canonical import write_base
from mlir_passes.edits import Use
from mlir_passes.edits.delete import Delete
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import apply_genome, canonical_text, compile_program
from mlir_passes.program import Program
from mlir_passes.space import Space
from workloads.catalog import resolve
from workloads.errors import WorkloadError
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

STEPS = 100
TYPICAL = 2e-6  # bound of all but 5 of the steps; measured 6e-8 for state, 5e-7 for losses near 2
# Bounds of every step. They are wider where rounding decides: Adam divides by sqrt(v), so that a gradient that is
# noise around zero may move its weight; max pooling sends a gradient to one of two inputs, and in one of these
# steps of lenet two of them are equal within 4e-9 (in float64), which moves one filter by 1.3e-5.
WORST = {"digits": 1e-4, "twofc": 1e-5, "lenet": 1e-4}


@pytest.fixture(scope="module", params=list(WORST))
def prepared(request: pytest.FixtureRequest) -> PreparedWorkload:
    if request.param != "digits":
        from workloads.data import fashion_mnist_folder

        try:
            fashion_mnist_folder()
        except WorkloadError as missing:
            pytest.skip(str(missing))
    return prepare(request.param)


@pytest.fixture(scope="module")
def program(prepared: PreparedWorkload, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The base step, by the way a campaign takes: base.mlir on disk, the identity genome, compiled."""
    folder: Path = tmp_path_factory.mktemp(prepared.signature.name)
    state = prepared.signature.state
    write_base(prepared.step_text, len(state), [leaf.name for leaf in state], folder)
    text = apply_genome((folder / "base.mlir").read_text(), []).text
    return compile_program(text, "step", len(state), len(prepared.signature.batch), ObjectCache(None))


def jax_functions(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The user's step and predict on flat lists of leaves, jitted in this process."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax = pytest.importorskip("jax")
    from workloads.frontends.user_code import load_workload

    source = resolve(name)
    workload = load_workload(source.path, source.object)
    structure = jax.tree.structure(workload.init(0))

    def step(state: list[Any], batch: list[Any]) -> tuple[list[Any], list[Any]]:
        new, metrics = workload.step(structure.unflatten(state), tuple(batch))
        return jax.tree.leaves(new), jax.tree.leaves(metrics)

    def predict(state: list[Any], x: Any) -> Any:
        return workload.predict(structure.unflatten(state), x)

    return jax.jit(step), jax.jit(predict)


def largest(pairs: Any) -> float:
    """The largest absolute difference; NaN if there is one."""
    return float(np.max([np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))) for a, b in pairs]))


def test_each_training_step_equals_jax(prepared: PreparedWorkload, program: Program):
    name = prepared.signature.name
    step, _ = jax_functions(name)
    runner = CpuRunner(program)
    state = [np.asarray(leaf) for leaf in prepared.initial_state(0)]
    errors: list[tuple[float, float]] = []
    moved = np.zeros(len(state))
    for batch in prepared.batches(0, STEPS):
        runner.write_state(state)
        runner.write_batch(batch)
        runner.run()
        new, metrics = ([np.asarray(v) for v in values] for values in step(state, list(batch)))
        pairs = zip(runner.state, new, strict=True), zip(runner.metrics, metrics, strict=True)
        errors.append((largest(pairs[0]), largest(pairs[1])))
        moved = np.maximum(moved, [largest([pair]) for pair in zip(new, state, strict=True)])
        state = new
    states, losses = (sorted(column) for column in zip(*errors, strict=True))
    print(
        f"\n{name}: error of a state leaf at most {states[-1]:.2e}, in all but 5 steps {states[-6]:.2e};"
        f" of the loss {losses[-1]:.2e}; the slowest leaf moves by {moved.min():.2e}"
    )
    assert np.isfinite(errors).all()
    assert max(states[-1], losses[-1]) <= WORST[name]
    assert max(states[-6], losses[-6]) <= TYPICAL
    assert moved.min() > 10 * states[-6]  # a step that did nothing would not pass


def test_step_without_one_update_does_not_equal_jax(tmp_path: Path):
    """The comparison above sees a single missing op."""
    prepared = prepare("digits")
    names = [leaf.name for leaf in prepared.signature.state]
    write_base(prepared.step_text, len(names), names, tmp_path)
    space = Space.load(tmp_path / "space.json")
    weight = next(p for p in space.parameters if p.name == "params.w1")
    edit = Delete(weight.update[-1], (Use(weight.arg),))
    variant = apply_genome((tmp_path / "base.mlir").read_text(), [edit])
    runner = CpuRunner(compile_program(variant.text, "step", len(names), 2, ObjectCache(None)))
    state, (batch,) = prepared.initial_state(0), prepared.batches(0, 1)
    runner.write_state(state)
    runner.write_batch(batch)
    runner.run()
    new, _ = jax_functions("digits")[0](state, list(batch))
    errors = {n: largest([pair]) for n, pair in zip(names, zip(runner.state, new, strict=True), strict=True)}
    assert [n for n, error in errors.items() if error > TYPICAL] == ["params.w1"]


def test_prediction_equals_jax(prepared: PreparedWorkload):
    name = prepared.signature.name
    _, predict = jax_functions(name)
    assert prepared.predict_text is not None
    program = compile_program(
        canonical_text(prepared.predict_text, "predict"), "predict", len(prepared.signature.state), 1, ObjectCache(None)
    )
    runner = CpuRunner(program)
    state = prepared.initial_state(0)
    x = prepared.split("validation")[0][: prepared.signature.predict_inputs[0].shape[0]]
    runner.write_state(state)
    runner.write_batch([x])
    runner.run()
    error = largest(zip(runner.metrics, [predict(state, np.asarray(x))], strict=True))
    print(f"\n{name}: max error of a score {error:.2e}")
    assert error <= 1e-5
    for view, leaf in zip(runner.state, state, strict=True):
        np.testing.assert_array_equal(view, leaf)


def test_planned_peak_is_the_measured_high_water(prepared: PreparedWorkload, program: Program):
    runner = CpuRunner(program, slack=4096)
    (batch,) = prepared.batches(0, 1)
    measured = runner.high_water(prepared.initial_state(0), batch)
    print(f"\n{prepared.signature.name}: peak {program.plan.peak_bytes} bytes")
    assert measured == program.plan.peak_bytes

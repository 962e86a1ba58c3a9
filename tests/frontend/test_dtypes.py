"""Data, batch, state and metrics of any type are kept as they are, counted so, and trained as JAX trains them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import dtype_steps
import jax
import ml_dtypes
import numpy as np
import pytest
from dtype_steps import NAMES

from fitness.cpu import CpuRunner
from fitness.program import load_step, save_program
from fitness.quality import finite
from fitness.typed import typed
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from workloads import PreparedWorkload, Workload, prepare
from workloads.frontends.user_code import load_workload

STEPS = 6
HERE = Path(dtype_steps.__file__).parent


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def x64() -> Iterator[None]:
    """Gives back what a workload's file does to JAX in this process."""
    yield
    jax.config.update("jax_enable_x64", False)


def loaded(prepared: PreparedWorkload) -> CpuRunner:
    signature = prepared.signature
    sizes = len(signature.state), len(signature.batch)
    return CpuRunner(typed(compile_text(prepared.step_text, "step", *sizes, ObjectCache(None)), signature), guard=True)


def differences(prepared: PreparedWorkload, workload: Workload, steps: int = STEPS) -> dict[str, float]:
    """By leaf of state and metrics: the most that a step is off from JAX's of the same state, over its largest."""
    signature, runner, step = prepared.signature, loaded(prepared), jax.jit(workload.step)
    tree = jax.tree.structure(workload.init(0))
    runner.write_state(prepared.initial_state(0))
    worst = dict.fromkeys((s.name for s in (*signature.state, *signature.metrics)), 0.0)
    for batch in prepared.batches(0, steps):
        before = runner.read_state()
        runner.write_batch(batch)
        runner.run()
        made = jax.tree.leaves(step(tree.unflatten(before), tuple(batch)))
        for spec, got, want in zip(
            (*signature.state, *signature.metrics), (*runner.state, *runner.metrics), made, strict=True
        ):
            assert got.dtype.name == spec.dtype and got.shape == want.shape
            one, other = got.astype(np.float64), np.asarray(want).astype(np.float64)
            assert np.isfinite(one).all()
            off = np.abs(one - other).max(initial=0) / max(np.abs(other).max(initial=0), 1e-30)
            worst[spec.name] = max(worst[spec.name], float(off))
    assert runner.high_water(prepared.initial_state(0), batch) == runner.plan.peak_bytes
    return worst


# By name of the training: what one step may be off. XLA keeps more than 16 bits inside of its fusions.
@pytest.mark.parametrize(
    ("name", "most"), [("images", 2e-6), ("mixed", 2**-7), ("brain", 3 * 2**-8), ("half", 3 * 2**-11)]
)
def test_a_training_in_users_types_is_that_of_jax(name, most, cache):
    prepared = prepare(f"{dtype_steps.__file__}:{name}", cache)
    state = {"images": "float32", "mixed": "float32", "brain": "bfloat16", "half": "float16"}[name]
    assert [s.dtype for s in prepared.signature.batch] == ["uint8", "int64"]
    assert [s.dtype for s in prepared.signature.state] == [state, state]
    assert max(differences(prepared, vars(dtype_steps)[name]).values()) <= most


def test_each_type_is_data_batch_state_and_metric(cache):
    prepared = prepare(f"{dtype_steps.__file__}:every", cache)
    signature = prepared.signature
    assert [s.dtype for s in signature.batch] == list(NAMES) and [s.name for s in signature.state] == sorted(NAMES)
    assert all(s.dtype == s.name for s in signature.state)
    metrics = {s.name: s.dtype for s in signature.metrics}
    assert {metrics[n] for n in NAMES} == {*NAMES} - {"int64"} and metrics["int64"] == "int32"
    for split, arrays in dtype_steps.every_data().items():
        for given, kept in zip(arrays, prepared.split(split), strict=True):
            assert given.dtype == kept.dtype and np.array_equal(given, kept)
    assert max(differences(prepared, dtype_steps.every).values()) == 0.0

    plan = loaded(prepared).plan
    for specs, indices in ((signature.state, plan.state), (signature.batch, plan.batch)):
        for spec, index in zip(specs, indices, strict=True):
            assert plan.buffers[index].bytes == 7 * 11 * np.dtype(spec.dtype).itemsize


def test_64_bits_are_computed_in_where_jax_does(cache, x64):
    spec = f"{HERE / 'dtype_steps_x64.py'}:workload"
    prepared, workload = prepare(spec, cache), load_workload(HERE / "dtype_steps_x64.py", "workload")
    assert prepared.notes == []
    assert [s.dtype for s in prepared.signature.state] == ["int64", "uint64", "float64"]
    assert [s.dtype for s in prepared.signature.metrics] == ["float64", "int64"]
    assert max(differences(prepared, workload).values()) <= 1e-14


MODEL = """
    import jax.numpy as jnp, numpy as np
    from workloads import Quality, Workload

    def step(state, batch):
        x, y = batch
        w = state["w"] * 0.5 + x.mean(0)
        return {"n": state["n"] + y.sum(), "w": w}, {"loss": w.sum()}

    def data():
        x, y = np.ones((8, 3)) / 3, np.arange(8) + BEYOND
        return {name: (x, y) for name in ("train", "validation", "test")}

    def init(seed):
        return {"n": np.int64(seed), "w": np.ones(3)}

    workload = Workload(init=init, step=step, data=data, batch_size=4, eval_batch=4, quality=Quality(kind="loss"))
"""


def test_what_jax_reads_in_32_bits_is_said_once(tmp_path, cache, capsys, monkeypatch):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(MODEL).replace("BEYOND", "0"))
    prepared = prepare(f"{path}:workload", cache)
    off = "(jax_enable_x64 is off)"
    assert prepared.notes == [
        f"state leaf n is int64; JAX reads it as int32 {off}",
        f"state leaf w is float64; kept as float32, as JAX reads it {off}",
        f"data x is float64; kept as float32, as JAX reads it {off}",
        f"data y is int64; JAX reads it as int32 {off}",
    ]
    assert capsys.readouterr().err.splitlines() == [f"gevo: {path}: {note}" for note in prepared.notes]
    assert [s.dtype for s in (*prepared.signature.state, *prepared.signature.batch)] == [
        "int64", "float32", "float32", "int64",
    ]  # fmt: skip
    assert prepare(f"{path}:workload", cache) == prepared and capsys.readouterr().err == ""

    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    wide = prepare(f"{path}:workload", cache)
    assert wide.notes == [] and [s.dtype for s in wide.signature.state] == ["int64", "float64"]


def test_integers_beyond_32_bits_wrap_with_a_word_as_in_jax(tmp_path, cache):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(MODEL).replace("BEYOND", "2**33 - 2"))
    prepared = prepare(f"{path}:workload", cache)
    assert any("y is int64" in note and "wrap" in note for note in prepared.notes)
    assert max(differences(prepared, load_workload(path, "workload")).values()) <= 1e-6


def test_an_exported_step_takes_and_gives_the_types_of_its_signature(cache, tmp_path):
    prepared = prepare(f"{dtype_steps.__file__}:every", cache)
    signature = prepared.signature
    program = compile_text(prepared.step_text, "step", len(NAMES), len(NAMES), ObjectCache(None))
    initial = (prepared.folder / "init_0.npz").read_bytes()
    save_program(tmp_path / "out", program, {"signature": signature.to_json()}, {"initial_state.npz": initial})
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["extra"]["signature"]["batch"][5]["dtype"]
    step, batch = load_step(tmp_path / "out"), next(prepared.batches(0, 1))
    state = step.initial_state()
    assert [leaf.dtype.name for leaf in state] == [s.dtype for s in signature.state]
    new, metrics = step(state, batch)
    assert [a.dtype.name for a in new] == [s.dtype for s in signature.state]
    assert [a.dtype.name for a in metrics] == [s.dtype for s in signature.metrics]
    kept = [a.copy() for a in new]
    small = [a.astype(np.int32) if a.dtype == np.int64 else a for a in batch]  # int64 holds every int32
    assert all(np.array_equal(a, b) for a, b in zip(step(state, small)[0], kept, strict=True))
    with pytest.raises(Exception, match=r"expected uint8\[7, 11\], got int16\[7, 11\]"):
        step(state, [a.astype(np.int16) if a.dtype == np.uint8 else a for a in batch])


def test_a_bfloat16_that_is_not_finite_is_found():
    values = np.ones(3, ml_dtypes.bfloat16)
    assert finite([values, np.ones(3, np.int8)])
    for bad in (np.nan, np.inf):
        values[1] = bad
        assert not finite([values])

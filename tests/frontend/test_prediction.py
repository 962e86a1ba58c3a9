"""Predictions as workloads: prepared from JAX and from .mlir, with weights that a training left in the cache."""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
from execution import compiled

from mlir_passes.canonical import write_base
from mlir_passes.space import Space
from workloads import WorkloadError, prepare, trained
from workloads.errors import Kind
from workloads.frontends.base import Traced, frontend, save
from workloads.frontends.mlir_file import trace_file
from workloads.frontends.user_code import load_workload
from workloads.trained import keep, nested, trained_file

MODEL = """
    import jax, jax.numpy as jnp, numpy as np
    from workloads import Quality, Workload, trained

    def init(seed):
        return {"layer": {"w": np.full((3, 2), 1 + seed, np.float32)}, "b": np.arange(2, dtype=np.float32)}

    def scores(p, x):
        return jax.nn.relu(x @ p["layer"]["w"] + p["b"])

    def step(state, batch):
        x, y = batch
        loss = lambda p: jnp.mean((scores(p, x) - jax.nn.one_hot(y, 2)) ** 2)
        value, grads = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda p, g: p - 0.5 * g, state, grads), {"loss": value}

    def data():
        x = np.arange(24, dtype=np.float32).reshape(8, 3)
        return {name: (x, np.arange(8) % 2) for name in ("train", "validation", "test")}

    training = Workload(init=init, step=step, predict=scores, data=data, batch_size=4, eval_batch=8)
    plain = Workload(init=init, predict=scores, data=data, batch_size=4)
    workload = Workload(init=lambda seed: trained(f"{__file__}:training"), predict=scores, data=data, batch_size=4)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(textwrap.dedent(MODEL))
    return tmp_path / "model.py"


def change(model: Path, old: str, new: str) -> None:
    text = model.read_text()
    assert old in text
    model.write_text(text.replace(old, new))


def test_what_is_tuned_is_predict_and_its_weights_are_arguments(model: Path):
    prepared = prepare(f"{model}:plain")
    signature = prepared.signature
    assert (signature.task, signature.entry, signature.predict_inputs) == ("prediction", "predict", ())
    assert [(s.name, s.shape) for s in signature.state] == [("b", (2,)), ("layer.w", (3, 2))]
    assert [(s.name, s.shape, s.dtype) for s in signature.batch] == [("x", (4, 3), "float32")]
    assert [(s.name, s.dtype) for s in signature.labels] == [("y", "int64")]
    assert [(s.name, s.shape) for s in signature.metrics] == [("scores", (4, 2))]
    assert prepared.predict_text is None
    assert [a.shape for a in prepared.split("test")] == [(8, 3), (8,)]
    (x,) = next(iter(prepared.batches(0, 1)))
    b, w = prepared.initial_state(3)
    [scores] = compiled(prepared.step_text, "predict")([b, w, x])
    np.testing.assert_allclose(scores, np.maximum(x @ w + b, 0), rtol=1e-6)


def traced(model: Path, name: str) -> Traced:
    return frontend("jax", str(model))("model", load_workload(model, name), model)


@pytest.mark.parametrize(
    ("old", "new", "what", "todo"),
    [
        ("(init=init, predict=scores", "(init=init", "neither step nor predict", "predict= a prediction"),
        ("batch_size=4)", "batch_size=4, quality=Quality('loss'))", "no loss of its own", "Quality(kind='accuracy')"),
        ("batch_size=4)", "batch_size=9)", "has 8 rows, fewer than batch_size=9", "Lower batch_size"),
        ('p["b"])', 'p["b"]).sum()', "predict gave shape () for 4 rows", "(rows, classes)"),
        ("init=init, predict", "init, predict=scores, **{}) or Workload(init=init, predict", "positional", ""),
    ],
)
def test_what_is_no_prediction_is_refused(model: Path, old: str, new: str, what: str, todo: str):
    line = next(line for line in model.read_text().splitlines() if line.startswith("plain"))
    if old in line:
        change(model, line, line.replace(old, new))
    else:
        change(model, old, new)
    with pytest.raises(WorkloadError) as error:
        traced(model, "plain")
    assert what in error.value.what and todo in error.value.todo


def test_weights_that_nobody_trained_are_named_with_the_command(model: Path):
    with pytest.raises(WorkloadError, match="not trained") as error:
        prepare(f"{model}:workload")
    assert error.value.kind is Kind.DATA and error.value.todo == f"Run: gevo train {model}:training"


def test_prediction_has_the_weights_that_were_kept_last(model: Path):
    training = prepare(f"{model}:training")
    for value in (5.0, 6.0):
        state = [np.full_like(leaf, value) for leaf in training.initial_state(0)]
        keep(state, trained_file(training))
        assert trained(f"{model}:training")["layer"]["w"].tolist() == state[1].tolist()
        prepared = prepare(f"{model}:workload")
        for seed in (0, 5):
            for leaf, kept in zip(prepared.initial_state(seed), state, strict=True):
                np.testing.assert_array_equal(leaf, kept)


def test_training_that_was_changed_is_not_trained(model: Path):
    training = prepare(f"{model}:training")
    keep(training.initial_state(0), trained_file(training))
    prepare(f"{model}:workload")
    change(model, "p - 0.5 * g", "p - 0.25 * g")
    with pytest.raises(WorkloadError, match="not trained"):
        prepare(f"{model}:workload")


def test_state_is_kept_by_what_it_is_made_from(model: Path):
    def file() -> Path:
        folder = Path(tempfile.mkdtemp(dir=model.parent))
        return trained_file(save(traced(model, "training"), folder, model.parent / "arrays"))

    first = file()
    change(model, "return jax.nn.relu", "# a comment\n    return jax.nn.relu")
    assert file() == first
    for old, new in (("p - 0.5 * g", "p - 0.25 * g"), ("1 + seed", "2 + seed"), ("arange(8) % 2", "arange(8) % 3 % 2")):
        change(model, old, new)
        assert file() != first
        change(model, new, old)
    assert file() == first


def test_kept_states_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = [np.arange(6, dtype=np.float32)]
    keep(state, tmp_path / "kept" / "a.npz")
    before = (tmp_path / "kept" / "a.npz").read_bytes()

    def torn(path: Path, **leaves: object) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", torn)
    with pytest.raises(KeyboardInterrupt):
        keep(state, tmp_path / "kept" / "a.npz")
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["a.npz"]
    assert (tmp_path / "kept" / "a.npz").read_bytes() == before


def test_leaves_are_nested_by_their_names():
    assert nested({"a.b": 1, "a.c.d": 2, "e": 3}) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}


def test_ops_have_the_line_of_the_users_file_and_no_folder(model: Path):
    prepared = prepare(f"{model}:training")
    assert not re.search(r"\bloc\(", prepared.step_text) and str(model.parent) not in prepared.lined_text
    lines = model.read_text().splitlines()
    places = dict(re.findall(r'^(#loc\d*) = loc\("(model\.py":\d+):0\)$', prepared.lined_text, re.M))
    found = re.findall(r"(linalg\.\w+|arith\.\w+) .*loc\((#loc\d*)\)$", prepared.lined_text, re.M)
    by_op = {(op, int(places[loc].partition(":")[2])) for op, loc in found if loc in places}
    products = {number for op, number in by_op if op == "linalg.matmul"}
    assert products == {1 + next(i for i, line in enumerate(lines) if "@ p[" in line)}
    updates = 1 + next(i for i, line in enumerate(lines) if "p - 0.5 * g" in line)
    assert updates in {number for _, number in by_op}
    bases: list[str] = []
    for text in (prepared.step_text, prepared.lined_text):
        write_base(text, 2, ["b", "layer.w"], model.parent)
        bases.append((model.parent / "base.mlir").read_text())
    assert bases[0] == bases[1]
    assert f"model.py:{updates}" in {op.where for op in Space.load(model.parent / "space.json").ops}


PREDICT = """
func.func @predict(%w: tensor<3x2xf32>, %x: tensor<4x3xf32>) -> tensor<4x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x2xf32>) -> tensor<4x2xf32>
  %p = linalg.matmul ins(%x, %w : tensor<4x3xf32>, tensor<3x2xf32>) outs(%f : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %p : tensor<4x2xf32>
}
"""
SIGNATURE = {
    "task": "prediction",
    "state": [{"name": "w", "shape": [3, 2], "dtype": "float32"}],
    "batch": [{"name": "x", "shape": [4, 3], "dtype": "float32"}],
    "labels": [{"name": "y", "shape": [4], "dtype": "int32"}],
    "metrics": [{"name": "scores", "shape": [4, 2], "dtype": "float32"}],
    "data": "arrays",
}


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    (tmp_path / "tiny.mlir").write_text(PREDICT)
    (tmp_path / "tiny.json").write_text(json.dumps(SIGNATURE))
    np.savez(tmp_path / "init_0.npz", s0=np.ones((3, 2), np.float32))
    (tmp_path / "arrays").mkdir()
    for split in ("train", "validation", "test"):
        np.savez(tmp_path / "arrays" / f"{split}.npz", x=np.ones((8, 3), np.float32), y=np.zeros(8, np.int32))
    return tmp_path


def test_ready_file_may_be_a_prediction(ready: Path):
    prepared = prepare(str(ready / "tiny.mlir"), ready / "cache")
    assert prepared.signature.is_prediction and prepared.step_text == prepared.lined_text == PREDICT
    assert [a.shape for a in prepared.split("validation")] == [(8, 3), (8,)]
    assert [a.shape for a in next(iter(prepared.batches(0, 1)))] == [(4, 3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "guess"}, "expected training or prediction"),
        ({"quality": {"kind": "loss"}}, "no loss of its own"),
        ({"labels": []}, "one entry in labels"),
        ({"predict_inputs": SIGNATURE["batch"]}, "no predict_inputs"),
        ({"metrics": [{"name": "scores", "shape": [2], "dtype": "float32"}]}, r"Give one row of scores each: \[4, n\]"),
        ({"metrics": [{"name": "scores", "shape": [4, 3], "dtype": "float32"}]}, "@predict has results"),
        ({"task": "training"}, "no public function @step"),
    ],
)
def test_ready_prediction_that_does_not_fit_is_refused(ready: Path, changes: dict[str, object], message: str):
    (ready / "tiny.json").write_text(json.dumps(SIGNATURE | changes))
    with pytest.raises(WorkloadError, match=message):
        trace_file("tiny", ready / "tiny.mlir")


def test_shipped_prediction_does_what_its_training_predicts():
    """Folded batch norms change nothing but rounding; with made-up weights, so that nothing need be trained."""
    from workloads.models import mobilenet_predict as shipped

    state = shipped.init(0)
    rng = np.random.default_rng(5)
    state["running"] = jax.tree.map(lambda a: (0.5 + rng.random(a.shape)).astype(np.float32), state["running"])
    for p in state["params"].values():
        if "shift" in p:
            p["scale"], p["shift"] = (rng.standard_normal(p["shift"].shape).astype(np.float32) for _ in range(2))
    x = rng.random((4, 32, 32, 1), np.float32)
    expected, _ = jax.jit(shipped.trained_network)(state["params"], x, state["running"])
    scores = jax.jit(shipped.predict)(shipped.folded(state["params"], state["running"]), x)
    np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=2e-4 * float(np.abs(expected).max()))


def test_a_training_step_drops_residual_branches_by_their_depth():
    from workloads.models import mobilenet_predict as shipped

    key = shipped.init(3)["key"]
    steps = [shipped.branches_kept(key, np.float32(t), 500) for t in range(4)]
    for block in shipped.RESIDUAL:
        keep = 1 - shipped.DROPPED * (block + 1) / len(shipped.BLOCKS)
        factors = np.concatenate([np.asarray(kept[block]) for kept in steps])
        assert set(np.unique(factors)) == {np.float32(0), np.float32(1 / keep)}
        assert abs(np.mean(factors > 0) - keep) < 0.05  # over four deviations of 2,000 draws
        assert not np.array_equal(steps[0][block], steps[1][block])
    assert shipped.RESIDUAL == (0, 2, 3, 5, 6, 8, 9)

"""A prediction goes through the cascade without a training: its own scores are judged, its weights are only read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_workload import CLASSES, EVAL_ROWS, FEATURES, PREDICT, STEP, Silent, toy_prediction, toy_workload

import gevo
from fitness.bench import SLACK, Bench, load_bench
from fitness.check import IGNORES_BATCH
from fitness.cpu import CpuRunner
from fitness.errors import FitnessError
from fitness.evaluate import evaluate
from fitness.job import Context, Job
from fitness.lessons import read_lessons
from fitness.program import save_program
from fitness.quality import quality
from fitness.result import Failure, Outcome, Result
from mlir_passes.canonical import write_base
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import parse_base
from mlir_passes.space import Space
from workloads.workload import PreparedWorkload, Signature


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy_prediction(tmp_path)
    return tmp_path


def bench(folder: Path) -> Bench:
    return load_bench(Context(str(folder), str(folder / "base.mlir"), str(folder / "cache")))


def evaluated(folder: Path, *edits: dict[str, Any]) -> Result:
    result = evaluate(bench(folder), Job(0, {"edits": list(edits)}), Silent())
    assert result
    return result


def numpy_error(prepared: PreparedWorkload, split: str) -> float:
    x, y = prepared.split(split)
    (w,) = prepared.initial_state(0)
    return float(np.mean((x.astype(np.float64) @ w).argmax(1) != y.argmax(1)))


def site(folder: Path, name: str) -> str:
    return next(op.site for op in Space.load(folder / "space.json").ops if op.name == name)


def test_error_is_that_of_the_scores_over_every_row_of_the_split(tmp_path: Path):
    rng = np.random.default_rng(3)
    prepared = toy_prediction(tmp_path, rng.standard_normal((FEATURES, CLASSES)))
    result = evaluated(tmp_path)
    assert result.ok and set(result.objectives) == {"runtime_s", "peak_bytes", "energy_j", "error"}
    assert result.objectives["error"].method == "accuracy:validation"
    assert 0.1 < result.objectives["error"].value == pytest.approx(numpy_error(prepared, "validation"), abs=1e-12)
    b = bench(tmp_path)
    measure = quality(b.base, b.judge, read_lessons(prepared, "test"))
    assert not isinstance(measure, Failure) and measure.method == "accuracy:test"
    assert measure.value == pytest.approx(numpy_error(prepared, "test"), abs=1e-12)
    assert measure.value != result.objectives["error"].value


def test_weights_are_arguments_that_edits_may_touch_and_no_results(folder: Path):
    space = Space.load(folder / "space.json")
    assert space.types["arg0"].shape == (FEATURES, CLASSES) and space.parameters == ()
    assert len(space.returns) == 1 and space.types[space.returns[0]].shape == (EVAL_ROWS, CLASSES)


def test_weights_stay_what_they_were_and_lie_in_the_arena_that_is_planned(folder: Path):
    b = bench(folder)
    variant = b.variant({"edits": []}, lambda _: None)
    runner = CpuRunner(b.compile(variant, ObjectCache(None), lambda _: None), SLACK)
    assert runner.high_water(b.state, b.batches[0]) == runner.plan.peak_bytes
    assert runner.plan.peak_bytes >= 4 * (FEATURES * CLASSES + EVAL_ROWS * FEATURES + EVAL_ROWS * CLASSES)
    runner.write_state(b.state)
    for batch in b.batches:
        runner.write_batch(batch)
        runner.run()
        np.testing.assert_array_equal(runner.state[0], b.state[0])
        np.testing.assert_allclose(runner.metrics[0], batch[0] @ b.state[0], atol=1e-6)


def test_variant_that_does_not_read_its_batch_is_wrong(folder: Path):
    edit = {"kind": "rewire", "site": site(folder, "linalg.matmul"), "slot": 0, "use": {"value": "arg0", "how": "pad"}}
    result = evaluated(folder, edit)
    assert (result.outcome, result.stage, result.detail) == (Outcome.WRONG, "check", IGNORES_BATCH)


def test_training_that_does_not_read_its_batch_is_wrong(tmp_path: Path):
    toy_workload(tmp_path)
    space = Space.load(tmp_path / "space.json")
    reads = [(op.site, slot) for op in space.ops for slot in op.slots if op.operands[slot] in ("arg1", "arg2")]
    edits = [{"kind": "rewire", "site": s, "slot": n, "use": {"value": "arg0", "how": "pad"}} for s, n in reads]
    result = evaluated(tmp_path, *edits)
    assert (result.outcome, result.detail) == (Outcome.WRONG, IGNORES_BATCH)
    assert evaluated(tmp_path, *edits[:1]).detail != IGNORES_BATCH


def test_prediction_whose_scores_are_alike_for_all_rows_is_valid_with_the_error_of_chance(tmp_path: Path):
    weights = np.zeros((FEATURES, CLASSES))
    weights[0] = 1e-6  # every class has the same score: the first one is told for all rows
    prepared = toy_prediction(tmp_path, weights)
    result = evaluated(tmp_path)
    _, y = prepared.split("validation")
    assert result.ok and result.objectives["error"].value == pytest.approx(np.mean(y.argmax(1) != 0))


def test_scores_that_are_not_finite_end_as_diverged(tmp_path: Path):
    toy_prediction(tmp_path, np.full((FEATURES, CLASSES), np.nan))
    result = evaluated(tmp_path)
    assert result.outcome is Outcome.DIVERGED and not result.objectives


def exported(folder: Path, to: Path, initial: bool = True) -> Any:
    b = bench(folder)
    program = b.compile(b.variant({"edits": []}, lambda _: None), ObjectCache(None), lambda _: None)
    files = {"initial_state.npz": (folder / "init_0.npz").read_bytes()} if initial else {}
    save_program(to, program, {"signature": b.lessons.prepared.signature.to_json()}, files)
    return gevo.load(to)


def test_exported_prediction_takes_any_number_of_rows(folder: Path):
    predict = exported(folder, folder / "export")
    x = np.random.default_rng(1).standard_normal((2 * EVAL_ROWS + 3, FEATURES)).astype(np.float32)
    (w,) = predict.initial_state()
    for rows in (x, x[:1], x[:EVAL_ROWS], x[:0]):
        assert predict(rows).shape == (len(rows), CLASSES)
        np.testing.assert_allclose(predict(rows), rows @ w, atol=1e-6)
        np.testing.assert_array_equal(predict([rows]), predict({"x": rows}))
    predict.use([-w])
    np.testing.assert_allclose(predict(x), -x @ w, atol=1e-6)


def test_exported_prediction_says_what_it_wants(folder: Path):
    predict = exported(folder, folder / "export")
    for given, named in (
        (np.zeros((3, FEATURES + 1), np.float32), r"x: expected float32\[rows, 4\], got float32\[3, 5\]"),
        (np.zeros((3, FEATURES)), r"got float64\[3, 4\]"),
        ({"z": np.zeros((3, FEATURES), np.float32)}, "expected 1 arrays, got 0"),
        (np.float32(1), r"got float32\[\]"),
    ):
        with pytest.raises(FitnessError, match=named):
            predict(given)
    with pytest.raises(FitnessError, match=r"state w: expected float32\[4, 3\]"):
        predict.use([np.zeros((3, 4), np.float32)])
    with pytest.raises(FitnessError, match="saved without weights"):
        exported(folder, folder / "bare", initial=False)(np.zeros((3, FEATURES), np.float32))


def test_signature_of_a_prediction_survives_json_and_an_old_one_is_a_training(folder: Path):
    signature = PreparedWorkload.load(folder).signature
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature
    assert signature.entry == "predict" and signature.is_prediction
    old = {k: v for k, v in replace(signature, labels=()).to_json().items() if k not in ("task", "labels")}
    assert Signature.from_json(old).task == "training" and Signature.from_json(old).entry == "step"
    with pytest.raises(ValueError, match="expected training or prediction"):
        Signature.from_json({**old, "task": "guess"})


def test_base_of_a_prediction_has_its_function_alone(tmp_path: Path):
    both = STEP.replace("RATE", "0.1") + PREDICT
    write_base(both, 1, ["w"], tmp_path, entry="predict")
    text = (tmp_path / "base.mlir").read_text()
    assert "@predict" in text and "@step" not in text
    assert parse_base(text)

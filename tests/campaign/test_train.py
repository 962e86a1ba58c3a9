"""`gevo train`: what is learned is what NumPy learns, kept whole or not at all, and the same each time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from toy_workload import PREDICT, RATE, STEP, toy_prediction, toy_workload

from gevo import cli, train
from gevo.errors import BaseFails, CampaignError
from gevo.train import Course, keep_trained, steps_of
from gevo.tune import Bench
from workloads.trained import trained, trained_file

STEPS = 30


def bench(folder: Path, rate: float = RATE) -> Bench:
    prepared = toy_workload(folder, rate=rate)
    return Bench("toy", prepared, (folder / "base.mlir").read_text())


def silent(done: int, loss: float) -> None:
    pass


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path / "cache"))


def test_state_and_errors_are_those_of_numpy(tmp_path: Path):
    toy = bench(tmp_path / "toy")
    seen: list[tuple[int, float]] = []
    learned = train.train(toy, Course(STEPS, seed=1, threads=1), lambda done, loss: seen.append((done, loss)))
    (start,) = toy.prepared.initial_state(1)
    w, losses = start.astype(np.float64), list[float]()
    for x, y in toy.prepared.batches(1, STEPS):
        losses.append(float(np.sum((x @ w - y) ** 2)))
        w -= RATE * (x.T @ (x @ w - y))
    np.testing.assert_allclose(learned.state[0], w, atol=1e-5)
    assert [done for done, _ in seen] == list(range(1, STEPS + 1))
    np.testing.assert_allclose([loss for _, loss in seen], losses, rtol=1e-4)
    for split, error in learned.error.items():
        x, y = toy.prepared.split(split)
        assert error == pytest.approx(np.mean((x @ w).argmax(1) != y.argmax(1)), abs=1e-12), split
    assert set(learned.error) == {"validation", "test"}


def test_same_seed_is_kept_as_the_same_bytes_with_any_number_of_threads(tmp_path: Path):
    toy = bench(tmp_path / "toy")

    def kept(seed: int, threads: int) -> bytes:
        return keep_trained(toy, train.train(toy, Course(STEPS, seed, threads), silent)).read_bytes()

    first = kept(0, 1)
    assert kept(0, 1) == first == kept(0, 2)
    assert kept(1, 1) != first
    assert len(list((tmp_path / "cache" / "trained").iterdir())) == 1


def test_interrupted_training_keeps_nothing_and_takes_nothing_away(tmp_path: Path):
    toy = bench(tmp_path / "toy")
    path = keep_trained(toy, train.train(toy, Course(STEPS, 0, 1), silent))
    before = path.read_bytes()

    def stop(done: int, loss: float) -> None:
        if done == STEPS // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_trained(toy, train.train(toy, Course(STEPS, 1, 1), stop))
    assert [p.name for p in path.parent.iterdir()] == [path.name] and path.read_bytes() == before


def test_training_that_diverges_says_by_which_step(tmp_path: Path):
    with pytest.raises(BaseFails, match="not finite by step 20"):
        train.train(bench(tmp_path / "toy", rate=30.0), Course(STEPS, 0, 1), silent)


def test_steps_are_those_asked_for_or_of_so_many_epochs_or_the_workloads_own(tmp_path: Path):
    toy = bench(tmp_path / "toy")
    rows, batch = len(toy.prepared.split("train")[0]), toy.prepared.signature.batch[0].shape[0]
    assert (rows, batch) == (100, 8)
    assert (steps_of(toy, 0, 0), steps_of(toy, 7, 0), steps_of(toy, 0, 3)) == (30, 7, 36)
    with pytest.raises(CampaignError, match="both --steps and --epochs"):
        steps_of(toy, 7, 3)


def test_seed_without_an_initial_state_is_refused_with_those_there_are(tmp_path: Path):
    with pytest.raises(CampaignError, match="no initial state for seed 9") as error:
        train.train(bench(tmp_path / "toy"), Course(STEPS, 9, 1), silent)
    assert "0, 1" in error.value.todo


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command line in a folder with the toy as ready .mlir files, a training and its prediction."""

    def write(name: str, text: str, folder: Path) -> None:
        (tmp_path / f"{name}.mlir").write_text(text)
        described = json.loads((folder / "signature.json").read_text()) | {"data": "arrays", "initial": "."}
        (tmp_path / f"{name}.json").write_text(json.dumps(described))

    toy = toy_workload(tmp_path / "toy", seeds=(0,))
    write("toy", STEP.replace("RATE", f"{RATE:e}") + PREDICT, toy.folder)
    write("guess", PREDICT, toy_prediction(tmp_path / "guess").folder)
    (tmp_path / "arrays").mkdir()
    for split in ("train", "validation", "test"):
        x, y = toy.split(split)
        np.savez(tmp_path / "arrays" / f"{split}.npz", x=x, y=y)
    np.savez(tmp_path / "init_0.npz", s0=toy.initial_state(0)[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        assert (end.value.code or 0) == code, err
        return out + err

    return run


def test_command_trains_and_a_prediction_finds_the_state(ready: Callable[..., str], tmp_path: Path):
    out = ready("train", "toy.mlir", "--steps", "20")
    assert "Trained 20 steps from seed 0" in out and "error: validation 0." in out and "test 0." in out
    (w,) = trained("toy.mlir").values()
    from workloads import prepare

    assert trained_file(prepare("toy.mlir")).is_file()
    (start,) = prepare("toy.mlir").initial_state(0)
    assert not np.array_equal(w, start)


def test_command_refuses_a_prediction(ready: Callable[..., str]):
    assert "a prediction has nothing to train" in ready("train", "guess.mlir", code=2)
    assert "unknown workload" in ready("train", "nonsense", code=3)


def test_command_shows_the_kernels_of_a_prediction(ready: Callable[..., str]):
    found = json.loads(ready("kernels", "guess.mlir", "--json"))
    assert [v["name"] for v in found["values"] if v["role"] in ("state", "batch")] == ["w", "x"]
    assert [v["name"] for v in found["values"] if v["role"] == "metric"] == ["scores"]


def test_prediction_is_searched_shown_exported_and_loaded(ready: Callable[..., str], tmp_path: Path):
    import gevo

    ready("search", "guess.mlir", "--evaluations", "12", "--population", "8", "--name", "g", "--no-confirm")
    assert "error" in ready("front", "g")
    assert "accuracy:validation" in ready("show", "g", "base", "--rerun")
    assert "predict = gevo.load" in ready("export", "g", "base", "--to", "out")
    with np.load(tmp_path / "arrays" / "test.npz") as test, np.load(tmp_path / "init_0.npz") as start:
        np.testing.assert_allclose(gevo.load("out")(test["x"]), test["x"] @ start["s0"], atol=1e-5)

"""The program folder and the step that is loaded from it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fitness_toys import pull

from fitness import program as folders
from fitness.errors import FitnessError
from fitness.program import load_manifest, load_program, load_step, save_program
from workloads.workload import ArraySpec, Signature

VECTOR = ("float32", (8,))
SIGNATURE = Signature(
    name="pull",
    frontend="none",
    state=(ArraySpec("w", (8,), "float32"),),
    batch=(ArraySpec("x", (8,), "float32"),),
    metrics=(ArraySpec("loss", (), "float32"),),
)
EXTRA = {"signature": SIGNATURE.to_json(), "objectives": {"peak_bytes": {"value": 224, "method": "plan"}}}
X = np.arange(8, dtype=np.float32)
W = np.full(8, 2.0, np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    initial = io.BytesIO()
    np.savez(initial, s0=W)
    save_program(tmp_path / "out", pull(), EXTRA, {"step.mlir": b"module {}", "initial_state.npz": initial.getvalue()})
    return tmp_path / "out"


def test_saved_program_is_read_back_equal(folder: Path):
    assert load_program(folder) == pull()
    manifest = load_manifest(folder)
    assert manifest["extra"] == json.loads(json.dumps(EXTRA))
    assert manifest["peak_bytes"] == 224
    assert "numpy" in manifest["versions"]
    assert set(manifest["files"]) == {str(p.relative_to(folder)) for p in folder.rglob("*.*")} - {"manifest.json"}
    assert (folder / "step.mlir").read_text() == "module {}"
    assert [p.name for p in folder.parent.iterdir()] == ["out"]


def test_saving_again_replaces_and_a_strange_folder_is_refused(folder: Path, tmp_path: Path):
    save_program(folder, pull(rate="1.000000e+00"), EXTRA)
    assert load_program(folder) == pull(rate="1.000000e+00")
    assert not (folder / "step.mlir").exists()
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.txt").write_text("mine")
    with pytest.raises(FitnessError, match="not empty"):
        save_program(strange, pull(), EXTRA)
    assert (strange / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["plan.json", "kernels/k1.mlir", "objects/k2.o"])
def test_changed_or_missing_file_is_refused(folder: Path, name: str):
    path = folder / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(FitnessError, match=f"{name} is not the file that was exported"):
        load_program(folder)
    path.unlink()
    with pytest.raises(FitnessError, match=f"{name} is missing"):
        load_program(folder)


def test_empty_folder_torn_manifest_and_other_format_are_named(folder: Path, tmp_path: Path):
    with pytest.raises(FitnessError, match="no program here"):
        load_step(tmp_path)
    manifest = folder / "manifest.json"
    data = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**data, "format": 99}))
    with pytest.raises(FitnessError, match="format 99, this version reads up to 2"):
        load_step(folder)
    manifest.write_text(manifest.read_text()[:50])
    with pytest.raises(FitnessError, match="damaged"):
        load_step(folder)


def test_step_trains_and_copies_nothing_when_its_own_state_comes_back(folder: Path):
    step = load_step(folder)
    state, metrics = step([W], [X])
    assert metrics[0] == pytest.approx(float(np.sum((W - X) ** 2)))
    again, _ = step(state, (X,))
    assert again[0] is state[0]
    np.testing.assert_array_equal(again[0], W + np.float32(0.75) * (X - W))
    assert W[0] == 2.0


def test_dict_state_gives_dict_back_and_batch_views_are_used_in_place(folder: Path):
    step = load_step(folder)
    step.batch_views[0][...] = X
    state, _ = step({"w": W}, step.batch_views)
    assert list(state) == ["w"]
    np.testing.assert_array_equal(state["w"], W + np.float32(0.5) * (X - W))


def test_state_given_as_reversed_view_of_the_arena_is_set_aside_first(folder: Path):
    step = load_step(folder)
    state, _ = step([X], [X])
    state, _ = step([state[0][::-1]], [X])
    np.testing.assert_array_equal(state[0], X[::-1] + np.float32(0.5) * (X - X[::-1]))


@pytest.mark.parametrize(
    ("state", "batch", "message"),
    [
        ([W, W], [X], "state: expected 1 arrays, got 2"),
        ([W.astype(np.float64)], [X], r"state w: expected float32\[8\], got float64\[8\]"),
        ([W], [X[:4]], r"batch x: expected float32\[8\], got float32\[4\]"),
        ({"v": W}, [X], "state: names do not match at 'w'"),
        ({"w": W, "v": W}, [X], "state: names do not match at 'v'"),
    ],
)
def test_wrong_arguments_are_named(folder: Path, state: object, batch: object, message: str):
    with pytest.raises(FitnessError, match=message):
        load_step(folder)(state, batch)  # type: ignore[arg-type]


def test_signature_that_does_not_fit_the_plan_is_refused(tmp_path: Path):
    signature = replace(SIGNATURE, state=())
    save_program(tmp_path / "out", pull(), {"signature": signature.to_json()})
    with pytest.raises(FitnessError, match="the signature has 0 state leaves, the plan 1"):
        load_step(tmp_path / "out")
    save_program(tmp_path / "out", pull(), {})
    with pytest.raises(FitnessError, match="no signature"):
        load_step(tmp_path / "out")


def test_another_machines_objects_are_recompiled_with_a_notice(tmp_path: Path, monkeypatch, capsys):
    class Pipeline:
        @staticmethod
        def recompile(program: object) -> object:
            assert program == replace(pull(), cpu="another")
            return pull()

    save_program(tmp_path / "out", replace(pull(), cpu="another"), EXTRA)
    monkeypatch.setitem(sys.modules, "mlir_passes.pipeline", Pipeline)
    state, _ = load_step(tmp_path / "out")([W], [X])
    assert "another CPU" in capsys.readouterr().err
    np.testing.assert_array_equal(state[0], W + np.float32(0.5) * (X - W))


def test_another_machines_objects_are_refused_without_mlir(tmp_path: Path, monkeypatch):
    save_program(tmp_path / "out", replace(pull(), cpu="another"), EXTRA)
    monkeypatch.setattr(folders, "find_spec", lambda name: None)
    with pytest.raises(FitnessError, match=r"compiled for another CPU.*Install"):
        load_step(tmp_path / "out")


def test_loading_imports_neither_the_search_nor_mlir(folder: Path):
    code = (
        "import sys; from fitness.program import load_step; import numpy as np\n"
        f"load_step({str(folder)!r})([np.zeros(8, np.float32)], [np.ones(8, np.float32)])\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('gevo', 'mlir', 'jax', 'torch')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_step_starts_from_the_saved_initial_state(folder: Path, tmp_path: Path):
    step = load_step(folder)
    (first,) = step.initial_state()
    np.testing.assert_array_equal(first, W)
    first[:] = 0
    np.testing.assert_array_equal(step.initial_state()[0], W)
    save_program(tmp_path / "bare", pull(), EXTRA)
    with pytest.raises(FitnessError, match="without an initial state"):
        load_step(tmp_path / "bare").initial_state()

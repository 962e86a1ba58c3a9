"""The whole of gevo on a small ready .mlir step, as a user runs it: nothing is made up but the data."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gevo as package
from gevo.store import Run
from workloads.data import SYSTEM_FOLDER

ROOT = Path(package.__file__).parent.parent

# Least squares by gradient descent: w -= 0.1 * x^T (x w - y), with the loss before the update.
STEP = """
func.func @step(%w: tensor<6x3xf32>, %x: tensor<8x6xf32>, %y: tensor<8x3xf32>) -> (tensor<6x3xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %tenth = arith.constant 0.1 : f32
  %e83 = tensor.empty() : tensor<8x3xf32>
  %e68 = tensor.empty() : tensor<6x8xf32>
  %e63 = tensor.empty() : tensor<6x3xf32>
  %e = tensor.empty() : tensor<f32>
  %z83 = linalg.fill ins(%zero : f32) outs(%e83 : tensor<8x3xf32>) -> tensor<8x3xf32>
  %z63 = linalg.fill ins(%zero : f32) outs(%e63 : tensor<6x3xf32>) -> tensor<6x3xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %rate = linalg.fill ins(%tenth : f32) outs(%e63 : tensor<6x3xf32>) -> tensor<6x3xf32>
  %p = linalg.matmul ins(%x, %w : tensor<8x6xf32>, tensor<6x3xf32>) outs(%z83 : tensor<8x3xf32>) -> tensor<8x3xf32>
  %r = linalg.sub ins(%p, %y : tensor<8x3xf32>, tensor<8x3xf32>) outs(%e83 : tensor<8x3xf32>) -> tensor<8x3xf32>
  %xt = linalg.transpose ins(%x : tensor<8x6xf32>) outs(%e68 : tensor<6x8xf32>) permutation = [1, 0]
  %g = linalg.matmul ins(%xt, %r : tensor<6x8xf32>, tensor<8x3xf32>) outs(%z63 : tensor<6x3xf32>) -> tensor<6x3xf32>
  %s = linalg.mul ins(%g, %rate : tensor<6x3xf32>, tensor<6x3xf32>) outs(%e63 : tensor<6x3xf32>) -> tensor<6x3xf32>
  %new = linalg.sub ins(%w, %s : tensor<6x3xf32>, tensor<6x3xf32>) outs(%e63 : tensor<6x3xf32>) -> tensor<6x3xf32>
  %sq = linalg.mul ins(%r, %r : tensor<8x3xf32>, tensor<8x3xf32>) outs(%e83 : tensor<8x3xf32>) -> tensor<8x3xf32>
  %loss = linalg.reduce ins(%sq : tensor<8x3xf32>) outs(%z : tensor<f32>) dimensions = [0, 1]
    (%a: f32, %b: f32) { %c = arith.addf %a, %b : f32 linalg.yield %c : f32 }
  return %new, %loss : tensor<6x3xf32>, tensor<f32>
}
"""
SIGNATURE = {
    "state": [{"name": "w", "shape": [6, 3], "dtype": "float32"}],
    "batch": [{"name": "x", "shape": [8, 6], "dtype": "float32"}, {"name": "y", "shape": [8, 3], "dtype": "float32"}],
    "metrics": [{"name": "loss", "shape": [], "dtype": "float32"}],
    "quality": {"kind": "loss", "steps": 40, "seeds": [0]},
    "data": "arrays",
}
EXACT = ["--objectives", "peak_bytes,energy_j,error", "--population", "12", "--evaluations", "30", "--seed", "5"]
SAME = ("id", "generation", "genome", "parents", "outcome", "fingerprint", "peak_bytes", "energy_j", "error")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("least-squares")
    (where / "squares.mlir").write_text(STEP)
    (where / "squares.json").write_text(json.dumps(SIGNATURE))
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(6, 3))
    (where / "arrays").mkdir()
    for split in ("train", "validation", "test"):
        x = rng.normal(size=(64, 6)).astype(np.float32) / 4
        np.savez(where / "arrays" / f"{split}.npz", x=x, y=(x @ truth).astype(np.float32))
    np.savez(where / "init_0.npz", s0=np.zeros((6, 3), np.float32))
    return where


def gevo(folder: Path, *arguments: str, cache: str = "cache") -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GEVO_CACHE": str(folder / cache), "COLUMNS": "160"}
    command = [sys.executable, "-m", "gevo", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, out, err


def done(folder: Path, *arguments: str) -> str:
    code, out, err = finished(gevo(folder, *arguments))
    assert code == 0, err
    return out


def essence(run: Path) -> list[dict[str, object]]:
    return [{name: row[name] for name in SAME} for row in (r.to_row() for r in Run(run).records())]


@pytest.fixture(scope="module")
def one(folder: Path) -> Path:
    """A search with one worker, to the end."""
    done(folder, "search", "squares.mlir", *EXACT, "--name", "one", "--workers", "1")
    return folder / "runs" / "one"


def test_search_finds_something_better_than_the_base(folder: Path, one: Path) -> None:
    assert len(Run(one).records()) == 30
    data = json.loads(done(folder, "front", "one", "--json"))
    assert len(data["records"]) > 1
    assert any(m["ratio"] and m["ratio"] < 1 for r in data["records"] for m in r["objectives"].values())


def test_kernels_are_told_timed_and_drawn(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    told = json.loads(done(folder, "kernels", "squares.mlir", "--json", "--time", "--plot", "squares.svg"))
    assert any(row["kind"] == "contraction" for row in told["rows"])
    assert told["step_s"] > 0 and all(row["seconds"] >= 0 for row in told["rows"])
    assert "squares.mlir: one training step" in (folder / "squares.svg").read_text()
    text = done(folder, "kernels", "squares.mlir")
    assert "-> loss" in text and "w in place" in text and "measured" not in text


def test_two_workers_give_the_front_of_one(folder: Path, one: Path) -> None:
    done(folder, "search", "squares.mlir", *EXACT, "--name", "two", "--workers", "2")
    assert essence(folder / "runs" / "two") == essence(one)
    fronts = [json.loads(done(folder, "front", name, "--json"))["records"] for name in ("one", "two")]
    assert fronts[0] == fronts[1]


def test_killed_search_resumes_to_the_same_archive_and_leaves_no_process(folder: Path, one: Path) -> None:
    process = gevo(folder, "search", "squares.mlir", *EXACT, "--name", "killed", "--workers", "2")
    killed = folder / "runs" / "killed"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (killed / "manifest.json").is_file() and len(Run(killed).records()) >= 14:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 14 <= len(Run(killed).records()) < 30
    done(folder, "resume", "killed", "--workers", "1")
    assert essence(killed) == essence(one)


def test_export_trains_as_numpy_does(folder: Path, one: Path) -> None:
    done(folder, "export", "one", "r0001", "--to", "fast")
    step = package.load(folder / "fast")
    rng = np.random.default_rng(3)
    w = np.zeros((6, 3), np.float32)
    state = [w.copy()]
    for _ in range(20):
        x, y = rng.normal(size=(8, 6)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
        state, metrics = step(state, [x, y])
        residual = x @ w - y
        assert np.isclose(metrics[0], (residual**2).sum(), rtol=1e-4)
        w = w - np.float32(0.1) * (x.T @ residual)
        np.testing.assert_allclose(state[0], w, rtol=1e-4, atol=1e-5)


def test_rerun_gives_the_exact_figures_again(folder: Path, one: Path) -> None:
    best = json.loads(done(folder, "front", "one", "--json"))["records"][0]["id"]
    lines = done(folder, "show", "one", best, "--rerun").splitlines()
    rows = [line.split() for line in lines if line.strip().startswith(("peak_bytes", "energy_j"))]
    assert rows and all(row[1:4] == row[-3:] for row in rows), rows


def test_unsupported_op_is_named_with_its_own_code(folder: Path) -> None:
    magic = "  %q = tosa.reciprocal %x : (tensor<8x6xf32>) -> tensor<8x6xf32>\n  %p = linalg.matmul ins(%q,"
    step = STEP.replace("  %p = linalg.matmul ins(%x,", magic)
    (folder / "magic.mlir").write_text(step)
    (folder / "magic.json").write_text(json.dumps(SIGNATURE))
    code, _, err = finished(gevo(folder, "search", "magic.mlir", "--name", "magic"))
    assert code == 4 and len(err.splitlines()) == 1 and "tosa.reciprocal" in err
    assert not (folder / "runs" / "magic").exists()


def test_missing_data_and_unwritable_cache_have_codes_of_their_own(folder: Path) -> None:
    code, _, err = finished(gevo(folder, "search", "squares.mlir", cache="squares.mlir/cache"))
    assert code == 5 and "cannot write the cache" in err
    pytest.importorskip("jax")
    if SYSTEM_FOLDER.exists() or "GEVO_DATA" in os.environ:
        pytest.skip("Fashion-MNIST is installed on this machine")
    code, _, err = finished(gevo(folder, "search", "twofc", cache="empty"))
    assert code == 8 and "make data" in err and len(err.splitlines()) == 1

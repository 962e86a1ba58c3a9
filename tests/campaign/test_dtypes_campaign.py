"""A search over a step with uint8 images and int64 labels, as a user runs it: found, exported, loaded, trained with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dtype_steps
import numpy as np
import pytest

import gevo
from gevo.store import Run

ROOT = Path(gevo.__file__).parent.parent
SPEC = f"{dtype_steps.__file__}:images"


def done(folder: Path, *arguments: str) -> tuple[str, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GEVO_CACHE": str(folder / "cache"), "COLUMNS": "160"}
    command = [sys.executable, "-m", "gevo", *arguments]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dtypes")


def test_search_export_load_train(folder: Path) -> None:
    exact = ("--objectives", "peak_bytes,energy_j,error", "--population", "8", "--evaluations", "16", "--no-confirm")
    _, said = done(folder, "search", SPEC, *exact, "--no-schedule", "--name", "one", "--workers", "1")
    assert said.count("data y is int64; JAX reads it as int32") == 1
    records = Run(folder / "runs" / "one").records()
    assert len(records) == 16 and sum(r.result.ok for r in records) > 4

    done(folder, "export", "one", "r0001", "--to", "base")
    step = gevo.load(folder / "base")
    manifest = json.loads((folder / "base" / "manifest.json").read_text())
    assert [leaf["dtype"] for leaf in manifest["extra"]["signature"]["batch"]] == ["uint8", "int64"]
    assert [view.dtype for view in step.batch_views] == [np.uint8, np.int64]
    x, y = dtype_steps.data()["train"]
    state, losses = step.initial_state(), []
    for _ in range(40):
        state, (loss,) = step(state, (x[: dtype_steps.ROWS], y[: dtype_steps.ROWS]))
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]


def test_its_kernels_are_told_with_their_types(folder: Path) -> None:
    text, _ = done(folder, "kernels", SPEC, "--json", "--time")
    assert '"uint8"' in text and '"int64"' in text

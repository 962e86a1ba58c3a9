"""A real search confirmed: digits, timed again, trained from five seeds, scored on its test split."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gevo as package
from gevo.confirmed import Verdict, load
from gevo.store import Run

pytest.importorskip("jax")
pytest.importorskip("sklearn")
ROOT = Path(package.__file__).parent.parent


def gevo(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GEVO_CACHE": str(folder / "cache"), "COLUMNS": "160"}
    command = [sys.executable, "-m", "gevo", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_digits_is_searched_confirmed_and_exported(tmp_path: Path) -> None:
    search = "search", "digits", "--evaluations", "12", "--seed", "2", "--objectives", "runtime_s,peak_bytes,error"
    gevo(tmp_path, *search, "--name", "d", "--workers", "1", "--no-confirm")
    assert "trained from 5 new seeds" in gevo(tmp_path, "confirm", "d", "--top", "2")
    run, found = Run(tmp_path / "runs" / "d"), load(tmp_path / "runs" / "d")
    assert found is not None and found.split == "test" and found.seeds == (1, 2, 3, 4, 5)
    assert found.rows and len(found.base_errors) == 5
    for row in found.rows.values():
        record = run.record(row.id)
        assert row.verdict in Verdict and not record.is_base
        if row.verdict is not Verdict.FAILED:
            assert len(row.ratios) == 6 and all(0.2 < ratio < 5 for ratio in row.ratios)
            errors = np.array([row.errors, found.base_errors]) * found.rows_scored
            np.testing.assert_allclose(errors, errors.round(), atol=1e-6)  # shares of the test split's rows
    told = json.loads(gevo(tmp_path, "front", "d", "--json"))
    assert not {r["id"] for r in told["records"]} & {row.id for row in found.rows.values() if row.bad}
    best = next(row.id for row in found.rows.values())
    assert "Measured again" in gevo(tmp_path, "show", "d", best)
    gevo(tmp_path, "export", "d", best, "--to", "fast")
    exported = json.loads((tmp_path / "fast" / "manifest.json").read_text())
    assert exported["extra"]["confirmed"]["verdict"] == str(found.rows[best].verdict)

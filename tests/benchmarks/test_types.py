"""Pyright reads the benchmarks and the examples, as `make lint` does: a call of an older signature is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pyright(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_benchmarks_and_examples_have_no_type_errors() -> None:
    pytest.importorskip("pyright")
    if pyright("--version").returncode:
        pytest.skip("pyright does not start here: it fetches its own runtime at its first call")
    done = pyright("benchmarks", "examples")
    assert done.returncode == 0, done.stdout[-3000:]

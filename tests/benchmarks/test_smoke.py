"""Every benchmark goes all its way with `--smoke`: what nobody runs for months else breaks unseen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
COMMANDS = sorted(path.name for path in FOLDER.glob("*.py") if "__main__" in path.read_text())
STARTED_BY = {"iree_flow.py": "vs_iree.py"}  # processes of another benchmark, which its smoke starts
LIMIT_S = 200


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in STARTED_BY])
def test_a_benchmark_goes_all_its_way(name: str, tmp_path: Path) -> None:
    """Columns of libraries that are not installed stay empty; any other failure ends the benchmark."""
    pytest.importorskip("jax")
    pytest.importorskip("sklearn")
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), "--smoke"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    assert done.stdout.strip()


@pytest.mark.parametrize(("child", "parent"), STARTED_BY.items())
def test_a_process_of_a_benchmark_is_started_by_it(child: str, parent: str) -> None:
    assert child in COMMANDS and child in (FOLDER / parent).read_text()


def test_make_bench_names_benchmarks_that_exist() -> None:
    (named,) = re.findall(r"^BENCHMARKS = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\w+\.py", named)) <= set(COMMANDS)

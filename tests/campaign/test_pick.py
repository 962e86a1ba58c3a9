"""A record by what is wanted of it: never one with more error than the base."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import FakePool
from toy import begin, search

from gevo.config import Budget
from gevo.errors import NotFound
from gevo.objectives import figure
from gevo.pick import BEST, pick
from gevo.store import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    begin(tmp_path / "run")
    search(tmp_path / "run", FakePool(), Budget(generations=4))
    return Run(tmp_path / "run")


def test_base_and_ids_are_found(run: Run) -> None:
    assert pick(run, "base").is_base
    assert pick(run, "r0003").id == "r0003"
    with pytest.raises(NotFound, match="no record 'r9999'"):
        pick(run, "r9999")


@pytest.mark.parametrize("word", list(BEST))
def test_best_is_the_least_among_those_as_accurate_as_the_base(run: Run, word: str) -> None:
    base, got = pick(run, "base"), pick(run, word)
    assert got.value("error") <= base.value("error")
    fit = [r for r in run.records() if r.result.ok and r.value("error") <= base.value("error")]
    assert figure(got.result, BEST[word]) == min(figure(r.result, BEST[word]) for r in fit)
    assert len(fit) < len([r for r in run.records() if r.result.ok])


def test_what_was_not_measured_cannot_be_picked(run: Run) -> None:
    run.manifest["config"]["objectives"] = ["peak_bytes", "error"]
    with pytest.raises(NotFound, match="did not measure runtime_s"):
        pick(run, "fastest")

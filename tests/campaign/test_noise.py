"""A campaign in which no edit does more than noise: nothing ranks apart from the base."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import FakePool, fake_result
from toy import begin, search

from fitness.result import Measure, Result
from gevo.config import Budget
from gevo.front import Front, front
from gevo.genome import IDENTITY, Genome
from gevo.objectives import floors
from gevo.pick import pick
from gevo.store import Run

FLOOR = 0.0129  # 1 is near the edge of a cell of a grid of its multiples


def noisy(genome: Genome, faster: float = 0.0, smaller: int = 0) -> Result:
    """The base's figures under a fingerprint of its own; the ratio lies anywhere within the floor."""
    base = fake_result(IDENTITY)
    share = int(hashlib.sha256(genome.key.encode()).hexdigest()[:8], 16) / (1 << 32)
    ratio = 1.0 if genome == IDENTITY else 1.0 - faster + FLOOR * (2 * share - 1) * 0.999
    time = Measure(1e-3 * ratio, "fake clock", 1e-3 * FLOOR)
    size = Measure(base.objectives["peak_bytes"].value - smaller, "plan")
    objectives = {**base.objectives, "runtime_s": time, "peak_bytes": size}
    return replace(base, fingerprint=genome.key, objectives=objectives, runtime_ratio=ratio)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of some hundred programs that are the base but for noise."""
    monkeypatch.setattr(FakePool, "base", property(lambda self: noisy(IDENTITY)))
    begin(tmp_path / "run", population=20)
    search(tmp_path / "run", FakePool(answer=noisy), Budget(generations=8))
    return Run(tmp_path / "run")


def shown(run: Run, *more: Result) -> Front:
    """The front of a run, and of more records, each of one edit less than the last."""
    records = run.records()
    edits = next(r for r in records if r.genome.size == 1).genome.edits
    for number, result in enumerate(more):
        genome = Genome(edits * (len(more) - number + 1))
        records.append(replace(records[1], id=f"more{number}", key=genome.key, text=genome.text, result=result))
    found = front(records, run.manifest["config"]["objectives"], run.manifest["floors"])
    assert found is not None
    return found


def test_of_a_hundred_programs_like_the_base_none_ranks_apart(run: Run) -> None:
    records = run.records()
    assert len(records) > 100 and len({r.result.runtime_ratio for r in records}) > 100
    assert run.manifest["floors"]["runtime_s"] == pytest.approx(FLOOR)
    assert [r.id for r in shown(run).rows] == ["r0001"] and shown(run).base_on_front
    assert {pick(run, word).id for word in ("fastest", "smallest", "cheapest", "most-accurate")} == {"r0001"}


def test_the_search_keeps_none_of_them_for_its_luck(run: Run) -> None:
    state = run.state()
    assert state is not None and state["search"]["archive"] == [IDENTITY.key]


def test_what_is_better_elsewhere_ranks_whatever_the_noise_says(run: Run) -> None:
    smaller = replace(noisy(IDENTITY, smaller=1000), fingerprint="smaller")
    assert [r.id for r in shown(run, smaller).members] == ["more0"]
    assert not shown(run, smaller).base_on_front


def test_what_is_faster_by_more_than_the_floor_ranks_and_of_those_alike_the_shortest_stays(run: Run) -> None:
    lucky = [replace(noisy(IDENTITY), runtime_ratio=0.9 + 0.3 * FLOOR * n, fingerprint=str(n)) for n in range(4)]
    assert [r.id for r in shown(run, *lucky).members] == ["more3"]
    assert floors(run.records()[0].result, ["runtime_s"])["runtime_s"] == pytest.approx(FLOOR)

"""Real evaluations over workers: a toy workload, random genomes, every outcome named, the same with 1 and 2 workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_workload import toy_workload

from fitness.job import Context, Limits
from fitness.pool import Pool, as_base
from fitness.result import Measure, Outcome, Result
from mlir_passes.edits.base import KINDS, edit_class
from mlir_passes.space import Space

COUNT = 40
EVALUATOR = "bad_candidates:real_evaluator"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("toy")
    toy_workload(folder)
    return Context(str(folder), str(folder / "base.mlir"), str(folder / "cache"), limits=Limits(wall_s=30))


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    yield


def random_genomes(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Genomes of one to three edits, drawn like a search does, some of them twice."""
    rng = random.Random(seed)
    base = Space.load(folder / "space.json")
    genomes: list[dict[str, Any]] = []
    while len(genomes) < COUNT:
        if genomes and rng.random() < 0.2:
            genomes.append(rng.choice(genomes))
            continue
        space, edits = base, []
        for _ in range(rng.randint(1, 3)):
            edit = edit_class(rng.choice(list(KINDS))).draw(space, rng)
            if edit and edit.applies(space):
                space, edits = edit.extend(space), [*edits, edit.to_json()]
        genomes.append({"edits": edits, "schedule": []})
    return genomes


def exact(result: Result) -> tuple[Any, ...]:
    """What must not depend on the run: all but times and cache counts."""
    values = tuple(result.objectives[n] for n in ("peak_bytes", "energy_j", "error") if n in result.objectives)
    return result.outcome, result.stage, result.fingerprint, result.answered_by, values


def test_random_genomes_end_in_named_outcomes_the_same_with_one_and_two_workers(context: Context):
    genomes = random_genomes(Path(context.prepared), seed=3)
    with Pool(context, 1) as pool:
        base, one = pool.base, pool.evaluate(genomes)
    with Pool(context, 2, base) as pool:
        two = pool.evaluate(genomes)
    assert [exact(r) for r in one] == [exact(r) for r in two]
    assert any(r.ok for r in one) and any(r.answered_by for r in one)
    assert base.ok and base.runtime_ratio == 1.0
    for result in one + two:
        assert isinstance(result.outcome, Outcome)
        if not result.ok:
            assert result.stage and result.detail and not result.objectives
            continue
        assert set(result.objectives) == set(context.objectives)
        assert all(np.isfinite(m.value) for m in result.objectives.values())
        assert result.answered_by or result.objectives["runtime_s"].value == pytest.approx(
            result.runtime_ratio * base.objectives["runtime_s"].value
        )


def test_a_base_that_was_not_timed_leaves_times_as_they_are(context: Context):
    with Pool(replace(context, objectives=("peak_bytes",)), 1) as pool:
        base = pool.base
    with Pool(replace(context, objectives=("runtime_s",)), 1, base) as pool:
        results = pool.evaluate(random_genomes(Path(context.prepared), seed=3)[:8])
    timed = [r for r in results if "runtime_s" in r.objectives]
    assert timed and all(r.objectives["runtime_s"].value > 0 < r.runtime_ratio for r in timed)


def test_identity_is_answered_by_the_base(context: Context):
    with Pool(context) as pool:
        (result,) = pool.evaluate([{"edits": []}])
        assert result.answered_by == "fingerprint"
        assert result.objectives == pool.base.objectives


def test_worker_with_the_base_loaded_has_no_frontend(context: Context):
    with Pool(context, evaluator=EVALUATOR) as pool:
        (result,) = pool.evaluate([{"do": "modules", "value": 1}])
    modules = set(result.detail.split())
    assert "mlir" in modules
    assert not {"jax", "jaxlib", "torch", "gevo", "deap"} & modules


def test_noise_floor_is_that_of_the_base_timed_again_and_again():
    timed = Result(
        Outcome.OK, objectives={"runtime_s": Measure(1.04e-3, "clock", 1e-5)}, runtime_ratio=1.04, measured_s=1e-3
    )
    base = as_base(timed, [0.98, 1.0, 1.0, 1.0])
    assert base.runtime_ratio == 1.0
    noise = 2 * np.sqrt((0.04**2 + 0.02**2) / 5) * 1e-3
    assert base.objectives["runtime_s"] == Measure(1e-3, "clock", pytest.approx(noise))
    assert as_base(timed, [1.0] * 10**4).objectives["runtime_s"].spread == 1e-5  # never under that of one median

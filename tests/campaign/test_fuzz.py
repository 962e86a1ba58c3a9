"""Random genomes over all shipped workloads: every outcome is named, and a share of them is valid.

2,000 genomes a workload are applied, repaired, verified and hashed; some of them go through the whole evaluation.
`benchmarks/fuzz.py` puts as many as wanted through all of it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fitness.job import Context, Limits
from fitness.pool import Pool
from fitness.result import Outcome, Result
from gevo.variation import random_genome
from mlir_passes.canonical import write_base
from mlir_passes.errors import PassError
from mlir_passes.ir_tools import new_context
from mlir_passes.pipeline import edit_module, parse_base
from mlir_passes.space import Space
from workloads.errors import Kind, WorkloadError
from workloads.prepare import prepare

WORKLOADS = ("digits", "twofc", "lenet")
APPLIED, EVALUATED = 2000, 24
MAX_EDITS = 4


@pytest.fixture(scope="module", params=WORKLOADS)
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp(request.param)
    try:
        prepared = prepare(request.param)
    except WorkloadError as error:
        if error.kind is Kind.DATA:
            pytest.skip(str(error))
        raise
    state = prepared.signature.state
    write_base(prepared.step_text, len(state), [s.name for s in state], folder)
    return Context(
        prepared=str(prepared.folder),
        base=str(folder / "base.mlir"),
        cache=str(folder / "cache"),
        objectives=("peak_bytes", "error"),
        limits=Limits(wall_s=120),
    )


def test_2000_random_genomes_apply_or_are_refused_by_name(context: Context) -> None:
    base = Path(context.base)
    space, text = Space.load(base.with_name("space.json")), base.read_text()
    rng, ir_context = random.Random(1), new_context()
    identity = edit_module(parse_base(text, ir_context), []).fingerprint
    refused, neutral = 0, 0
    for number in range(APPLIED):
        if number % 200 == 0:
            ir_context = new_context()  # a context keeps every attribute it ever saw
        genome = random_genome(space, rng, MAX_EDITS)
        try:
            variant = edit_module(parse_base(text, ir_context), genome.edits)
        except PassError as error:
            assert error.stage in ("edit", "verify", "cleanup") and str(error)
            refused += 1
            continue
        neutral += variant.fingerprint == identity
    print(f"{base.parent.name}: {1 - refused / APPLIED:.1%} of {APPLIED} apply, {neutral / APPLIED:.1%} are neutral")
    assert refused < APPLIED * 0.05


def test_random_genomes_end_with_a_named_outcome(context: Context) -> None:
    space = Space.load(Path(context.base).with_name("space.json"))
    rng = random.Random(2)
    genomes: list[Any] = [json.loads(random_genome(space, rng, MAX_EDITS).text) for _ in range(EVALUATED)]
    with Pool(context, 1) as pool:
        results = pool.evaluate(genomes, {})
        again = pool.evaluate(genomes[:3], {})
    assert len(results) == EVALUATED
    for result in results:
        assert result.outcome in (Outcome.OK, Outcome.REJECTED, Outcome.DIVERGED, Outcome.TIMED_OUT, Outcome.WRONG)
        assert result.ok == bool(result.objectives)
        assert result.ok or (result.stage and result.detail)
    assert [exact(r) for r in again] == [exact(r) for r in results[:3]]
    valid = sum(r.ok for r in results)
    print(f"{Path(context.base).parent.name}: {valid} of {EVALUATED} valid")
    assert valid > EVALUATED // 5


def exact(result: Result) -> tuple[Any, ...]:
    return result.outcome, result.fingerprint, {name: m.value for name, m in result.objectives.items()}

"""Storage as a gene: drawn as the workload's numerics rule permits, in text, evaluation, export and manifests."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import fake_result, make_space
from toy_workload import Silent, toy_workload

from fitness.bench import load_bench
from fitness.evaluate import evaluate
from fitness.job import OBJECTIVES, Context, Job
from fitness.program import load_manifest, load_program
from fitness.result import Outcome
from gevo import cli, commands
from gevo.config import CampaignConfig, SearchConfig
from gevo.errors import CampaignError
from gevo.genome import IDENTITY, Genome
from gevo.ir_child import export
from gevo.launch import permitted
from gevo.search import Search
from gevo.variation import crossover, mutate
from mlir_passes import storage
from workloads.workload import PreparedWorkload, Signature, checked_storage

SPACE = make_space()
ALL = ("f32", "f16", "bf16")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy workload, which permits f16, with every value large enough to be stored so."""
    monkeypatch.setattr(storage, "_LEAST", 2)
    toy_workload(tmp_path / "toy")
    path = tmp_path / "toy" / "signature.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "storage": ["f32", "f16"]}))
    return tmp_path / "toy"


def context(folder: Path) -> Context:
    return Context(str(folder), str(folder / "base.mlir"), str(folder / "cache"))


# data


def test_signatures_and_manifests_from_before_mean_f32(tmp_path: Path):
    signature = toy_workload(tmp_path / "toy").signature.to_json()
    config = CampaignConfig("digits").to_json()
    assert tuple(signature.pop("storage")) == tuple(config.pop("storage")) == ("f32",)
    assert Signature.from_json(signature).storage == CampaignConfig.from_json(config).storage == ("f32",)


def test_a_rule_survives_the_round_trip(folder: Path):
    signature = replace(PreparedWorkload.load(folder).signature, storage=ALL)
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature
    config = CampaignConfig("digits", storage=("f32", "bf16"))
    assert CampaignConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_rule_is_ordered_and_always_permits_f32():
    assert checked_storage(("bf16", "f16", "bf16")) == ALL
    assert checked_storage([]) == ("f32",)
    for wrong in (("f8",), "f16"):
        with pytest.raises(ValueError, match="expected a tuple of f32, f16, bf16"):
            checked_storage(wrong)


# search


def test_mutation_draws_what_is_permitted_and_nothing_else():
    rng, genome, seen = random.Random(1), IDENTITY, Counter[str]()
    for _ in range(600):
        before, genome = genome, mutate(genome, SPACE, rng, 8, ("f32", "bf16"))
        seen[genome.storage] += 1
        assert before.storage == genome.storage or before.edits == genome.edits
    assert set(seen) == {"f32", "bf16"} and min(seen.values()) > 100


def test_without_a_choice_no_draw_is_spent_on_it():
    one, two = random.Random(2), random.Random(2)
    genomes = [IDENTITY, IDENTITY]
    for _ in range(100):
        genomes = [mutate(genomes[0], SPACE, one, 8), mutate(genomes[1], SPACE, two, 8, ("f32",))]
        assert genomes[0] == genomes[1] and genomes[0].storage == "f32"


def test_children_have_the_storage_of_a_parent():
    one, two = replace(IDENTITY, storage="f16"), IDENTITY
    pairs = {tuple(c.storage for c in crossover(one, two, SPACE, random.Random(s))) for s in range(20)}
    assert pairs == {("f16", "f32"), ("f32", "f16")}


def test_the_base_in_each_storage_is_among_the_first():
    search = Search(SPACE, SearchConfig(population=12), OBJECTIVES, {}, 1, ALL)
    asked = search.ask()
    assert [p.genome for p in asked[:3]] == [Genome(storage=s) for s in ALL] and len(asked) == 12
    assert asked[1].parents == (IDENTITY.key,)
    search.tell([(p.genome, fake_result(p.genome)) for p in asked])
    again = Search(SPACE, SearchConfig(population=12), OBJECTIVES, {}, 1, ALL)
    members = {p.genome.key: (p.genome, fake_result(p.genome)) for p in asked}
    again.restore(search.state(), [p.genome.key for p in asked], members)
    assert again.ask() == search.ask()


# command line


def test_the_option_reaches_the_configuration(monkeypatch: pytest.MonkeyPatch):
    seen: list[CampaignConfig] = []
    monkeypatch.setattr(commands, "search", lambda config, folder, console, confirm: seen.append(config) or 0)
    assert cli._exit_code(["search", "digits", "--storage", "f16,f32,f16"]) == 0
    assert cli._exit_code(["search", "digits"]) == 0
    assert [c.storage for c in seen] == [("f16", "f32"), ()]


def test_what_is_asked_for_narrows_the_rule_and_what_it_does_not_permit_is_refused(folder: Path):
    signature = PreparedWorkload.load(folder).signature
    assert permitted((), signature) == permitted(("f16",), signature) == ("f32", "f16")
    assert permitted(("f32",), signature) == ("f32",)
    with pytest.raises(CampaignError, match="numerics rule of toy permits f32, f16 between kernels, not bf16") as error:
        permitted(("bf16",), signature)
    assert 'Workload(..., storage=("f32", "bf16"))' in error.value.todo


# evaluation and export


def test_a_narrow_base_is_another_program_of_fewer_bytes_and_like_error(folder: Path):
    bench = load_bench(context(folder))
    found = {s: evaluate(load_bench(context(folder)), Job(0, Genome(storage=s).to_json()), Silent()) for s in ALL[:2]}
    wide, narrow = found["f32"], found["f16"]
    assert wide is not None and narrow is not None and wide.ok and narrow.ok
    assert wide.fingerprint != narrow.fingerprint
    assert narrow.objectives["peak_bytes"].value < wide.objectives["peak_bytes"].value
    assert abs(narrow.objectives["error"].value - wide.objectives["error"].value) < 0.1
    assert bench.base.plan.peak_bytes == wide.objectives["peak_bytes"].value


def test_a_genome_against_the_rule_is_rejected(folder: Path):
    found = evaluate(load_bench(context(folder)), Job(0, Genome(storage="bf16").to_json()), Silent())
    assert found is not None and found.outcome is Outcome.REJECTED
    assert "the numerics rule of the workload permits f32, f16, not bf16" in found.detail


def test_an_export_keeps_its_storage(folder: Path, tmp_path: Path):
    genome = Genome(storage="f16")
    export(str(folder), str(folder / "base.mlir"), str(folder / "cache"), genome.to_json(),
           {"genome": genome.to_json()}, str(tmp_path / "out"))  # fmt: skip
    assert Genome.from_json(load_manifest(tmp_path / "out")["extra"]["genome"]) == genome
    assert any("xf16" in kernel.text for kernel in load_program(tmp_path / "out").kernels.values())

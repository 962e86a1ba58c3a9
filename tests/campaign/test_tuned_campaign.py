"""A campaign takes the choices that are in the database when it starts, and keeps to them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import fake_result
from toy_workload import Silent, toy_workload

from fitness import tuning
from fitness.bench import load_bench
from fitness.choices import load_choices
from fitness.errors import FitnessError
from fitness.evaluate import evaluate
from fitness.job import Context, Job
from fitness.result import Outcome
from gevo import cli, launch
from gevo.config import CampaignConfig
from gevo.errors import RunDamaged
from gevo.genome import IDENTITY, Genome
from gevo.ir_child import export
from gevo.tune import Bench
from gevo.tuning_store import TuningRow, TuningStore
from gevo.variation import random_genome
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.choice import BLAS, Choice
from mlir_passes.kernels.families import candidates
from mlir_passes.lower_cpu import kernel_hash, kernel_key, machine, read_nest
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import kernel_text
from mlir_passes.program import Kernel
from mlir_passes.space import Space
from workloads.workload import PreparedWorkload


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path / "cache"))
    toy_workload(tmp_path / "run")
    return tmp_path / "run"


def context(folder: Path) -> Context:
    return launch.context_for(CampaignConfig("toy"), PreparedWorkload.load(folder), folder)


def base_kernels(context: Context) -> Mapping[str, Kernel]:
    """The kernels that a bench makes of the base, by key."""
    bench = load_bench(context)
    silence = Silent()
    return bench.compile(bench.variant({"edits": []}, silence.stage), ObjectCache(None), silence.stage).kernels


def other_choice(folder: Path) -> tuple[str, Choice, str]:
    """A kernel of the toy's base that has another schedule: its hash, that choice, and its key with it."""
    for kernel in base_kernels(context(folder)).values():
        text = kernel_text(kernel)
        lists = candidates(read_nest(text, new_context()), machine())
        if any(len(schedules) > 1 for schedules in lists):
            choice = Choice(schedules=tuple(schedules[-1] for schedules in lists))
            return kernel_hash(text), choice, kernel_key(text, choice)
    raise AssertionError("no kernel with a choice")


def row(kernel: str, choice: Choice) -> TuningRow:
    facts = {"family": "contraction", "loops": "1", "default_s": 1e-6, "ratio": 0.9, "spread": 0.0, "note": ""}
    return TuningRow(kernel, choice, **facts, tried=1, failed=0, finished=True, seed=0, workload="toy", created="now")


def test_base_and_variants_are_made_by_the_choices_that_the_run_began_with(folder: Path, tmp_path: Path):
    kernel, choice, key = other_choice(folder)
    store = TuningStore()
    store.put(row(kernel, choice))
    assert launch.freeze_choices(folder) == 1
    store.put(row(kernel, BLAS))  # later, and too late
    assert key in base_kernels(context(folder))
    result = evaluate(load_bench(context(folder)), Job(0, {"edits": []}), Silent())
    assert result is not None and result.outcome is Outcome.OK and result.cache_misses == 0
    found = context(folder)
    export(found.prepared, found.base, found.cache, IDENTITY.to_json(), {}, str(tmp_path / "out"), found.tuning)
    assert key in json.loads((tmp_path / "out" / "manifest.json").read_text())["kernels"]


def test_what_is_tuned_are_the_kernels_that_a_search_runs(folder: Path):
    prepared, text = PreparedWorkload.load(folder), (folder / "base.mlir").read_text()
    space, rng = Space.load(folder / "space.json"), random.Random(5)
    for genome in (IDENTITY, Genome(storage="f16"), random_genome(space, rng, 3)):
        bench, silence = load_bench(context(folder)), Silent()
        rule = replace(bench.lessons.prepared.signature, storage=("f32", "f16"))
        bench = replace(bench, lessons=replace(bench.lessons, prepared=replace(bench.lessons.prepared, signature=rule)))
        variant = bench.variant(genome.to_json(), silence.stage)
        run = bench.compile(variant, ObjectCache(None), silence.stage).kernels
        assert Bench("toy", prepared, text, genome).program({}).kernels.keys() == run.keys()


def test_without_a_database_a_run_has_no_choices(folder: Path):
    assert launch.freeze_choices(folder) == 0
    assert context(folder).tuning == "" and not (folder / launch.TUNING).exists()


@pytest.mark.parametrize("damage", [None, "{}\n"])
def test_a_run_whose_choices_were_changed_is_not_resumed(folder: Path, damage: str | None):
    TuningStore().put(row("abc", BLAS))
    launch.freeze_choices(folder)
    manifest = launch.manifest(CampaignConfig("toy"), context(folder), fake_result(IDENTITY), folder)
    assert launch.reopened(manifest, folder) == context(folder)
    (folder / launch.TUNING).unlink() if damage is None else (folder / launch.TUNING).write_text(damage)
    with pytest.raises(RunDamaged, match=r"tuning\.json is missing or was changed"):
        launch.reopened(manifest, folder)


def test_a_run_from_before_there_were_choices_is_resumed(folder: Path):
    manifest = launch.manifest(CampaignConfig("toy"), context(folder), fake_result(IDENTITY), folder)
    del manifest["tuning_sha256"], manifest["context"]["tuning"]
    TuningStore().put(row("abc", BLAS))
    assert launch.reopened(manifest, folder).tuning == ""


def test_steps_of_more_threads_take_no_choice_that_uses_one(folder: Path):
    TuningStore().put(row("abc", BLAS))
    launch.freeze_choices(folder)
    path = str(folder / launch.TUNING)
    assert load_choices(path) == {"abc": BLAS} and load_choices(path, threads=2) == {}
    (folder / launch.TUNING).write_text('{"abc": {"implementation": "mkl", "schedules": []}}')
    with pytest.raises(FitnessError, match="unknown implementation 'mkl'"):
        load_bench(context(folder))


def gevo(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_tune_fills_the_database_and_goes_on_where_it_stopped(folder: Path, monkeypatch, capsys):
    monkeypatch.setattr("gevo.tune.prepare", lambda workload: PreparedWorkload.load(folder))
    for name, value in {"SHORTEST_S": 0.0, "SMALLEST_SHARE": 0.0, "_PROFILE_S": 0.05, "_LEAST_S": 0.5}.items():
        monkeypatch.setattr(tuning, name, value)
    monkeypatch.setenv("COLUMNS", "160")
    code, out, err = gevo(capsys, "tune", "toy", "--for", "3s")
    assert code == 0 and "Ctrl-C stops it" in out, err
    assert "Whole step: " in out or "No kernel of this step is faster" in out
    rows = TuningStore().rows()
    assert rows and {row.workload for row in rows.values()} == {"toy"}
    for row in rows.values():
        TuningStore().put(replace(row, finished=True))
    code, _, err = gevo(capsys, "tune", "toy", "--for", "2s")
    assert code == 0, err
    again = TuningStore().rows()
    assert {name: replace(row, finished=True) for name, row in rows.items()}.items() <= again.items()


def test_tune_says_what_is_wrong(folder: Path, capsys):
    code, _, err = gevo(capsys, "tune", "toy", "--for", "soon")
    assert code == 2 and "--for: expected a duration" in err
    TuningStore().path.parent.mkdir()
    TuningStore().path.write_bytes(b"nothing")
    code, _, err = gevo(capsys, "tune", "toy")
    assert code == 7 and "tuning.parquet: cannot be read" in err and "Move it away" in err

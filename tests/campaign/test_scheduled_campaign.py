"""Genomes with schedule genes, from a solver's schedules of digits to exported programs that page."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_workload import Silent

from fitness import tuning
from fitness.bench import Bench, load_bench
from fitness.errors import FitnessError
from fitness.evaluate import evaluate
from fitness.job import Context, Job
from fitness.pool import Pool
from fitness.program import load_step
from fitness.result import Outcome, Result
from fitness.step import Step
from gevo import launch
from gevo.config import CampaignConfig
from gevo.errors import RunDamaged
from gevo.explain.ir import explain_ir
from gevo.genome import Genome
from gevo.ir_child import export
from gevo.kernels import StepKernels
from gevo.record import Record
from gevo.schedule_seeds import write_schedules
from gevo.scheduling import FILE, Schedules
from gevo.tune import open_variant
from mlir_passes.edits.delete import Delete
from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.genes import ORDER, from_plain
from mlir_passes.schedule.steps import keep_all, replay
from mlir_passes.space import Space
from workloads.prepare import prepare


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("run")
    launch.lay_out(CampaignConfig("digits"), found)
    return found


@pytest.fixture(scope="module")
def context(folder: Path) -> Context:
    config = CampaignConfig("digits", objectives=("peak_bytes", "error"), schedule=True, page_dir=str(folder))
    made = launch.context_for(config, prepare("digits"), folder)
    return replace(made, slow_ratio=1e6)  # transfers take longer than this step of 50 us, much longer on one busy core


@pytest.fixture(scope="module")
def schedules(folder: Path, context: Context) -> Schedules:
    write_schedules(
        context.prepared, context.base, context.cache, context.tuning, 1, context.profile, True, str(folder),
        str(folder / FILE),
    )  # fmt: skip
    return Schedules.load(folder / FILE)


@pytest.fixture(scope="module")
def bench(context: Context) -> Bench:
    return load_bench(context)


def result_of(bench: Bench, genome: Genome) -> Result:
    fresh = replace(bench, module=load_bench(bench.context).module)  # an evaluation uses it up
    result = evaluate(fresh, Job(0, genome.to_json()), Silent())
    assert result is not None
    return result


def test_schedules_are_ever_smaller_and_fit_the_base(schedules: Schedules) -> None:
    problem = schedules.problem
    peaks = [replay(problem, keep_all(problem)).peak_bytes]
    for genes in schedules.found:
        decoded = decode(problem, genes)
        assert not decoded.dropped
        peaks.append(replay(decoded.problem, decoded.steps).peak_bytes)
    assert len(peaks) > 2 and peaks == sorted(peaks, reverse=True)


def test_a_schedule_changes_memory_and_nothing_else(bench: Bench, schedules: Schedules) -> None:
    base = result_of(bench, Genome())
    smallest = result_of(bench, schedules.genomes()[-1])
    assert smallest.outcome is Outcome.OK and smallest.detail == ""
    assert smallest.objectives["error"] == base.objectives["error"]
    assert smallest.objectives["peak_bytes"].value < 0.8 * base.objectives["peak_bytes"].value
    assert smallest.paged_bytes > 0 and base.paged_bytes == 0
    assert smallest.fingerprint != base.fingerprint


def test_a_gene_of_what_an_edit_removed_is_left_out_and_said(bench: Bench, folder: Path, schedules: Schedules) -> None:
    space, scheduled = Space.load(folder / "space.json"), schedules.genomes()[-1]
    named = {gene[0].partition("#")[0] for gene in scheduled.schedule if "#" in gene[0]}
    drawn = (Delete.draw(space, random.Random(seed)) for seed in range(2000))
    edit = next(e for e in drawn if e is not None and e.site in named and e.applies(space))
    result = result_of(bench, replace(scheduled, edits=(edit,)))
    assert edit.site in result.detail and "left out of its schedule" in result.detail
    assert result.stage != "plan"


def test_an_exported_program_pages_and_trains_the_same(
    folder: Path, context: Context, schedules: Schedules, tmp_path: Path
) -> None:
    states = []
    for name, genome in {"base": Genome(), "paged": schedules.genomes()[-1]}.items():
        to = tmp_path / name
        export(context.prepared, context.base, context.cache, genome.to_json(), {}, str(to))
        step = load_step(to, page_dir=tmp_path)
        assert isinstance(step, Step)
        state = step.initial_state()
        for batch in prepare("digits").batches(0, 5):
            state, _ = step(state, batch)
        states.append(state)
        paged = json.loads((to / "plan.json").read_text())["paged_bytes"]
        assert (paged > 0) == (name == "paged")
    assert all(np.array_equal(a, b) for a, b in zip(*states, strict=True))


def test_schedules_are_frozen_with_the_run(folder: Path, schedules: Schedules, tmp_path: Path) -> None:
    config = CampaignConfig("digits", objectives=("peak_bytes", "error"), schedule=True)
    bench = load_bench(launch.context_for(config, prepare("digits"), folder))
    frozen = launch.manifest(config, bench.context, result_of(bench, Genome()), folder)
    launch.reopened(frozen, folder)
    whole = (folder / FILE).read_text()
    try:
        (folder / FILE).write_text(whole.replace('"paging": true', '"paging": false'))
        with pytest.raises(RunDamaged, match=FILE):
            launch.reopened(frozen, folder)
    finally:
        (folder / FILE).write_text(whole)


def test_kernels_of_a_variant_that_pages_are_tuned_with_everything_kept(
    bench: Bench, context: Context, schedules: Schedules
) -> None:
    genome = schedules.genomes()[-1]
    record = Record("r0002", 0, genome.key, genome.text, (), 0.0, result_of(bench, genome))
    assert record.result.paged_bytes > 0
    run: Any = SimpleNamespace(manifest={"config": {"workload": "digits"}})
    made = open_variant(run, context, record)
    step = made.step(made.program({}))
    assert [len(call.args) for call in step.program.plan.calls] == [len(call.args) for call in bench.base.plan.calls]
    assert tuning.targets(step)  # times its calls one by one


def test_values_keep_their_makers_where_a_variant_pages(context: Context, schedules: Schedules, tmp_path: Path) -> None:
    """Of a line without any call that runs again or earlier, so that calls have their numbers."""
    holds = [tuple(gene for gene in g.schedule if gene[0] != ORDER) for g in schedules.genomes()]
    genome = Genome(schedule=next(genes for genes in holds if genes and all(gene[1] for gene in genes)))
    assert replay(schedules.problem, decode(schedules.problem, from_plain(genome.schedule)).steps).pages_in > 0
    explain_ir(context.prepared, context.base, context.cache, genome.to_json(), str(tmp_path / "ir.json"))
    data = json.loads((tmp_path / "ir.json").read_text())
    flows = []
    for which in ("base_kernels", "variant_kernels"):
        step = StepKernels.from_json(data[which])
        values = [(v.name if v.role == "state" else "", v.role, v.maker) for v in step.values]
        flows.append([(r.kernel, [values[i] for i in r.reads], [values[i] for i in r.writes]) for r in step.rows])
    assert flows[0] == flows[1]


def test_a_page_folder_that_is_gone_is_told_before_a_variant_is_evaluated(context: Context, tmp_path: Path) -> None:
    with pytest.raises(FitnessError, match=r"No such file.*gone.*--page-dir"), Pool(
        replace(context, page_dir=str(tmp_path / "gone")), 1
    ):  # fmt: skip
        pass

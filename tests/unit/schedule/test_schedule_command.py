"""`gevo schedule`: what its options mean, what it prints, and a small step planned, run and saved for real."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fitness.cpu import CpuRunner
from fitness.errors import FitnessError
from fitness.program import load_step
from fitness.timing import Timed
from gevo import schedule_command, schedule_drawn, schedule_sweep
from gevo.cli import main
from gevo.errors import INTERRUPTED, CampaignError, ExtraMissing, Unwritable
from gevo.schedule_command import schedule
from gevo.schedule_fit import scheduled
from gevo.schedule_options import Options, budget_bytes, check, deadline_s, request_of
from gevo.schedule_plot import Drawn
from gevo.schedule_run import Ran, lines, run
from gevo.schedule_setup import Ready, prepare_step
from gevo.schedule_sweep import Sweep
from gevo.schedule_view import ScheduleView, percent
from gevo.scheduled import Scheduled
from mlir_passes.arena import ALIGN
from mlir_passes.program import Program
from mlir_passes.schedule.steps import Kind, keep_all, replay
from workloads.cache import cache_folder


def silent(stage: str) -> None:
    """Tell nobody."""


def console() -> Console:
    return Console(width=150, file=StringIO(), record=True)


def text_of(shown: Console) -> str:
    return re.sub(r"[ \t]+", " ", shown.export_text())


# options


@pytest.mark.parametrize(
    ("text", "bytes_"), [("4MiB", 4 << 20), ("65536", 65536), ("75%", 750), ("12.5 %", 125), ("100%", 1000)]
)
def test_a_budget_is_a_size_or_a_share_of_everything_kept(text: str, bytes_: int) -> None:
    assert budget_bytes(text, 1000) == bytes_


@pytest.mark.parametrize("text", ["", "-5", "x%", "%", "4 boxes", "nan%", "inf%", "-3%"])
def test_what_is_no_budget_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(CampaignError, match=r"--memory-budget: .*(4MiB|more than nothing)"):
        budget_bytes(text, 1000)


@pytest.mark.parametrize("text", ["0", "0%", "0MiB"])
def test_nothing_is_no_budget(text: str) -> None:
    with pytest.raises(CampaignError, match="more than nothing"):
        budget_bytes(text, 1000)


def test_a_deadline_is_a_time_or_a_multiple_of_that_of_everything_kept() -> None:
    assert deadline_s("", 2.0) == math.inf
    assert deadline_s("1.5x", 2.0) == 3.0 and deadline_s("3ms", 2.0) == pytest.approx(0.003)
    with pytest.raises(CampaignError, match=r"--deadline: .*1\.1x"):
        deadline_s("soon", 2.0)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"memory_budget": ""}, CampaignError, "no budget"),
        ({"memory_budget": "0"}, CampaignError, "more than nothing"),
        ({"target": "model:z80"}, CampaignError, r"unknown target 'model:z80'; known: cpu, .*model:m4f"),
        ({"target": "gpu"}, CampaignError, "unknown target"),
        ({"target": "model:tx2"}, FitnessError, "incomplete"),
        ({"target": "model:m4f", "run": 3}, CampaignError, "does not run here"),
        ({"minimise": "money"}, CampaignError, "energy or time"),
        ({"paging": False, "remat": False}, CampaignError, "nothing can be spared"),
        ({"page_dir": Path("/nowhere/at/all")}, Unwritable, "no such folder"),
        ({"curve": True, "run": 3}, CampaignError, "many schedules"),
        ({"plot": Path("a.gif")}, CampaignError, r"\.svg"),
        ({"deadline": "soon"}, CampaignError, "--deadline"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_prepared(
    change: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        check(replace(Options("digits", "75%"), **change))


def test_a_deadline_before_everything_kept_would_end_is_refused() -> None:
    with pytest.raises(CampaignError, match=r"--deadline: 1\.00 s is less than .* 2\.00 s"):
        request_of(Options("digits", "75%", deadline="0.5x"), 1000, 2.0)


def test_a_folder_with_something_in_it_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(Unwritable, match="not empty"):
        check(Options("digits", "75%", to=tmp_path))
    with pytest.raises(Unwritable, match="a file of that name"):
        check(Options("digits", "75%", to=tmp_path / "thesis.txt"))
    with pytest.raises(Unwritable, match="cannot be made: "):
        check(Options("digits", "75%", to=tmp_path / "thesis.txt" / "a" / "b"))


def test_a_missing_solver_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gevo.schedule_options.find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match=r"gevo\[schedule\]|not installed"):
        check(Options("digits", "75%"))


def test_the_command_line_tells_a_bad_budget_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["schedule", "digits", "--memory-budget", "0"])
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    assert said.err.startswith("gevo: --memory-budget: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("options", [["--objectives", "runtime_s,error"], ["--no-schedule"]])
def test_a_search_that_would_never_page_refuses_a_page_folder(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["search", "digits", "--page-dir", str(tmp_path), "--run-dir", str(tmp_path / "runs"), *options])
    assert ended.value.code == 2 and "--page-dir: no variant would page" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "+0 %"), (0.25, "+25.0 %"), (0.0125, "+1.25 %"), (1.7e-5, "+0.0017 %"), (-0.5, "-50.0 %")]
)
def test_small_shares_are_told_from_none(value: float, text: str) -> None:
    assert percent(value) == text


def test_a_full_page_folder_ends_as_a_missing_one_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    codes: list[object] = []
    monkeypatch.setattr("fitness.measure_device.host_profile", lambda cache: None)
    for folder in (tmp_path / "missing", tmp_path):
        monkeypatch.setattr("os.posix_fallocate", full)
        with pytest.raises(SystemExit) as ended:
            main(["schedule", "digits", "--memory-budget", "85%", "--page-dir", str(folder)])
        codes.append(ended.value.code)
    assert codes == [Unwritable.code, Unwritable.code] and "No space left" in capsys.readouterr().err


# a real step


@pytest.fixture(scope="module")
def ready() -> Ready:
    return prepare_step("digits", "model:m4f", None, silent)


@pytest.fixture(scope="module")
def planned(ready: Ready) -> tuple[Scheduled, Program]:
    options = Options("digits", "85%", target="model:m4f", seconds=2.0)
    return scheduled(ready, request_of(options, ready.base.plan.peak_bytes, ready.problem.time_s), silent)


def test_the_arena_of_a_schedule_keeps_the_budget(ready: Ready, planned: tuple[Scheduled, Program]) -> None:
    found, program = planned
    assert program.plan.peak_bytes == found.peak_bytes <= found.request.budget_bytes < ready.base.plan.peak_bytes


def test_the_problem_counts_bytes_as_buffers_take_them(ready: Ready) -> None:
    kept = replay(ready.problem, keep_all(ready.problem)).peak_bytes
    assert all(tensor.bytes % ALIGN == 0 for tensor in ready.problem.tensors)
    assert 0 <= kept - ready.base.plan.peak_bytes < ALIGN


@pytest.mark.parametrize("minimise", ["energy", "time"])
@pytest.mark.parametrize("budget", ["100%", "130%", "1GiB"])
def test_all_of_the_memory_costs_nothing(ready: Ready, budget: str, minimise: str) -> None:
    base = ready.base.plan.peak_bytes
    options = Options("digits", budget, minimise=minimise, target="model:m4f", seconds=2.0)
    found, program = scheduled(ready, request_of(options, base, ready.problem.time_s), silent)
    assert (found.energy_overhead, found.time_overhead, found.gap) == (0.0, 0.0, 0.0)
    assert found.peak_bytes == program.plan.peak_bytes == base and found.genes == ()
    assert found.bound == found.objective and found.solution.proven.startswith("optimal")


ONE_OP = """func.func @step(%w: tensor<2x4xf32>, %x: tensor<2x4xf32>, %y: tensor<2x4xf32>)
    -> (tensor<2x4xf32>, tensor<f32>) {
  %new = arith.addf %w, %x : tensor<2x4xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<f32>
  %loss = linalg.fill ins(%zero : f32) outs(%empty : tensor<f32>) -> tensor<f32>
  return %new, %loss : tensor<2x4xf32>, tensor<f32>
}"""


def test_a_step_of_one_op_within_all_of_its_memory_pages_nothing(tmp_path: Path) -> None:
    rows, leaf = np.zeros((8, 4), np.float32), {"shape": [2, 4], "dtype": "float32"}
    about = {
        "state": [{"name": "w", **leaf}], "batch": [{"name": "x", **leaf}, {"name": "y", **leaf}],
        "metrics": [{"name": "loss", "shape": [], "dtype": "float32"}],
        "quality": {"kind": "loss", "steps": 3, "seeds": [0]}, "data": ".", "initial": ".",
    }  # fmt: skip
    (tmp_path / "step.mlir").write_text(ONE_OP)
    (tmp_path / "step.json").write_text(json.dumps(about))
    for part in ("train", "validation", "test"):
        np.savez(tmp_path / f"{part}.npz", x=rows, y=rows)
    np.savez(tmp_path / "init_0.npz", s0=np.zeros((2, 4), np.float32))
    shown = console()
    assert schedule(Options(str(tmp_path / "step.mlir"), "100%", seconds=2.0, page_dir=tmp_path), shown) == 0
    text = text_of(shown)
    assert "written out 0 0 +0" in text and re.search(r"energy .* \+0 %", text) and "gap 0 %" in text


def test_a_budget_that_is_too_small_is_told_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*given: object) -> None:
        raise AssertionError("it measured first")

    monkeypatch.setattr("gevo.schedule_setup._costs", measured)
    for budget in ("1KiB", "0.0001%"):
        with pytest.raises(CampaignError, match=r"alone needs|more than nothing") as told:
            schedule(Options("digits", budget, seconds=2.0), console())
        assert told.value.where == "--memory-budget"


def test_nothing_is_asked_of_the_store_without_paging(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*given: object) -> None:
        raise AssertionError("it measured the store")

    monkeypatch.setattr("gevo.schedule_setup.page_tier", asked)
    ready = prepare_step("digits", "cpu", None, silent, paging=False)
    assert ready.time_method == "calls measured one by one"


def test_figures_are_those_of_the_replay(planned: tuple[Scheduled, Program]) -> None:
    found, _ = planned
    usage, keep = replay(found.problem, found.solution.steps), replay(found.problem, keep_all(found.problem))
    assert found.energy_overhead == pytest.approx(usage.energy_j / keep.energy_j - 1)
    assert found.keep == keep and found.moved_bytes == tuple(
        sum(found.problem.tensors[s.index].bytes for s in found.solution.steps if s.kind == kind)
        for kind in (Kind.OUT, Kind.IN)
    )
    assert 0 <= found.gap <= found.energy_overhead + 1e-9
    nearly = replace(found, bound=found.solution.usage.energy_j * (1 - 1e-15))
    assert nearly.gap == 0.0 and replace(found, bound=nearly.bound * (1 - 1e-6)).gap > 0


def test_the_table_shows_the_figures(planned: tuple[Scheduled, Program]) -> None:
    found, _ = planned
    shown = console()
    schedule_command.show(found, shown)
    text, usage = text_of(shown), found.solution.usage
    assert f"within {found.request.budget_bytes / 1024:.0f} KiB ({found.request.budget_bytes:,} bytes)" in text
    assert f"{found.peak_bytes / 1024:.0f} KiB {found.keep_bytes / 1024:.0f} KiB" in text
    assert f"computed {len(found.problem.ops) + usage.remats} {len(found.problem.ops)} +{usage.remats}" in text
    assert f"written out {usage.pages_out} 0" in text and f"read in {usage.pages_in} 0" in text
    assert "model:m4f" in text and f"{len(found.stored):,} bytes" in text
    assert percent(found.energy_overhead) in text and found.solution.proven in re.sub(r"\s+", " ", text)


def test_a_run_beside_everything_kept_is_the_same_in_the_memory_planned(
    ready: Ready, planned: tuple[Scheduled, Program], tmp_path: Path
) -> None:
    found, program = planned
    ran = run(ready.bench.prepared, program, ready.base, 4, tmp_path)
    assert (ran.differs, ran.peak_bytes, ran.paged_bytes) == (0, found.peak_bytes, found.paged_bytes)
    said = lines(ran, found)
    assert "bit for bit" in said["ran 4 steps"] and "as planned" in said["measured peak"]


def test_a_run_that_differs_says_at_which_step(planned: tuple[Scheduled, Program]) -> None:
    said = lines(Ran(5, 3, 7, 0, Timed(2e-3, 1e-3, 2.0, 0.1, 8)), planned[0])
    assert "+100.0 % +- 10.0 from 8 pairs" in said["measured time"]
    assert "differ from those of all kept at step 3" in said["ran 5 steps"] and "not 7" in said["measured peak"]


def test_too_small_a_budget_says_whose_working_set_forbids_it(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_command, "prepare_step", lambda *given: ready)
    with pytest.raises(CampaignError, match=r"op\S* alone needs [\d,]+ bytes") as told:
        schedule(Options("digits", "1KiB", target="model:m4f", seconds=2.0), console())
    assert told.value.where == "--memory-budget" and re.search(r"Give at least \d", told.value.todo)


def test_a_deadline_that_no_schedule_keeps_is_what_must_change(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_command, "prepare_step", lambda *given: ready)
    with pytest.raises(CampaignError, match="if the step may take longer") as told:
        schedule(Options("digits", "80%", deadline="1x", target="model:m4f", seconds=2.0), console())
    assert told.value.where == "--deadline"


def test_ctrl_c_while_preparing_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: object) -> Ready:
        raise KeyboardInterrupt

    monkeypatch.setattr(schedule_command, "prepare_step", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["schedule", "digits", "--memory-budget", "75%"])
    assert ended.value.code == INTERRUPTED and "Traceback" not in capsys.readouterr().err


def test_a_curve_that_is_stopped_shows_what_it_has(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    solves, count = schedule_sweep.solve, 0

    def some(problem: Any, request: Any, on_stage: Callable[[str], None]) -> Any:
        nonlocal count
        count += 1
        if count > 4:
            raise KeyboardInterrupt
        return solves(problem, request, on_stage)

    monkeypatch.setattr(schedule_command, "prepare_step", lambda *given: ready)
    monkeypatch.setattr(schedule_sweep, "solve", some)
    shown = console()
    assert schedule(Options("digits", target="model:m4f", seconds=30.0, curve=True), shown) == INTERRUPTED
    text = text_of(shown)
    assert re.search(r"154 KiB 100\.0% \+0\.000% \+0\.000% \+0\.000%", text) and text.rstrip().endswith("Stopped")


def test_a_curve_never_rises_with_the_budget_and_both_techniques_are_no_worse_than_one(ready: Ready) -> None:
    options = Options("digits", target="model:m4f", seconds=9.0)
    sweep = Sweep(ready, request_of(options, ready.base.plan.peak_bytes, ready.problem.time_s), count=3)
    with ScheduleView(console()) as view:
        sweep.run(view)
    costs = {s.name: {at: cost for at, cost in s.points if cost is not None} for s in sweep.curve.series}
    both = [costs["both"][budget] for budget in sweep.curve.budgets]
    assert both == sorted(both, reverse=True) and both[-1] == pytest.approx(0.0, abs=1e-9) and len(both) == 3
    for other in ("paging only", "computing again only"):
        assert all(costs["both"][at] <= cost + 1e-9 for at, cost in costs[other].items())
    assert all(bound <= costs["both"][at] + 1e-9 for at, bound in costs["proven bound"].items())


def test_the_schedule_of_a_genome_is_drawn_as_it_was_planned(
    ready: Ready, planned: tuple[Scheduled, Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Drawn] = []
    monkeypatch.setattr(schedule_drawn, "plot", lambda given, path: drawn.append(given))
    (tmp_path / "base.mlir").write_text(ready.bench.text)
    schedule_drawn.draw_schedule(
        prepared=str(ready.bench.prepared.folder),
        base=str(tmp_path / "base.mlir"),
        cache=str(cache_folder() / "objects"),
        genome={"edits": [], "schedule": json.loads(planned[0].stored)},
        tuning="",
        threads=1,
        title="toy",
        budget_bytes=0,
        to=str(tmp_path / "a.png"),
    )
    usage, solved = replay(drawn[0].problem, drawn[0].steps), planned[0].solution.usage
    counts = (usage.remats, usage.pages_out, usage.pages_in)
    assert counts == (solved.remats, solved.pages_out, solved.pages_in) and drawn[0].names["arg0"]


def test_a_schedule_for_this_cpu_is_planned_run_drawn_and_saved(ready: Ready, tmp_path: Path) -> None:
    picture, folder, shown = tmp_path / "plan.png", tmp_path / "program", console()
    options = Options("digits", "85%", seconds=2.0, run=3, plot=picture, to=folder, page_dir=tmp_path)
    assert schedule(options, shown) == 0
    assert "bit for bit" in text_of(shown) and picture.stat().st_size > 10_000
    step: Any = load_step(folder)
    kept, prepared = CpuRunner(ready.base), ready.bench.prepared
    state = step.initial_state()
    kept.write_state(state)
    for batch in prepared.batches(prepared.signature.quality.seeds[0], 3):
        state, _ = step(state, batch)
        kept.write_batch(batch)
        kept.run()
    assert [leaf.tobytes() for leaf in state] == [leaf.tobytes() for leaf in kept.read_state()]

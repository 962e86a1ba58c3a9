"""The cascade on a toy workload, in this process, against NumPy; and its ways to end early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitness_toys import kernel, pull
from toy_workload import RATE, toy_workload

from fitness.bench import SLACK, Bench, load_bench
from fitness.check import check
from fitness.cpu import CpuRunner
from fitness.evaluate import evaluate
from fitness.job import Context, Job
from fitness.lessons import read_lessons
from fitness.program import load_step, save_program
from fitness.quality import Judge, quality, train
from fitness.result import Failure, Measure, Outcome, Result
from fitness.stages import COMPILE_STAGES, STAGES
from mlir_passes.errors import CompileError, EditDoesNotApply
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import STAGES as PIPELINE_STAGES
from mlir_passes.pipeline import parse_base
from mlir_passes.program import KernelCall
from workloads.workload import PreparedWorkload


@dataclass
class Script:
    """A channel that remembers the stages and knows what it is told."""

    fingerprints: tuple[str, ...] = ()
    stages: list[str] = field(default_factory=list)

    def stage(self, name: str) -> None:
        self.stages.append(name)

    def known(self, fingerprint: str) -> bool:
        return fingerprint in self.fingerprints


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_workload(folder)
    return folder


@cache
def loaded(folder: Path) -> Bench:
    return load_bench(Context(str(folder), str(folder / "base.mlir"), str(folder / "cache")))


def bench(folder: Path, **changes: Any) -> Bench:
    """A bench with a base module of its own, which one evaluation uses up."""
    once = loaded(folder)
    module = parse_base((folder / "base.mlir").read_text())
    return replace(once, module=module, context=replace(once.context, **changes))


def run(folder: Path, **changes: Any) -> tuple[Result | None, list[str]]:
    script = Script()
    return evaluate(bench(folder, **changes), Job(0, {"edits": []}), script), script.stages


def trained(prepared: PreparedWorkload, seed: int) -> np.ndarray[Any, Any]:
    (w,) = prepared.initial_state(seed)
    for x, y in prepared.batches(seed, prepared.signature.quality.steps):
        w = w - np.float32(RATE) * (x.T @ (x @ w - y))
    return w


def test_stage_names_are_those_of_the_pipeline():
    assert COMPILE_STAGES == PIPELINE_STAGES


def test_base_has_every_objective_and_every_stage_is_told_in_order(folder: Path):
    result, stages = run(folder)
    assert result and result.ok, result
    assert set(result.objectives) == {"runtime_s", "peak_bytes", "energy_j", "error"}
    assert stages == [s for s in STAGES if s in stages]
    assert set(stages) >= {
        "edit",
        "verify",
        "partition",
        "compile",
        "plan",
        "load",
        "check",
        "timing",
        "quality",
        "energy",
    }
    assert set(result.stage_s) == set(stages)
    assert result.runtime_ratio > 0 and result.measured_s > 0
    assert len(result.fingerprint) >= 16
    assert (result.stage, result.detail, result.answered_by) == ("", "", "")


def test_only_the_stages_asked_for_run(folder: Path):
    result, stages = run(folder, objectives=("peak_bytes", "error"))
    assert result and list(result.objectives) == ["peak_bytes", "error"]
    assert not {"timing", "energy"} & set(stages)


def test_same_genome_same_figures_bit_for_bit(folder: Path):
    first, second = (run(folder, objectives=("peak_bytes", "error", "energy_j"))[0] for _ in range(2))
    assert first and second
    assert first.objectives == second.objectives
    assert first.fingerprint == second.fingerprint


def test_second_evaluation_finds_all_objects(folder: Path):
    run(folder)
    result, _ = run(folder)
    assert result and result.cache_hits > 0 and result.cache_misses == 0


def test_known_variant_stops_before_compiling(folder: Path):
    result, _ = run(folder)
    assert result
    script = Script((result.fingerprint,))
    assert evaluate(bench(folder), Job(0, {"edits": []}), script) is None
    assert "partition" not in script.stages


def test_variant_over_the_memory_budget_never_runs(folder: Path):
    result, stages = run(folder, memory_budget=100)
    assert result and (result.outcome, result.stage) == (Outcome.OUT_OF_MEMORY, "plan")
    assert "the budget is 100" in result.detail and "load" not in stages


def test_edit_that_does_not_apply_is_rejected(folder: Path):
    genome = {"edits": [{"kind": "delete", "site": "op99", "instead": []}]}
    result = evaluate(bench(folder), Job(0, genome), Script())
    assert result and (result.outcome, result.stage) == (Outcome.REJECTED, "edit")
    assert "op99" in result.detail


@pytest.mark.parametrize(
    ("error", "outcome", "stage"),
    [
        (EditDoesNotApply("edit", "no such site"), Outcome.REJECTED, "edit"),
        (CompileError("llvm", "no registers"), Outcome.COMPILE_FAILED, "partition"),
        (MemoryError(), Outcome.OUT_OF_MEMORY, "partition"),
        (ZeroDivisionError("a bug"), Outcome.COMPILE_FAILED, "partition"),
    ],
)
def test_errors_while_compiling_are_outcomes(folder: Path, monkeypatch, error: Exception, outcome: Outcome, stage: str):
    def fail(self: Bench, text: str, cache: object, on_stage: Callable[[str], None], on_dropped: object) -> None:
        on_stage("partition")
        raise error

    monkeypatch.setattr(Bench, "compile", fail)
    result, _ = run(folder)
    assert result and (result.outcome, result.stage) == (outcome, stage)


def test_quality_is_that_of_numpy_training(folder: Path):
    prepared = PreparedWorkload.load(folder)
    b = bench(folder)
    measure = quality(b.base, b.judge, b.lessons)
    assert not isinstance(measure, Failure)
    x, y = prepared.split("validation")
    errors = [1 - np.mean((x @ trained(prepared, seed)).argmax(1) == y.argmax(1)) for seed in (0, 1)]
    assert measure.value == pytest.approx(np.mean(errors), abs=1e-9)
    assert measure.spread == pytest.approx(np.std(errors), abs=1e-9)
    assert measure.method == "accuracy:validation:30 steps"
    assert 0 <= measure.value < 0.5


def test_test_split_is_scored_only_when_asked(folder: Path):
    prepared = PreparedWorkload.load(folder)
    b = bench(folder)
    measure = quality(b.base, b.judge, read_lessons(prepared, "test"))
    assert not isinstance(measure, Failure)
    assert measure.method == "accuracy:test:30 steps"
    x, y = prepared.split("test")
    right = [(x @ trained(prepared, seed)).argmax(1) == y.argmax(1) for seed in (0, 1)]
    errors = [1 - np.mean(r) for r in right]
    assert measure.value == pytest.approx(np.mean(errors), abs=1e-9)
    assert measure.each == pytest.approx(errors, abs=1e-9) and not measure.right
    one = quality(b.base, b.judge, read_lessons(prepared, "test", seeds=(1,)))
    assert isinstance(one, Measure) and one.right == np.packbits(right[1]).tobytes().hex()


def test_batches_that_are_too_many_to_keep_give_the_same_quality(folder: Path):
    b = bench(folder)
    streamed = read_lessons(b.lessons.prepared, "validation", keep_bytes=0)
    assert b.lessons.kept and not streamed.kept
    assert quality(b.base, b.judge, streamed) == quality(b.base, b.judge, b.lessons)


def test_loss_quality_is_the_mean_over_whole_batches_with_the_state_held(tmp_path: Path):
    prepared = toy_workload(tmp_path, kind="loss", seeds=(0,))
    b = bench(tmp_path)
    measure = quality(b.base, b.judge, b.lessons)
    assert not isinstance(measure, Failure)
    w = trained(prepared, 0)
    x, y = prepared.split("validation")
    losses = [np.sum((x[i : i + 8] @ w - y[i : i + 8]) ** 2) for i in range(0, 32, 8)]
    assert measure.value == pytest.approx(np.mean(losses), rel=1e-4)


def test_diverging_training_is_named_with_its_step(tmp_path: Path):
    toy_workload(tmp_path, rate=30.0, seeds=(0,))
    b = bench(tmp_path)
    failure = quality(b.base, b.judge, b.lessons)
    assert failure == Failure(Outcome.DIVERGED, "seed 0: not finite by step 20")
    assert train(b.base, replace(b.lessons, kept={0: b.lessons.kept[0][:1]}), 0) is None
    result, _ = run(tmp_path)
    assert result and (result.outcome, result.stage) == (Outcome.DIVERGED, "quality")
    assert not result.objectives


W, X = np.full(8, 2.0, np.float32), np.arange(8, dtype=np.float32)
SPIN = """
define void @spin(ptr %w) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %v = load volatile float, ptr %w
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 2000000
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
"""


def checked(runner: CpuRunner, slow_ratio: float = 1e9) -> Failure | None:
    return check(runner, CpuRunner(pull()), [W], [[X], [X + 1], [X + 2]], slow_ratio)


def test_check_passes_the_base():
    assert checked(CpuRunner(pull(), SLACK)) is None


def test_check_finds_a_step_that_is_not_finite_at_once():
    failure = checked(CpuRunner(pull(rate="0x7FF0000000000000"), SLACK))
    assert failure == Failure(Outcome.DIVERGED, "not finite by step 1")


def test_check_finds_a_step_that_crawls():
    toy = pull()
    spin, data = kernel("k7", "spin", SPIN, 0, 4, 0)
    plan = replace(toy.plan, calls=(*toy.plan.calls, replace(toy.plan.calls[0], kernel="k7", args=(0,))))
    slow = replace(toy, plan=plan, kernels={**toy.kernels, "k7": spin}, objects={**toy.objects, "k7": data})
    failure = checked(CpuRunner(slow, SLACK), slow_ratio=20.0)
    assert failure and failure.outcome is Outcome.TIMED_OUT
    assert "times slower than the base, the limit is 20" in failure.detail


PEEK = """
define void @peek(ptr %w, ptr %r) {
  %d = load float, ptr %r
  store float %d, ptr %w
  ret void
}
"""
SPILL = """
define void @spill(ptr %w) {
  %p = getelementptr float, ptr %w, i64 300
  store float 1.0, ptr %p
  ret void
}
"""


def with_first_call(symbol: str, text: str, args: tuple[int, ...]) -> CpuRunner:
    """The toy with one more call, before all others."""
    toy = pull()
    added, data = kernel("k8", symbol, text, 0, 4, 4)
    plan = replace(toy.plan, calls=(KernelCall("k8", args), *toy.plan.calls))
    changed = replace(toy, plan=plan, kernels={**toy.kernels, "k8": added}, objects={**toy.objects, "k8": data})
    return CpuRunner(changed, SLACK)


def test_check_finds_a_step_that_reads_what_nobody_wrote():
    failure = checked(with_first_call("peek", PEEK, (0, 3)))
    assert failure == Failure(Outcome.WRONG, "the step reads arena bytes that nothing wrote")


def test_check_finds_a_step_that_writes_past_its_plan():
    failure = checked(with_first_call("spill", SPILL, (0,)))
    assert failure == Failure(Outcome.WRONG, "the step writes to byte 1204, its plan ends at 224")


def test_another_machines_program_is_compiled_anew_from_its_kernels(folder: Path, tmp_path: Path, capsys):
    b = bench(folder)
    variant = b.variant({"edits": []}, lambda _: None)
    program = b.compile(variant, ObjectCache(None), lambda _: None)
    extra = {"signature": b.lessons.prepared.signature.to_json()}
    save_program(tmp_path / "here", program, extra)
    foreign = replace(program, cpu="another", objects=dict.fromkeys(program.objects, b"not for this CPU"))
    save_program(tmp_path / "foreign", foreign, extra)
    states = []
    for name in ("here", "foreign"):
        step = load_step(tmp_path / name)
        state, metrics = step(list(b.state), list(b.batches[0]))
        states.append([*(leaf.copy() for leaf in state), *metrics])
    assert "compiled for another CPU" in capsys.readouterr().err
    for here, anew in zip(*states, strict=True):
        np.testing.assert_array_equal(here, anew)


def test_accuracy_without_predict_is_a_bug_not_an_outcome(folder: Path):
    b = bench(folder)
    with pytest.raises(ValueError, match="needs a predict program"):
        quality(b.base, Judge(b.base), b.lessons)

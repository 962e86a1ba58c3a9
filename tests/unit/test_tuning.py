"""The tuner on a small step: what it keeps computes the same, what is wrong or dies is dropped and counted."""

from __future__ import annotations

import faulthandler
import os
import resource
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from toy_workload import toy_workload

from fitness import tuning
from fitness.calls import StepCalls
from fitness.cpu import CpuRunner
from fitness.isolated import isolated
from fitness.job import Limits
from fitness.result import Failure, Outcome
from fitness.rival import Made, compare, summary
from mlir_passes import lower_cpu
from mlir_passes.kernels.choice import DEFAULT, Choice
from mlir_passes.objects import KernelObject, ObjectCache
from mlir_passes.pipeline import compile_program
from mlir_passes.program import Program

OPTIONS = tuning.Options(most=8)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    folder = tmp_path_factory.mktemp("toy")
    prepared = toy_workload(folder)
    return (folder / "base.mlir").read_text(), prepared


@pytest.fixture(scope="module")
def step(text: tuple[str, Any]) -> tuning.Step:
    program = compile_program(text[0], "step", 1, 2, ObjectCache(None))
    return tuning.Step(program, tuple(text[1].initial_state(0)), tuple(text[1].batches(0, 4)))


@pytest.fixture(scope="module")
def targets(step: tuning.Step) -> list[tuning.Target]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tuning, "SHORTEST_S", 0.0)
        patched.setattr(tuning, "SMALLEST_SHARE", 0.0)
        patched.setattr(tuning, "_PROFILE_S", 0.05)
        return tuning.targets(step)


def tuned(step: tuning.Step, target: tuning.Target, options: tuning.Options = OPTIONS) -> tuning.Tuned:
    seen: list[tuning.Try] = []
    (found,) = tuning.tune(step, [target], options, {}, seen.append)
    assert [t.number for t in seen] == list(range(1, found.tried + 1))
    return found


def test_kernels_come_by_their_share_of_the_step(step: tuning.Step, targets: list[tuning.Target]):
    shares = [target.share for target in targets]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1.0)
    assert {target.kernel.key for target in targets} == set(step.program.kernels)


def test_kernels_of_no_account_are_left_alone(step: tuning.Step, monkeypatch):
    monkeypatch.setattr(tuning, "SHORTEST_S", 1.0)
    assert tuning.targets(step) == []


def test_memory_is_captured_as_the_step_left_it_before_the_call(step: tuning.Step, targets: list[tuning.Target]):
    first = next(t for t in targets if t.kernel.key == step.program.plan.calls[0].kernel)
    buffers = [step.program.plan.buffers[i] for i in step.program.plan.calls[0].args]
    given = {"state": step.state, "batch": step.batches[0]}
    for argument, buffer in zip(first.capture.arguments, buffers, strict=True):
        data = first.capture.data[argument.offset : argument.offset + argument.bytes]
        if buffer.role in given:
            assert any(data.tobytes() == leaf.tobytes() for leaf in given[buffer.role])
    assert [a.written for a in first.capture.arguments].count(True) >= 1


def test_every_kernel_is_tuned_within_its_budget_and_the_step_stays_right(
    text: tuple[str, Any], step: tuning.Step, targets: list[tuning.Target], monkeypatch
):
    monkeypatch.setattr(tuning, "MARGIN", 2.0)  # so that something is chosen
    monkeypatch.setattr(tuning, "holds", lambda found: True)
    results = [tuned(step, target) for target in targets[:2]]
    assert all(r.tried < OPTIONS.most and r.failed == 0 and r.finished for r in results)
    choices = {r.hash: r.choice for r in results}
    assert DEFAULT not in choices.values()
    program = compile_program(text[0], "step", 1, 2, ObjectCache(None), choices=choices)
    assert program.kernels.keys() != step.program.kernels.keys()
    for got, expected in zip(after(program, step), after(step.program, step), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    timed = tuning.whole_step(step, program)
    assert not isinstance(timed, Failure) and timed.ratio > 0


def after(program: Program, step: tuning.Step) -> list[np.ndarray]:
    runner = CpuRunner(program)
    runner.write_state(step.state)
    runner.write_batch(step.batches[0])
    runner.run()
    return [*runner.read_state(), *(m.copy() for m in runner.metrics)]


def test_the_default_stays_where_nothing_is_clearly_faster(
    step: tuning.Step, targets: list[tuning.Target], monkeypatch
):
    monkeypatch.setattr(tuning, "MARGIN", 0.0)
    found = tuned(step, targets[0])
    assert (found.choice, found.ratio) == (DEFAULT, 1.0)


def test_wrong_candidates_are_dropped_and_noted(step: tuning.Step, targets: list[tuning.Target], monkeypatch):
    monkeypatch.setattr(tuning, "MARGIN", 2.0)
    target = next(t for t in targets if t.family in ("contraction", "window", "reduction"))

    def broken(*arguments: Any) -> KernelObject:
        made = right(*arguments)
        nothing = f"define void @k_rival({', '.join(['ptr'] * len(target.capture.arguments))}, i64, i64) {{ ret void }}"
        return replace(made, code=lower_cpu.object_from_ir(nothing))

    right = tuning.compile_choice
    monkeypatch.setattr(tuning, "compile_choice", broken)
    found = tuned(step, target)
    assert found.choice == DEFAULT and found.failed == found.tried > 0
    assert "argument" in found.note


@pytest.mark.parametrize("how", ["abort", "hang", "raise"])
def test_candidates_that_die_or_hang_are_dropped(step, targets, monkeypatch, how: str):
    def dying(*arguments: Any) -> KernelObject:
        if how == "abort":
            faulthandler.disable()  # else it tells the whole session of this death
            os.abort()
        while how == "hang":
            pass
        raise RuntimeError("MLIR refuses it")

    monkeypatch.setattr(tuning, "compile_choice", dying)
    options = tuning.Options(most=3, limits=Limits(wall_s=0.3, cpu_s=5.0, memory_bytes=1 << 30))
    found = tuned(step, targets[0], options)
    assert found.choice == DEFAULT and found.failed == found.tried == 2
    assert {"abort": "SIGABRT", "hang": "timed_out", "raise": "MLIR refuses it"}[how] in found.note


def test_a_search_that_is_out_of_time_says_so(step: tuning.Step, targets: list[tuning.Target], monkeypatch):
    monkeypatch.setattr(tuning, "_LEAST_S", 0.0)
    found = list(tuning.tune(step, targets[:1], tuning.Options(seconds=1e-3), {}, lambda _: None))
    assert [f.finished for f in found] == [False]
    assert list(tuning.tune(step, targets, tuning.Options(seconds=1e-9), {}, lambda _: None)) == []


def test_a_write_outside_the_buffers_is_found(step: tuning.Step, targets: list[tuning.Target]):
    target = targets[0]
    own = Made(KernelObject(target.code, 0, target.kernel.shards), target.kernel.symbol)
    last = len(target.capture.arguments) - 1
    parameters = ", ".join([*(f"ptr %a{i}" for i in range(last + 1)), "i64 %begin", "i64 %end"])
    past = target.capture.arguments[last].bytes
    text = f"""declare void @{target.kernel.symbol}({", ".join(["ptr"] * (last + 1))}, i64, i64)
define void @past({parameters}) {{
  call void @{target.kernel.symbol}({parameters})
  %p = getelementptr i8, ptr %a{last}, i64 {past}
  store i8 1, ptr %p
  ret void
}}"""
    bad = Made(KernelObject(lower_cpu.object_from_ir(text), 0, target.kernel.shards), "past")
    assert compare(target.capture, own, bad, 1024, 3, screen=False) == "it writes outside its buffers"


@pytest.mark.parametrize(("faster", "sure"), [(4, False), (6, False), (7, True), (8, True)])
def test_a_rival_is_faster_for_sure_only_in_most_pairs(faster: int, sure: bool):
    pairs = [(0.9, 1.0)] * faster + [(1.1, 1.0)] * (8 - faster)
    assert summary(pairs).sure is sure
    assert tuning.holds(summary(pairs)) is (sure and faster > 4)


def test_a_duel_within_the_step_takes_turns(step: tuning.Step, targets: list[tuning.Target]):
    target = targets[0]
    made = lower_cpu.compile_choice(tuning.kernel_text(target.kernel), "rival", tuning.new_context(), Choice())
    pairs = StepCalls(step.program, step.state, step.batches).duel(target.kernel.key, made, "k_rival", 0.0)
    assert len(pairs) == 8 and all(a > 0 and b > 0 for a, b in pairs)


def test_a_page_file_may_be_as_large_as_memory():
    limits = Limits(10.0, 10.0, 3 << 30)
    assert isolated(lambda: resource.getrlimit(resource.RLIMIT_FSIZE)[0] >= 3 << 30, limits, "load") is True


def test_isolated_gives_back_what_the_child_found():
    limits = Limits(wall_s=5.0, cpu_s=5.0, memory_bytes=1 << 30)
    assert isolated(lambda: {"x": [1, 2.5, "a"]}, limits, "timing") == {"x": [1, 2.5, "a"]}
    big = "y" * 300_000
    assert isolated(lambda: big, limits, "timing") == big
    died = isolated(lambda: os._exit(3), limits, "timing")
    assert isinstance(died, Failure) and died.outcome is Outcome.CRASHED

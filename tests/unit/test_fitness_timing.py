"""Timing: its arithmetic, what it refuses, and that a run for timing is checked. No test asserts a speed."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from fitness_toys import counting, pull

from fitness.cpu import CpuRunner
from fitness.job import Timing
from fitness.result import Failure, Outcome
from fitness.timing import Subject, Timed, above_roofline, compare, peak_flops, summary
from mlir_passes.program import Program

X = np.arange(8, dtype=np.float32)
W = np.full(8, 2.0, np.float32)
TIMING = Timing(rounds=4, window_s=1e-4)


def subject(program: Program) -> Subject:
    return Subject(CpuRunner(program), [W], [[X], [X + 1], [X * 2]])


def test_summary_by_hand():
    timed = summary([2.0, 3.0, 4.0, 8.8], [1.0, 2.0, 2.0, 4.0])  # ratios 2, 1.5, 2, 2.2
    of_median = 1.25 / 1.35 * (2.05 - 1.875) / 2
    assert timed == Timed(runtime_s=2.0, base_s=1.0, ratio=2.0, spread=pytest.approx(of_median), pairs=4)


def test_spread_is_how_far_the_median_of_so_many_pairs_lies_off():
    rng = np.random.default_rng(0)
    for pairs in (20, 100):
        drawn = rng.normal(1.0, 0.05, (400, pairs))
        spreads = [timed.spread for row in drawn if isinstance(timed := summary(row, np.ones(pairs)), Timed)]
        assert np.mean(spreads) == pytest.approx(np.std(np.median(drawn, axis=1)), rel=0.15)


class Clocked(Subject):
    """A subject whose windows take as long as it is told, and that says when it runs."""

    def __init__(self, name: str, window_s: float, log: list[str]) -> None:
        self.name, self.window_s, self.log = name, window_s, log

    def window(self, calls: int) -> float:
        self.log.append(self.name)
        return self.window_s

    def right(self, calls: int) -> bool:
        self.log.append("checked")
        return True


def test_windows_of_variant_and_base_take_turns_and_each_is_checked():
    log: list[str] = []
    timed = compare(Clocked("variant", 1e-3, log), Clocked("base", 2e-3, log), Timing(rounds=4, least=4))
    assert isinstance(timed, Timed) and (timed.ratio, timed.pairs) == (0.5, 4)
    pairs = [log[i : i + 4] for i in range(4, len(log), 4)]  # the first four windows find how many calls fill one
    assert pairs == [[a, "checked", b, "checked"] for a, b in (("variant", "base"), ("base", "variant")) * 2]


@pytest.mark.parametrize("window_s", [0.0, math.inf])
def test_a_variant_with_a_time_that_is_not_physical_is_wrong(window_s: float):
    failure = compare(Clocked("variant", window_s, []), Clocked("base", 1e-3, []), TIMING)
    assert isinstance(failure, Failure) and failure.outcome is Outcome.WRONG


@pytest.mark.parametrize("odd", [0.0, -1.0, math.nan, math.inf])
def test_times_that_no_clock_should_give_are_wrong(odd: float):
    for pair in (([1.0, odd], [1.0, 1.0]), ([1.0, 1.0], [odd, 1.0])):
        failure = summary(*pair)
        assert isinstance(failure, Failure) and failure.outcome is Outcome.WRONG


def test_base_against_base_gives_figures_of_the_right_kind():
    timed = compare(subject(pull()), subject(pull()), TIMING)
    assert isinstance(timed, Timed)
    assert 0 < timed.ratio < 100
    assert 0 < timed.runtime_s < 1 and 0 < timed.base_s < 1 and timed.spread >= 0


def test_every_window_starts_from_the_snapshot_and_feeds_the_batches_in_turn():
    timed = subject(pull())
    timed.window(4)
    w = W.copy()
    for x in (X, X + 1, X * 2, X):
        w = w - np.float32(0.5) * (w - x)
    np.testing.assert_array_equal(timed.runner.state[0], w)
    timed.window(4)
    np.testing.assert_array_equal(timed.runner.state[0], w)
    assert timed.right(4)


def test_a_long_step_is_not_timed_on_caches_full_of_the_others_data(monkeypatch: pytest.MonkeyPatch):
    now, last = [0], [""]

    def slow(name: str) -> Subject:
        made = subject(pull())
        run = made.runner.run

        def timed_run() -> None:
            now[0] += 1_000_000 if last[0] == name else 1_500_000
            last[0] = name
            run()

        monkeypatch.setattr(made.runner, "run", timed_run)
        return made

    monkeypatch.setattr("fitness.timing.time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    assert compare(slow("variant"), slow("base"), TIMING) == Timed(1e-3, 1e-3, 1.0, 0.0, 4)


def test_variant_that_keeps_something_between_runs_is_wrong():
    failure = compare(subject(counting()), subject(pull()), TIMING)
    assert failure == Failure(Outcome.WRONG, "the outputs of a timed run differ from those of an untimed one")


def test_outputs_are_poisoned_before_a_window():
    timed = subject(pull())
    timed.window(1)
    assert timed.right(1)
    timed.runner.metrics[0].fill(0.0)
    assert not timed.right(1)


def test_faster_than_the_roofline_is_wrong():
    assert above_roofline(flops=10**9, runtime_s=1.0, peak_flops=1e9) is None
    failure = above_roofline(flops=10**9, runtime_s=0.1, peak_flops=1e9)
    assert failure and failure.outcome is Outcome.WRONG
    assert "10.0 GF/s, this CPU does 1.0" in failure.detail


def test_measured_roofline_is_that_of_a_cpu_of_this_century():
    assert 1e8 < peak_flops() < 1e13

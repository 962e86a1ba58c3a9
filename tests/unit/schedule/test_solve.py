"""What the whole chain promises: limits kept, never worse than the optimum's bound, and words for what cannot be."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from brute import optimum, smallest_budget
from random_problems import random_dag, random_problem, training_problem
from test_bound import drawn

from mlir_passes.schedule.chart import chart_of
from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.infeasible import floor
from mlir_passes.schedule.overlap import makespan, overlapped
from mlir_passes.schedule.problem import START
from mlir_passes.schedule.solve import Infeasible, Request, _Chain, solve  # pyright: ignore[reportPrivateUsage]
from mlir_passes.schedule.steps import ScheduleError, keep_all, replay


@pytest.mark.parametrize("seed", range(16))
def test_answer_keeps_the_budget_and_is_the_optimum(seed: int) -> None:
    problem, budget = drawn(seed)
    best = optimum(problem, budget)
    if best is None:
        with pytest.raises(Infeasible):
            solve(problem, Request(budget, time_limit_s=10.0))
        return
    # No gene says that a final tensor is computed again in the last stage.
    if chart_of(problem, best.steps) is None or any(t.final and t.maker != START for t in problem.tensors):
        return
    solution = solve(problem, Request(budget, time_limit_s=10.0, seed=seed))
    assert solution.usage == replay(problem, solution.steps, budget)
    assert replay(problem, solution.blocking, budget).energy_j == pytest.approx(solution.usage.energy_j)
    assert decode(problem, solution.holds).steps == solution.blocking
    assert solution.usage.energy_j == pytest.approx(best.cost, rel=2e-4)
    assert solution.bound <= best.cost + 1e-9
    assert solution.gap == pytest.approx((solution.usage.energy_j - solution.bound) / problem.energy_j, abs=1e-9)
    assert solution.makespan_s == pytest.approx(makespan(problem, solution.steps))


@pytest.mark.parametrize("seed", range(60))
def test_the_least_cost_of_a_dag_is_found_or_the_gap_tells_that_less_may_do(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_dag(rng)
    low, high = floor(problem).bytes, replay(problem, keep_all(problem)).peak_bytes
    budget, minimise = rng.randint(low, max(low, high - 1)), rng.choice(["energy", "time"])
    best = optimum(problem, budget, minimise)
    if best is None:
        with pytest.raises(Infeasible):
            solve(problem, Request(budget, minimise=minimise, time_limit_s=10.0))
        return
    solution = solve(problem, Request(budget, minimise=minimise, time_limit_s=10.0))
    usage = replay(problem, solution.blocking, budget)
    cost, once = (
        (usage.energy_j, problem.energy_j) if minimise == "energy" else (usage.time_s, problem.time_s)
    )  # fmt: skip
    assert solution.bound <= best.cost + 1e-9 <= cost + 1e-6
    assert cost == pytest.approx(best.cost, rel=1e-4) or solution.gap >= (cost - best.cost) / once - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_training_step_at_its_smallest_budget(seed: int) -> None:
    problem = training_problem(random.Random(seed), 3)
    budget = (floor(problem).bytes + replay(problem, keep_all(problem)).peak_bytes) // 2
    solution = solve(problem, Request(budget, time_limit_s=5.0))
    assert solution.usage.peak_bytes <= budget
    assert problem.energy_j <= solution.bound <= solution.usage.energy_j + 1e-9


def test_everything_is_kept_where_it_fits() -> None:
    problem, _ = drawn(1)
    peak = replay(problem, keep_all(problem)).peak_bytes
    solution = solve(problem, Request(peak))
    assert solution.holds == () and solution.usage.energy_j == problem.energy_j and solution.gap == 0
    assert solution.proven.startswith("optimal")


def test_deadline_is_kept_by_the_overlapped_line() -> None:
    for seed in range(8):
        problem, budget = drawn(seed)
        deadline = 1.2 * problem.time_s
        try:
            solution = solve(problem, Request(budget, deadline, time_limit_s=3.0))
        except Infeasible:
            continue
        assert makespan(problem, solution.steps) <= deadline * (1 + 1e-9)


def test_time_is_what_is_minimised_where_asked() -> None:
    problem, budget = drawn(6)
    best = optimum(problem, budget, "time")
    assert best is not None
    solution = solve(problem, Request(budget, minimise="time", time_limit_s=5.0))
    assert replay(problem, solution.blocking).time_s == pytest.approx(best.cost, rel=2e-4)


def test_infeasible_says_whose_working_set_and_what_suffices() -> None:
    problem, _ = drawn(3)
    lowest = floor(problem)
    with pytest.raises(Infeasible) as caught:
        solve(problem, Request(lowest.bytes - 1, time_limit_s=5.0))
    error = caught.value
    assert error.op == lowest.op and lowest.op in str(error) and f"{lowest.bytes:,}" in str(error)
    replayed = solve(problem, Request(error.needed_bytes, time_limit_s=5.0))
    assert replayed.usage.peak_bytes <= error.needed_bytes
    assert error.needed_bytes >= smallest_budget(problem)
    assert not error.exact or error.needed_bytes == smallest_budget(problem)


def test_requests_that_say_nothing_are_refused() -> None:
    problem, budget = drawn(0)
    with pytest.raises(ScheduleError, match="0 bytes"):
        solve(problem, Request(0))
    with pytest.raises(ScheduleError, match="deadline"):
        solve(problem, Request(budget, deadline_s=0.5 * problem.time_s))


def test_same_seed_gives_the_same_schedule() -> None:
    problem = random_problem(random.Random(5), 12)
    budget = (floor(problem).bytes + replay(problem, keep_all(problem)).peak_bytes) // 2
    request = Request(budget, time_limit_s=20.0, seed=3)
    assert solve(problem, request).blocking == solve(problem, request).blocking


def test_what_is_said_to_suffice_is_more_than_the_budget_and_does() -> None:
    told = 0
    for seed in (1129, 1225, 1352, *range(8)):
        rng = random.Random(seed)
        problem = random_problem(rng, rng.randint(3, 6), state=2)
        budget = rng.randint(floor(problem, False).bytes, floor(problem, False).bytes + 8)
        try:
            solve(problem, Request(budget, paging=False, time_limit_s=2.0))
        except Infeasible as error:
            assert error.needed_bytes > budget and not error.late
            solution = solve(problem, Request(error.needed_bytes, paging=False, time_limit_s=2.0))
            assert solution.usage.peak_bytes <= error.needed_bytes
            told += 1
    assert told > 2


def test_a_budget_that_only_late_lines_keep_is_told_as_that() -> None:
    late = 0
    for seed in range(8):
        problem, budget = drawn(seed)
        try:
            solve(problem, Request(budget, problem.time_s, time_limit_s=2.0))
        except Infeasible as error:
            assert error.late == (error.needed_bytes <= budget) == ("take longer" in str(error))
            late += error.late
    assert late > 1


def test_no_schedule_is_said_only_where_there_is_none() -> None:
    """The deadline is one that a line keeps with its transfers beside the computing."""
    found = late = 0
    for seed in range(20):
        rng = random.Random(seed)
        problem = random_dag(rng) if seed % 3 else training_problem(rng, 2)
        low, high = floor(problem).bytes, replay(problem, keep_all(problem)).peak_bytes
        budget = rng.randint(low, max(low, high - 1))
        best = optimum(problem, budget, rng.choice(["energy", "time"]))
        if best is None:
            continue
        deadline = max(problem.time_s, overlapped(problem, best.steps, budget).makespan_s) * (1 + 1e-9)
        late += deadline < best.cost
        try:
            solution = solve(problem, Request(budget, deadline, time_limit_s=2.0))
            assert makespan(problem, solution.steps) <= deadline * (1 + 1e-8)
            found += 1
        except Infeasible as error:
            assert not error.proven and "found no schedule" in str(error)
    assert found > 15 and late > 6


def test_what_is_proven_impossible_is_said_to_be_that() -> None:
    problem, _ = drawn(3)
    with pytest.raises(Infeasible, match="schedule: no schedule within") as caught:
        solve(problem, Request(floor(problem).bytes - 1, time_limit_s=5.0))
    assert caught.value.proven


@contextmanager
def busy(loops: int) -> Generator[None]:
    """Other processes that take the machine's cores."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_time_limit_is_kept_on_a_busy_machine(share: float) -> None:
    problem = training_problem(random.Random(1), layers=120)
    low, high = floor(problem).bytes, replay(problem, keep_all(problem)).peak_bytes
    with busy(3):
        begun = time.monotonic()
        try:
            solve(problem, Request(int(low - 1 + share * (high - low)), 1.05 * problem.time_s, time_limit_s=3.0))
        except Infeasible as error:
            assert error.needed_bytes <= high
        assert time.monotonic() - begun < 4.5  # 3.0, and what a core that others have takes to notice


def test_a_proof_of_the_exact_search_says_of_which_lines() -> None:
    """The best line computes an op again after the last one, which the exact search leaves out."""
    rng = random.Random(1487)
    problem = random_problem(rng, rng.randint(3, 6), state=2)
    best = optimum(problem, 38, "time", paging=False)
    assert best is not None and chart_of(problem, best.steps) is None
    solution = solve(problem, Request(38, minimise="time", paging=False, time_limit_s=2.0))
    assert solution.bound > best.cost and "none after the last" in solution.proven


def test_a_line_of_the_smallest_peak_is_only_where_a_search_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that looks for a line is taken away, so that the smallest peak is the first one within the budget."""
    for stage in ("_find_bound", "_descend", "_evolve_gaps", "_evolve", "_certify"):
        monkeypatch.setattr(_Chain, stage, lambda self: None)
    monkeypatch.setattr(_Chain, "_search", lambda self, computations: None)
    less = 0
    for seed in range(6):
        problem = training_problem(random.Random(seed), layers=4)
        budget = replay(problem, keep_all(problem)).peak_bytes * 4 // 5
        lowest, allow = floor(problem), ("remat", "page")
        first = replay(problem, decode(problem, greedy(problem, lowest.bytes, (), allow)).steps)
        found = solve(problem, Request(budget, time_limit_s=20.0))
        assert found.usage.peak_bytes <= budget and found.usage.energy_j <= first.energy_j
        less += found.usage.energy_j < first.energy_j
    assert less >= 4

"""The exact search against exhaustive search."""

from __future__ import annotations

import os
import random
import signal
import threading
from math import inf
from types import SimpleNamespace

import pytest
from brute import optimum
from random_genes import random_holds
from random_problems import random_problem, training_problem
from test_bound import drawn

from mlir_passes.schedule.chart import chart_of, steps_of
from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.exact import Found, Task, _answer, search  # pyright: ignore[reportPrivateUsage]
from mlir_passes.schedule.expense import expense
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import keep_all, replay


def searched(problem: Problem, budget: int, minimise: str = "energy", most: int = 6) -> Found:
    return search(Task(problem, budget, expense(problem, minimise)), None, inf, 20.0, most, most)


@pytest.mark.parametrize("seed", range(40))
def test_optimum_equals_that_of_exhaustive_search(seed: int) -> None:
    problem, budget = drawn(seed)
    minimise = "time" if seed % 4 == 3 else "energy"
    costs = expense(problem, minimise)
    best, found = optimum(problem, budget, minimise), searched(problem, budget, minimise)
    if best is None:
        assert found.steps is None and found.bound == inf
        return
    extra, tolerance = best.cost - costs.once, 1e-4 * costs.once
    if found.steps is not None:
        assert costs.of(replay(problem, found.steps, budget)) == pytest.approx(costs.once + found.overhead)
    assert found.overhead >= extra - tolerance
    # Exhaustive search may compute ops in any order, and after the last op; the exact search's events exclude that.
    if chart_of(problem, best.steps) is not None:
        assert found.overhead <= extra + tolerance
        assert found.bound <= extra + tolerance


def test_most_optima_lie_on_the_line_of_events() -> None:
    lines = [best.steps for seed in range(40) if (best := optimum(*drawn(seed)))]
    problems = [drawn(seed)[0] for seed in range(40) if optimum(*drawn(seed))]
    on_line = sum(chart_of(p, steps) is not None for p, steps in zip(problems, lines, strict=True))
    assert on_line >= 0.9 * len(lines)


def test_hint_is_where_the_search_begins() -> None:
    problem, budget = drawn(4)
    first = searched(problem, budget)
    assert first.steps is not None
    again = search(
        Task(problem, budget, expense(problem, "energy")), first.steps, max(first.overhead, 1e-9), 20.0, 6, 6
    )
    assert again.overhead <= first.overhead + 1e-9


def test_deadline_bounds_the_computing_time() -> None:
    bound = 0
    for seed in range(8, 18):
        problem, budget = drawn(seed)
        task = Task(problem, budget, expense(problem, "energy"), deadline_s=1.1 * problem.time_s, share=1.0)
        found = search(task, None, inf, 20.0, 4, 4)
        if found.steps is not None:
            assert replay(problem, found.steps).time_s <= 1.1 * problem.time_s + 1e-9
            bound += searched(problem, budget, most=4).overhead < found.overhead - 1e-9
    assert bound > 0


def test_ways_that_are_off_are_not_used() -> None:
    for seed in range(6):
        problem, budget = drawn(seed)
        costs = expense(problem, "energy")
        found = search(Task(problem, budget, costs, remat=False), None, inf, 20.0, 4, 4)
        assert found.steps is None or replay(problem, found.steps).remats == 0
        found = search(Task(problem, budget, costs, paging=False), None, inf, 20.0, 4, 4)
        assert found.steps is None or replay(problem, found.steps).pages_in == 0


def test_chart_and_back_is_the_same_line_or_a_cheaper_one() -> None:
    charts = 0
    for seed in range(60):
        rng = random.Random(seed)
        problem = random_problem(rng, rng.randint(3, 12), state=2)
        steps = decode(problem, random_holds(problem, rng)).steps
        chart = chart_of(problem, steps)
        if chart is not None:
            charts += 1
            before, after = replay(problem, steps), replay(problem, steps_of(problem, chart))
            assert after.energy_j <= before.energy_j + 1e-9 and after.peak_bytes <= before.peak_bytes, seed
    assert charts > 50


class Endless:
    """Solves until it is told to stop."""

    def __init__(self) -> None:
        self.parameters = SimpleNamespace()
        self._told = threading.Event()

    def solve(self, model: object) -> str:
        return "stopped" if self._told.wait(20) else "ended"

    def stop_search(self) -> None:
        self._told.set()


def test_ctrl_c_stops_the_solver_and_is_told() -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert _answer(Endless(), None) == ("stopped", True)


@pytest.mark.parametrize("limit_s", [0.0, 0.05, 0.2])
def test_time_that_is_up_is_no_ctrl_c(limit_s: float) -> None:
    problem = training_problem(random.Random(1), layers=40)
    budget = replay(problem, keep_all(problem)).peak_bytes * 2 // 3
    assert not search(Task(problem, budget, expense(problem, "energy")), None, inf, limit_s).stopped

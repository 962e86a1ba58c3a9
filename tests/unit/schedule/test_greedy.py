"""The greedy way keeps to the budget where it says so, and is not far from the optimum of small problems."""

from __future__ import annotations

import random

import pytest
from brute import optimum, smallest_budget
from random_problems import random_problem, training_problem

from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.steps import keep_all, replay


def test_greedy_is_within_the_budget_and_never_below_the_optimum() -> None:
    feasible = exact = 0
    for seed in range(24):
        rng = random.Random(seed)
        problem = random_problem(rng, rng.randint(4, 6)) if seed % 2 else training_problem(rng, 1)
        most = replay(problem, keep_all(problem)).peak_bytes
        budget = (smallest_budget(problem) + most) // 2
        best = optimum(problem, budget)
        assert best is not None
        usage = replay(problem, decode(problem, greedy(problem, budget)).steps)
        feasible += usage.peak_bytes <= budget
        exact += usage.peak_bytes <= budget and usage.energy_j == best.cost
        assert usage.peak_bytes > budget or usage.energy_j >= best.cost
    assert feasible >= 20
    assert exact >= 12


@pytest.mark.parametrize("allow", [{"remat"}, {"page"}])
def test_only_what_is_allowed_is_done(allow: set[str]) -> None:
    used = 0
    for seed in range(12):
        problem = training_problem(random.Random(seed), 4)
        budget = replay(problem, keep_all(problem)).peak_bytes - 6
        usage = replay(problem, decode(problem, greedy(problem, budget, allow=allow)).steps)
        used += usage.remats + usage.pages_in
        assert (usage.remats if allow == {"page"} else usage.pages_in) == 0
    assert used > 0


def test_nothing_changes_where_there_is_room() -> None:
    problem = training_problem(random.Random(1), 3)
    assert greedy(problem, replay(problem, keep_all(problem)).peak_bytes) == ()

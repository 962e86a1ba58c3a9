"""The evolution keeps what it has, says what it finds, and reaches the optimum of small problems."""

from __future__ import annotations

import math
import random

from brute import optimum, smallest_budget
from random_problems import random_problem, training_problem

from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.evolve import evolve
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.steps import keep_all, replay


def test_it_reaches_the_optimum_of_small_problems() -> None:
    exact = 0
    for seed in range(12):
        rng = random.Random(seed)
        problem = random_problem(rng, rng.randint(4, 6)) if seed % 2 else training_problem(rng, 1)
        budget = (smallest_budget(problem) + replay(problem, keep_all(problem)).peak_bytes) // 2
        best = optimum(problem, budget)
        assert best is not None
        found = evolve(problem, budget, math.inf, [greedy(problem, budget)], 500, rng)
        usage = replay(problem, decode(problem, found).steps)
        assert usage.peak_bytes > budget or usage.energy_j >= best.cost
        exact += usage.peak_bytes <= budget and usage.energy_j == best.cost
    assert exact >= 10


def test_it_is_never_worse_than_its_seed_and_tells_of_each_better_one() -> None:
    problem = training_problem(random.Random(5), 5)
    budget = replay(problem, keep_all(problem)).peak_bytes * 3 // 4
    seed = greedy(problem, budget)
    told: list[tuple[tuple[Hold, ...], float]] = []
    found = evolve(
        problem, budget, math.inf, [seed], 600, random.Random(0), on_best=lambda *best: told.append(best)
    )  # fmt: skip
    before, after = (replay(problem, decode(problem, genes).steps) for genes in (seed, found))
    assert before.peak_bytes <= budget
    replay(problem, decode(problem, found).steps, budget)
    assert after.energy_j <= before.energy_j
    for genes, cost in told:
        assert replay(problem, decode(problem, genes).steps, budget).energy_j == cost
    assert [cost for _, cost in told] == sorted({cost for _, cost in told}, reverse=True)
    assert not told or told[-1] == (found, after.energy_j)
    assert found == evolve(problem, budget, math.inf, [seed], 600, random.Random(0))


def test_it_stops_when_told_and_minds_the_deadline() -> None:
    problem = training_problem(random.Random(3), 3)
    budget = replay(problem, keep_all(problem)).peak_bytes - 4
    seed = greedy(problem, budget)
    assert evolve(problem, budget, math.inf, [seed], 10**9, random.Random(0), stop=lambda: True) == seed
    found = evolve(problem, budget, problem.time_s, [seed, ()], 300, random.Random(0))
    late = replay(problem, decode(problem, seed).steps).time_s > problem.time_s
    assert late
    assert replay(problem, decode(problem, found).steps).time_s < replay(problem, decode(problem, seed).steps).time_s

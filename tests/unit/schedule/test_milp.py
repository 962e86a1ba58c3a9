"""POET's integer program, another model in another solver, has the same optima."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from random_problems import training_problem

from mlir_passes.schedule.solve import Request, solve

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from schedule_graphs import graph
from schedule_milp import solve_milp


@pytest.mark.parametrize("network, budget", [("linear", 3337), ("linear", 4400), ("transformer", 35_861_299)])
def test_optimum_is_that_of_the_integer_program(network: str, budget: int) -> None:
    problem = graph(network)
    verdict = solve_milp(problem, budget, 2 * problem.time_s, 60.0)
    solution = solve(problem, Request(budget, 2 * problem.time_s, time_limit_s=20.0))
    assert verdict.status == "Optimal"
    overhead = solution.usage.energy_j - problem.energy_j
    assert overhead == pytest.approx(verdict.overhead_j, rel=1e-4, abs=1e-9 * problem.energy_j)


def test_budget_under_the_largest_op_is_infeasible_there_too() -> None:
    assert solve_milp(graph("linear"), 3255).status == "Infeasible"


def test_program_refuses_what_it_cannot_state() -> None:
    with pytest.raises(ValueError, match="alone"):
        solve_milp(training_problem(random.Random(0)), 100)

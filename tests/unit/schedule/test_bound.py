"""The cut bound never says more than the optimum, and often as much."""

from __future__ import annotations

import random
from math import inf

import pytest
from brute import optimum
from random_problems import random_problem

from mlir_passes.schedule.bound import Bound, Cuts, live_bytes
from mlir_passes.schedule.expense import expense
from mlir_passes.schedule.infeasible import Infeasible, floor
from mlir_passes.schedule.problem import START, Problem, Tensor
from mlir_passes.schedule.request import Request
from mlir_passes.schedule.solve import solve
from mlir_passes.schedule.steps import keep_all, replay


def drawn(seed: int) -> tuple[Problem, int]:
    """A problem, and a budget between its largest working set and what keeping everything takes."""
    rng = random.Random(seed)
    problem = random_problem(rng, rng.randint(3, 6), state=1)
    return problem, rng.randint(floor(problem).bytes, replay(problem, keep_all(problem)).peak_bytes)


def bound_of(problem: Problem, budget: int, minimise: str = "energy", remat: bool = True, paging: bool = True) -> Bound:
    return Cuts(problem, budget, expense(problem, minimise), remat=remat, paging=paging).bound()


@pytest.mark.parametrize("minimise", ["energy", "time"])
@pytest.mark.parametrize("remat, paging", [(True, True), (True, False), (False, True)])
def test_bound_is_no_more_than_the_optimum(minimise: str, remat: bool, paging: bool) -> None:
    tight = 0
    for seed in range(25):
        problem, budget = drawn(seed)
        best = optimum(problem, budget, minimise, remat, paging)
        if best is None:
            continue
        once = expense(problem, minimise).once
        bound = bound_of(problem, budget, minimise, remat, paging)
        assert bound.overhead <= best.cost - once + 1e-6, seed
        tight += bound.overhead > best.cost - once - 1e-6
    assert tight > 5


def test_no_bound_where_everything_can_be_kept() -> None:
    problem, _ = drawn(0)
    peak = replay(problem, keep_all(problem)).peak_bytes
    assert bound_of(problem, peak).overhead == 0.0


def test_what_the_bound_says_impossible_is_so() -> None:
    impossible = 0
    for seed in range(60):
        problem, _ = drawn(seed)
        budget = floor(problem).bytes
        if bound_of(problem, budget, remat=False).overhead == inf:
            impossible += 1
            assert optimum(problem, budget, remat=False) is None, seed
    assert impossible > 0


@pytest.mark.parametrize("seed", range(10))
def test_live_bytes_reach_the_peak_of_keeping_everything(seed: int) -> None:
    problem, _ = drawn(seed)
    assert max(live_bytes(problem)) == replay(problem, keep_all(problem)).peak_bytes


@pytest.mark.parametrize("seed", range(10))
def test_nothing_fits_under_the_largest_working_set(seed: int) -> None:
    problem, _ = drawn(seed)
    assert optimum(problem, floor(problem).bytes - 1) is None


def test_deadline_raises_the_bound() -> None:
    raised = 0
    for seed in range(30):
        problem, budget = drawn(seed)
        costs = expense(problem, "energy")
        free = Cuts(problem, budget, costs).bound().overhead
        late = Cuts(problem, budget, costs, deadline_s=problem.time_s * 1.02).bound().overhead
        assert late >= free - 1e-9
        raised += late > free + 1e-9
    assert raised > 0


def test_a_step_without_ops_needs_what_it_is_given() -> None:
    nothing = Problem((), (Tensor("arg0", 64, START, (), final=True),))
    assert floor(nothing).bytes == 64 and replay(nothing, keep_all(nothing)).peak_bytes == 64
    with pytest.raises(Infeasible, match="64 bytes suffice"):
        solve(nothing, Request(63, time_limit_s=2.0))

"""A problem knows what must stay true of it: by hand, and under other orders."""

from __future__ import annotations

import random

import pytest
from random_problems import linked, random_problem

from mlir_passes.schedule.problem import START, Op, Problem, Tensor

WEIGHT, HIDDEN, LOSS = range(3)


def small() -> Problem:
    """use reads the weight, spare reads nothing of it, update overwrites it."""
    tensors = [
        Tensor("weight", 4, START, (), updater=2, final=True),
        Tensor("hidden", 2, 0, ()),
        Tensor("loss", 1, 1, (), final=True),
    ]
    ops = [
        Op("use", (WEIGHT,), (HIDDEN,), 1.0, 2.0),
        Op("spare", (HIDDEN,), (LOSS,), 1.0, 4.0),
        Op("update", (WEIGHT, HIDDEN), (), 1.0, 8.0),
    ]
    return linked(ops, tensors)


def test_limits_of_recomputation_and_of_life() -> None:
    problem = small()
    assert problem.updates == ((), (), (WEIGHT,))
    assert problem.until == (2, 2, -1)
    assert problem.last == (2, 2, 2)
    assert (problem.energy_j, problem.time_s) == (14.0, 3.0)


def test_an_order_moves_ops_and_keeps_what_they_do() -> None:
    assert [op.name for op in small().reordered([0, 2, 1]).ops] == ["use", "update", "spare"]
    assert small().reordered([0, 2, 1]).until == (1, -1, 2)


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 0, 1], [0, 1], [0, 0, 1]])
def test_an_order_against_the_data_is_refused(order: list[int]) -> None:
    with pytest.raises(ValueError):
        small().reordered(order)


@pytest.mark.parametrize("seed", range(30))
def test_an_order_and_its_inverse_give_the_problem_back(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng)
    order = list(range(len(problem.ops)))
    first = rng.randrange(len(order) - 1)
    order[first], order[first + 1] = order[first + 1], order[first]
    try:
        other = problem.reordered(order)
    except ValueError:
        made, read = set(problem.ops[first].makes), set(problem.ops[first + 1].reads)
        assert made & read or any(problem.tensors[t].updater == first + 1 for t in problem.ops[first].reads)
        return
    assert other.reordered(order) == problem

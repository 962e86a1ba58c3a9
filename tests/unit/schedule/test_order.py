"""Other orders take less memory as the replay counts it, and few genes say them."""

from __future__ import annotations

import random
from itertools import permutations

from random_problems import linked, random_problem
from test_decode import drawn

from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.genes import Before
from mlir_passes.schedule.order import better_order, moves
from mlir_passes.schedule.problem import Op, Problem, Tensor
from mlir_passes.schedule.steps import keep_all, replay


def peak(problem: Problem) -> int:
    return replay(problem, keep_all(problem)).peak_bytes


def test_an_order_is_valid_better_or_none_and_the_same_each_time() -> None:
    better = 0
    for problem, _ in map(drawn, range(40)):
        order = better_order(problem, random.Random(1), 100)
        gained = peak(problem) - peak(problem.reordered(order))
        assert gained > 0 or order == tuple(range(len(problem.ops)))
        assert order == better_order(problem, random.Random(1), 100)
        better += gained > 0
    assert better > 5


def test_it_finds_the_least_peak_of_small_problems() -> None:
    found = 0
    for seed in range(10):
        problem = random_problem(random.Random(seed), 5)
        least = min(peak(other) for other in orders(problem))
        found += peak(problem.reordered(better_order(problem, random.Random(0), 400))) == least
    assert found >= 9


def orders(problem: Problem) -> list[Problem]:
    valid: list[Problem] = []
    for order in permutations(range(len(problem.ops))):
        try:
            valid.append(problem.reordered(order))
        except ValueError:
            continue
    return valid


def test_the_genes_of_an_order_give_it() -> None:
    for problem, _ in map(drawn, range(40)):
        order = better_order(problem, random.Random(2), 60)
        found = decode(problem, moves(problem, order))
        assert found.problem == problem.reordered(order)
        assert not found.dropped


def test_an_order_takes_one_gene_for_each_op_that_moves() -> None:
    ops = [Op(f"op{number}", (), (number,), 1.0, 1.0) for number in range(6)]
    problem = linked(ops, [Tensor(f"op{number}#0", 1, number, ()) for number in range(6)])
    assert moves(problem, [0, 4, 1, 2, 3, 5]) == (Before("op4", "op1"),)
    assert moves(problem, range(6)) == ()
    for order in permutations(range(6)):
        found = decode(problem, moves(problem, order))
        assert found.problem.ops == tuple(ops[number] for number in order)

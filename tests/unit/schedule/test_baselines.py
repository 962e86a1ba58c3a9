import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
sys.path.append(str(Path(__file__).parent))
from brute import optimum
from random_problems import linked, random_problem, training_problem

from mlir_passes.schedule.problem import START, Op, Problem, Tensor
from mlir_passes.schedule.steps import Step, keep_all, replay
from schedule_capuchin import capuchin_steps, greedy_remat_steps
from schedule_chain import chain_steps
from schedule_graphs import graph, keep_all_bytes
from schedule_stages import chain_of


def offloaded_chain(problem: Problem, budget: int) -> tuple[Step, ...] | None:
    return chain_steps(problem, budget, offload=True)


BASELINES = {
    "capuchin": (capuchin_steps, True),
    "greedy remat": (greedy_remat_steps, False),
    "chain": (chain_steps, False),
    "chain, offload": (offloaded_chain, True),
}
FRACTIONS = (0.85, 0.7, 0.55)


def network(sizes: list[int], costs: list[int]) -> Problem:
    """The forward of a chain of layers, and a backward whose ops read a layer's input, its output and the gradient."""
    layers = len(sizes)
    tensors = [Tensor(f"a{i}", sizes[i], i, (), out_j=costs[i] / 8, in_j=costs[i] / 8) for i in range(layers)]
    ops = [Op(f"forward{i}", (i - 1,) if i else (), (i,), 1.0, float(costs[i])) for i in range(layers)]
    for layer in reversed(range(layers)):
        number = len(ops)
        reads = [layer, *([layer - 1] if layer else []), *([number - 1] if layer < layers - 1 else [])]
        ops.append(Op(f"backward{layer}", tuple(reads), (number,), 2.0, 2.0 * costs[layer]))
        tensors.append(Tensor(f"d{layer}", sizes[layer], number, (), out_j=9.0, in_j=9.0))
    return linked(ops, tensors)


def random_cases() -> Iterator[tuple[Problem, int]]:
    for seed in range(40):
        rng = random.Random(seed)
        if seed < 8:
            problem = random_problem(rng, 4) if seed % 2 else training_problem(rng, 1, momentum=False)
        else:
            layers = rng.randint(2, 4)
            problem = network([rng.randint(1, 5) for _ in range(layers)], [rng.randint(1, 9) for _ in range(layers)])
        peak = keep_all_bytes(problem)
        yield from ((problem, int(peak * fraction)) for fraction in FRACTIONS)


@pytest.fixture(scope="module")
def optima() -> dict[tuple[int, bool], float]:
    """Joules of the optimum of each random case with and without paging; infinite where there is none."""
    cases = enumerate(random_cases())
    found = {(i, page): optimum(*case, paging=page) for i, case in cases for page in (False, True)}
    return {key: inf if best is None else best.cost for key, best in found.items()}


@pytest.mark.parametrize("name", BASELINES)
def test_a_line_is_within_the_budget_and_never_better_than_the_optimum(
    name: str, optima: dict[tuple[int, bool], float]
) -> None:
    steps_of, paging = BASELINES[name]
    shorter = 0
    for number, (problem, budget) in enumerate(random_cases()):
        steps = steps_of(problem, budget)
        if steps is not None:
            assert replay(problem, steps, budget).energy_j >= optima[number, paging] - 1e-9
            shorter += steps != keep_all(problem)
    assert shorter > 0


@pytest.mark.parametrize("layers", [2, 3, 4, 5, 6])
def test_the_chain_programme_is_the_optimum_of_chains_of_equal_sizes(layers: int) -> None:
    rng = random.Random(layers)
    for costs in ([1] * layers, [rng.randint(1, 9) for _ in range(layers)]):
        problem = network([1] * layers, costs)
        for budget in range(2, keep_all_bytes(problem) + 1):
            best = optimum(problem, budget, paging=False)
            steps = chain_steps(problem, budget)
            assert (steps is None) == (best is None)
            if steps is not None and best is not None:
                assert replay(problem, steps, budget).energy_j == best.cost


def test_offload_takes_the_place_of_dear_recomputation() -> None:
    problem = network([4] * 6, [8] * 6)
    budget = 20
    alone, both = chain_steps(problem, budget), offloaded_chain(problem, budget)
    assert alone is not None and both is not None
    assert replay(problem, both, budget).pages_in > 0
    assert replay(problem, both, budget).energy_j < replay(problem, alone, budget).energy_j


def test_coarse_slots_refuse_and_never_exceed() -> None:
    problem = network([97, 131, 89, 113, 101], [3, 5, 2, 7, 1])
    for budget in range(300, keep_all_bytes(problem), 50):
        coarse, fine = chain_steps(problem, budget, slots=25), chain_steps(problem, budget, slots=2000)
        if coarse is not None:
            assert fine is not None
            assert replay(problem, coarse, budget).energy_j >= replay(problem, fine, budget).energy_j


def test_layers_are_stages_and_a_skip_connection_makes_one_of_what_it_spans() -> None:
    plain = chain_of(graph("linear"))
    assert plain is not None and len(plain.stages) == 14
    problem = network([1] * 6, [1] * 6)
    bridged = replace(problem.ops[4], reads=(1, 3))  # the second layer's output is added to the fourth's
    chain = chain_of(linked([*problem.ops[:4], bridged, *problem.ops[5:]], list(problem.tensors)))
    assert chain is not None
    assert [stage.carrier for stage in chain.stages] == [0, 1, 4, -1]


def test_a_forward_that_updates_state_on_the_way_is_not_repeated() -> None:
    found = 0
    for seed in range(20):
        problem = network([3, 1, 3, 1, 3, 1], [seed % 5 + 1] * 6)
        count = Tensor("count", 1, START, (), final=True)
        counting = replace(problem.ops[2], reads=(1, len(problem.tensors)))
        counted = linked([*problem.ops[:2], counting, *problem.ops[3:]], [*problem.tensors, replace(count, updater=2)])
        budget = int(keep_all_bytes(counted) * (0.6 + seed / 60))
        steps = chain_steps(counted, budget)
        if steps is not None and steps != keep_all(counted):
            assert replay(counted, steps, budget).remats > 0
            found += 1
    assert found > 0


def test_capuchin_swaps_what_hides_and_recomputes_what_does_not() -> None:
    problem = network([4] * 6, [1] * 6)
    budget = keep_all_bytes(problem) - 4
    quick, slow = (
        replace(problem, tensors=tuple(replace(t, out_s=seconds, in_s=seconds) for t in problem.tensors))
        for seconds in (0.01, 100.0)
    )
    swapped, remade = capuchin_steps(quick, budget), capuchin_steps(slow, budget)
    assert swapped is not None and remade is not None
    assert (replay(quick, swapped).pages_in > 0, replay(quick, swapped).remats) == (True, 0)
    assert (replay(slow, remade).pages_in, replay(slow, remade).remats > 0) == (0, True)


@pytest.mark.parametrize("fraction", [0.9, 0.6, 0.5])
@pytest.mark.parametrize("name", BASELINES)
def test_a_network_of_the_paper_fits_its_budget(name: str, fraction: float) -> None:
    problem = graph("linear")
    budget = int(keep_all_bytes(problem) * fraction)
    steps = BASELINES[name][0](problem, budget)
    assert steps is not None
    assert replay(problem, steps, budget).energy_j >= problem.energy_j


def test_nothing_fits_a_budget_under_the_working_set() -> None:
    problem = graph("linear")
    assert [steps_of(problem, 3255) for steps_of, _ in BASELINES.values()] == [None] * len(BASELINES)


def test_each_technique_alone_uses_only_that_and_both_take_least() -> None:
    pytest.importorskip("ortools")
    pytest.importorskip("highspy")
    from schedule_baselines import WAYS, Effort

    problem = graph("linear")
    budget = int(keep_all_bytes(problem) * 0.5)
    found = {name: way(problem, budget, Effort(seconds=3.0)) for name, way in WAYS.items()}
    usage = {name: replay(problem, steps, budget) for name, steps in found.items() if steps is not None}
    assert set(WAYS) - set(usage) == {"keep all"}
    assert (usage["paging only"].remats, usage["remat only"].pages_in) == (0, 0)
    assert usage["ours"].energy_j <= min(u.energy_j for u in usage.values()) * (1 + 1e-6)

"""Whatever the genes, their line is valid; and a line and its genes say the same."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from brute import optimum, smallest_budget
from random_genes import random_holds
from random_problems import random_dag, random_problem, training_problem
from test_problem import small

from mlir_passes.schedule.decode import decode, encode, to_genes, to_holds
from mlir_passes.schedule.exact import Task, search
from mlir_passes.schedule.expense import expense
from mlir_passes.schedule.genes import Before, Gene, Hold, from_plain, to_plain
from mlir_passes.schedule.infeasible import floor
from mlir_passes.schedule.problem import START, Op, Problem, Tensor
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, keep_all, replay
from mlir_passes.schedule.walk import Walker

SEEDS = range(150)


def drawn(seed: int) -> tuple[Problem, random.Random]:
    rng = random.Random(seed)
    if seed % 2:
        return random_problem(rng, rng.randint(2, 10), state=3), rng
    return training_problem(rng, rng.randint(1, 5), bool(seed & 2), bool(seed & 4)), rng


@pytest.mark.parametrize("seed", range(0, 20))
def test_no_genes_keep_everything(seed: int) -> None:
    problem, _ = drawn(seed)
    found = decode(problem, ())
    assert replay(problem, found.steps) == replay(problem, keep_all(problem))
    assert (encode(problem, found.steps), found.dropped) == ((), ())


def test_the_line_is_valid_whatever_the_genes_and_the_walk_counts_as_the_replay_does() -> None:
    late = 0
    for problem, rng in map(drawn, SEEDS):
        genes = random_holds(problem, rng)
        found = decode(problem, genes)
        usage, walk = replay(problem, found.steps), Walker(problem).walk(to_holds(problem, genes)[0])
        assert (walk.energy_j, walk.time_s, walk.peak_bytes) == (usage.energy_j, usage.time_s, usage.peak_bytes)
        late += any("no more" in why for why in found.dropped)
    assert late > 10  # the case of a maker that cannot run so late was there


def test_a_line_has_genes_that_give_it_back() -> None:
    same = 0
    for problem, rng in map(drawn, SEEDS):
        line = decode(problem, random_holds(problem, rng)).steps
        back = decode(problem, encode(problem, line))
        usage, again = replay(problem, line), replay(problem, back.steps)
        same += again.energy_j == usage.energy_j
        assert again.energy_j <= usage.energy_j
        assert again.peak_bytes <= usage.peak_bytes
        assert not back.dropped
        assert decode(problem, encode(problem, back.steps)).steps == back.steps
    assert same >= len(SEEDS) - 2  # what is held through the last op may spare a recomputation after it


def test_optimal_lines_have_genes_that_are_as_good() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        problem = random_problem(rng, rng.randint(4, 6)) if seed % 2 else training_problem(rng, 1)
        budget = (smallest_budget(problem) + replay(problem, keep_all(problem)).peak_bytes) // 2
        best = optimum(problem, budget)
        assert best is not None
        assert replay(problem, best.steps, budget).energy_j == best.cost
        back = decode(problem, encode(problem, best.steps))
        assert replay(problem, back.steps, budget).energy_j == best.cost


def test_names_and_numbers_of_genes_say_the_same() -> None:
    for problem, rng in map(drawn, range(20)):
        holds, _ = to_holds(problem, random_holds(problem, rng))
        assert to_holds(problem, to_genes(problem, holds)) == (holds, ())


def test_what_is_not_held_is_made_again_or_read_in() -> None:
    again = decode(small(), [Hold("hidden", False, ())])
    assert [s.index for s in again.steps if s.kind == Kind.COMPUTE] == [0, 0, 1, 0, 2]
    paged = decode(small(), [Hold("hidden", True, (("use", "spare"),))])
    kinds = [(s.kind, s.index) for s in paged.steps if s.kind != Kind.FREE]
    assert kinds == [("compute", 0), ("compute", 1), ("out", 1), ("in", 1), ("compute", 2)]
    home = decode(small(), [Hold("weight", True, ())])
    kinds = [(s.kind, s.index) for s in home.steps if s.index == 0 and s.kind != Kind.COMPUTE]
    assert kinds == [("in", 0), ("free", 0), ("in", 0), ("out", 0), ("free", 0)]


@pytest.mark.parametrize(
    ("gene", "why"),
    [
        (Hold("nothing", False, ()), "no such tensor"),
        (Hold("hidden", False, (("use", "nowhere"),)), "no op nowhere"),
        (Hold("hidden", False, (("update", "use"),)), "ends before it begins"),
        (Hold("weight", False, ()), "stays in memory"),
        (Before("spare", "use"), "against the order"),
        (Before("spare", "nowhere"), "no such ops"),
    ],
)
def test_what_cannot_be_honoured_is_named_and_left_out(gene: Gene, why: str) -> None:
    found = decode(small(), [gene])
    assert why in found.dropped[0]
    assert found.steps == decode(small(), ()).steps


def test_what_is_final_may_be_made_again_in_the_last_stage() -> None:
    tensors = (
        Tensor("weight", 4, START, (0, 2), updater=2),
        Tensor("metric", 5, 0, (), final=True),
        Tensor("next", 4, 2, (), final=True),
    )
    ops = (Op("norm", (0,), (1,), 1.0, 1.0), Op("big", (), (), 1.0, 1.0, 9), Op("update", (0,), (2,), 1.0, 1.0))
    problem = Problem(ops, tensors)
    late = Hold("metric", False, (("update", "update"),))  # after the update it is too late
    line = decode(problem, [late]).steps
    assert [s.index for s in line if s.kind == Kind.COMPUTE] == [0, 1, 0, 2]
    assert replay(problem, line, 13).remats == 1
    assert encode(problem, line) == (late,)


def test_order_genes_move_one_op_each() -> None:
    found = decode(small(), [Before("update", "spare")])
    assert [op.name for op in found.problem.ops] == ["use", "update", "spare"]
    replay(found.problem, found.steps)


def test_lines_without_genes_are_refused() -> None:
    waits = [*keep_all(small())[:1], Step(Kind.OUT, 1), Step(Kind.OUT_DONE, 1), *keep_all(small())[1:]]
    with pytest.raises(ScheduleError, match="blocking"):
        encode(small(), waits)


MADE_UP = {
    "dag": random_dag,
    "state": lambda rng: random_problem(rng, 7, state=2),
    "training": lambda rng: training_problem(rng, 2),
}


@pytest.mark.parametrize("kind", ["dag", "state", "training"])
def test_lines_of_the_exact_search_have_genes_that_cost_the_same(kind: str) -> None:
    """Among them are lines in which a tensor leaves memory within the last stage, or comes back in two ways."""
    detailed = 0
    for seed in range(40 if kind == "dag" else 20):
        rng = random.Random(seed)
        problem = MADE_UP[kind](rng)
        low, high = floor(problem).bytes, replay(problem, keep_all(problem)).peak_bytes
        budget, minimise = rng.randint(low, max(low, high - 1)), rng.choice(["energy", "time"])
        costs = expense(problem, minimise)
        found = search(Task(problem, budget, costs), None, math.inf, 5.0, 4, 4)
        if found.steps is not None:
            genes = encode(problem, found.steps)
            detailed += any(gene.other or gene.leaves for gene in genes)
            back = decode(problem, from_plain(to_plain(genes)))
            assert not back.dropped
            before, after = replay(problem, found.steps, budget), replay(problem, back.steps, budget)
            assert costs.of(after) <= costs.of(before) * (1 + 1e-12)
    assert detailed or kind != "dag"


def test_a_tensor_leaves_memory_within_a_stage() -> None:
    """`first` is needed to make `again` once more in the last stage, and there is no room for it beside the last op."""
    tensors = (
        Tensor("first", 4, 0, (1,)),
        Tensor("again", 2, 1, (2, 3)),
        Tensor("large", 4, 2, (3,)),
        Tensor("result", 2, 3, ()),
    )
    ops = tuple(
        Op(name, reads, (makes,), 1.0, 1.0, work)
        for name, reads, makes, work in [("a", (), 0, 0), ("b", (0,), 1, 0), ("c", (1,), 2, 0), ("d", (1, 2), 3, 2)]
    )
    problem = Problem(ops, tensors)
    held = Hold("first", False, (("a", "d"),))
    again = Hold("again", False, ())
    line = decode(problem, [replace(held, leaves=(("d", "b"),)), again]).steps
    assert (
        replay(problem, line).peak_bytes == 10
        and replay(problem, decode(problem, [held, again]).steps).peak_bytes == 14
    )
    assert encode(problem, line) == (replace(held, leaves=(("d", "b"),)), again)


def test_a_tensor_comes_back_the_other_way_where_it_is_said() -> None:
    def brought(paged: bool) -> list[tuple[str, int]]:
        gene = Hold("hidden", paged, (), other=("update",))
        return [(s.kind, s.index) for s in decode(small(), [gene]).steps if s.kind != Kind.FREE]

    begun = [("compute", 0), ("out", 1)]
    assert brought(False) == [*begun, ("compute", 0), ("compute", 1), ("in", 1), ("compute", 2)]
    assert brought(True) == [*begun, ("in", 1), ("compute", 1), ("compute", 0), ("compute", 2)]


def test_details_are_honoured_or_left_out_whatever_they_say() -> None:
    changed = 0
    for problem, rng in map(drawn, SEEDS):
        names = [op.name for op in problem.ops]
        plain = random_holds(problem, rng)
        genes = [
            replace(gene, other=tuple(rng.choices(names, k=2)), leaves=((rng.choice(names), rng.choice(names)),))
            for gene in plain
        ]
        found = decode(problem, genes)
        replay(problem, found.steps)
        changed += found.steps != decode(problem, plain).steps
    assert changed > 20

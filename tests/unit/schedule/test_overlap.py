"""Overlapped lines do the same within the same memory, and no slower."""

from __future__ import annotations

import random

import pytest
from random_genes import random_holds
from test_decode import drawn
from test_problem import HIDDEN, LOSS, small

from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.overlap import makespan, overlapped, waiting
from mlir_passes.schedule.problem import Op, Problem, Tensor
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, keep_all, replay


def test_the_same_computes_and_transfers_within_the_budget_and_no_slower() -> None:
    faster = 0
    for problem, rng in map(drawn, range(50)):
        line = decode(problem, random_holds(problem, rng)).steps
        blocking = replay(problem, line)
        budget = blocking.peak_bytes * rng.choice((10, 12)) // 10
        found = overlapped(problem, line, budget)
        usage = replay(problem, found.steps, budget)
        assert (usage.energy_j, usage.pages_in, usage.remats) == (
            blocking.energy_j, blocking.pages_in, blocking.remats
        )  # fmt: skip
        computes = [step for step in line if step.kind == Kind.COMPUTE]
        assert [step for step in found.steps if step.kind == Kind.COMPUTE] == computes
        seconds = sum(problem.ops[step.index].time_s for step in computes)
        assert max(seconds, blocking.time_s - seconds) <= found.makespan_s <= blocking.time_s
        assert found.makespan_s == makespan(problem, found.steps)
        assert found.stall_s == found.makespan_s - seconds
        faster += found.makespan_s < blocking.time_s
    assert faster > 25


def test_a_line_that_waits_at_once_takes_as_long_as_its_blocking_form() -> None:
    for problem, rng in map(drawn, range(30)):
        line = decode(problem, random_holds(problem, rng)).steps
        assert makespan(problem, line) == makespan(problem, waiting(line)) == replay(problem, line).time_s


def line_of_four(out_s: float, in_s: float) -> tuple[Problem, list[Step]]:
    """a, two ops that do not need it while it is paged, and one that does."""
    ops = (Op("make", (), (0,), 1.0, 1.0), Op("b", (), (1,), 4.0, 1.0), Op("c", (), (2,), 4.0, 1.0))
    tensors = (
        Tensor("a", 8, 0, (3,), out_s=out_s, in_s=in_s), Tensor("x", 8, 1, ()), Tensor("y", 8, 2, ())
    )  # fmt: skip
    problem = Problem((*ops, Op("use", (0,), (), 1.0, 1.0)), tensors)
    steps = [(Kind.COMPUTE, 0), (Kind.OUT, 0), (Kind.FREE, 0), (Kind.COMPUTE, 1), (Kind.FREE, 1), (Kind.COMPUTE, 2)]
    steps += [(Kind.FREE, 2), (Kind.IN, 0), (Kind.COMPUTE, 3), (Kind.FREE, 0)]
    return problem, [Step(*step) for step in steps]


def test_transfers_hide_behind_computes_where_there_is_memory() -> None:
    problem, line = line_of_four(out_s=3.0, in_s=3.0)
    assert replay(problem, line).time_s == 16.0
    assert overlapped(problem, line, 16).makespan_s == 10.0  # written beside b, read beside c
    assert overlapped(problem, line, 8).makespan_s == 16.0  # its memory is needed at once, and to the end


def test_a_transfer_longer_than_what_hides_it_stalls() -> None:
    problem, line = line_of_four(out_s=3.0, in_s=6.0)
    found = overlapped(problem, line, 16)
    assert (found.makespan_s, found.stall_s) == (12.0, 2.0)


def test_the_makespan_obeys_each_wait() -> None:
    problem, _ = line_of_four(out_s=3.0, in_s=3.0)
    start = [Step(Kind.COMPUTE, 0), Step(Kind.OUT, 0)]
    rest = [Step(Kind.COMPUTE, 1), Step(Kind.COMPUTE, 2), Step(Kind.COMPUTE, 3)]
    assert makespan(problem, [*start, Step(Kind.OUT_DONE, 0), *rest]) == 13.0
    assert makespan(problem, [*start, *rest, Step(Kind.OUT_DONE, 0)]) == 10.0


def test_lines_that_cannot_be_overlapped_are_refused() -> None:
    problem = small()
    with pytest.raises(ScheduleError, match="budget is 6"):
        overlapped(problem, keep_all(problem), 6)
    with pytest.raises(ScheduleError, match="blocking"):
        overlapped(problem, waiting([Step(Kind.COMPUTE, 0), Step(Kind.OUT, HIDDEN), Step(Kind.FREE, LOSS)]), 99)


def test_it_is_the_same_each_time() -> None:
    problem, rng = drawn(random.Random(0).randrange(100))
    line = decode(problem, random_holds(problem, rng)).steps
    assert overlapped(problem, line, 10**6) == overlapped(problem, line, 10**6)

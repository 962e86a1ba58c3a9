"""The exact search: the best chart with a limited number of computations of each op, and a proof of it.

A time limit is of all the work, the making of the model included.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import floor, inf
from typing import Any

from mlir_passes.schedule.chart import Chart, chart_of, steps_of
from mlir_passes.schedule.clock import Clock, TimeUp
from mlir_passes.schedule.covers import add_covers, add_cuts, hint_covers
from mlir_passes.schedule.expense import Expense
from mlir_passes.schedule.intervals import Intervals, Limits, reach, solver_library
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Step

_LARGE = 300  # ops from which on presolve costs more than it brings: measured on POET's resnet50 and bert31


@dataclass(frozen=True)
class Task:
    """What the exact search solves. share: of the transfers' time that adds to the computing time."""

    problem: Problem
    budget_bytes: int
    costs: Expense
    deadline_s: float = inf
    share: float = 0.0
    remat: bool = True
    paging: bool = True
    seed: int = 0
    workers: int = 1


@dataclass(frozen=True)
class Found:
    """steps: the best line, None if none was found. overhead: its cost beyond computing each op once. bound: proven of
    that overhead, within the limits; inf where there is no line. complete: the search ended by itself. stopped: by
    Ctrl-C. general: the limits exclude nothing that could be better.
    """

    steps: tuple[Step, ...] | None
    overhead: float
    bound: float
    complete: bool
    stopped: bool
    general: bool
    limits: Limits


def limits_for(task: Task, chart: Chart | None, overhead: float, computations: int, reads: int) -> tuple[Limits, bool]:
    """At least so many of each, and what the chart has, but no more than could be in a line of less overhead; and
    whether no better line could have more."""
    problem, costs = task.problem, task.costs
    last = reach(problem, task.remat).stage
    most_runs: list[float] = []
    for number in range(len(problem.ops)):
        again = last[number] - number
        most_runs.append(1 + min(again, _times(overhead, costs.compute[number])))
    most_reads: list[float] = []
    for index, tensor in enumerate(problem.tensors):
        once = costs.out[index] if tensor.maker != START or tensor.updater >= 0 else 0.0
        most = _times(overhead - once, costs.into[index])
        if all(most_runs[reader] == 1 for reader in tensor.readers):
            most = min(most, len(tensor.readers) + tensor.final)
        most_reads.append(most)
    used_runs = chart.computations(len(problem.ops)) if chart else [1] * len(problem.ops)
    used_reads = chart.reads(len(problem.tensors)) if chart else [0] * len(problem.tensors)
    runs = [max(used, min(most, computations)) for used, most in zip(used_runs, most_runs, strict=True)]
    ins = [max(used, min(most, reads)) for used, most in zip(used_reads, most_reads, strict=True)]
    general = all(a >= b for a, b in zip(runs, most_runs, strict=True)) and (
        not task.paging or all(a >= b for a, b in zip(ins, most_reads, strict=True))
    )
    return Limits(tuple(int(r) for r in runs), tuple(int(r) for r in ins)), general


def _times(overhead: float, cost: float) -> float:
    return inf if overhead == inf or cost <= 0 else max(0, floor(overhead / cost * (1 + 1e-9)))


def search(
    task: Task,
    hint: tuple[Step, ...] | None,
    overhead: float,
    time_limit_s: float,
    computations: int = 3,
    reads: int = 1,
) -> Found:
    """The best line within the limits and the time; starts from `hint`, a valid blocking line of that overhead."""
    problem, clock = task.problem, Clock.of(time_limit_s)
    chart = chart_of(problem, hint) if hint is not None else None
    limits, general = limits_for(task, chart, overhead, computations, reads)
    unit = (overhead if 0 < overhead < inf else max(task.costs.once, 1e-300)) / 1e6
    try:
        intervals = _model(task, limits, chart, unit, clock)
    except TimeUp:
        return Found(None, inf, 0.0, False, False, False, limits)
    library = solver_library()
    solver = _solver(task, clock)
    solver.parameters.relative_gap_limit = 5e-5
    status, stopped = _answer(solver, intervals.model)
    complete = status in (library.OPTIMAL, library.INFEASIBLE)
    if status not in (library.OPTIMAL, library.FEASIBLE):
        bound = inf if status == library.INFEASIBLE else 0.0
        return Found(None, inf, bound, complete, stopped, general, limits)
    found = intervals.chart(solver.value)
    cost = sum(c for literal, c in intervals.objective if solver.value(literal))
    bound = max(0.0, solver.best_objective_bound * unit)
    return Found(steps_of(problem, found), cost, bound, complete, stopped, general, limits)


def _model(task: Task, limits: Limits, chart: Chart | None, unit: float, clock: Clock) -> Intervals:
    problem = task.problem
    intervals = Intervals(problem, task.budget_bytes, task.costs, limits, task.remat, task.paging, clock)
    intervals.fit()
    intervals.limit_time(task.deadline_s, task.share)
    left = add_covers(intervals)
    add_cuts(intervals, 4 if len(problem.ops) >= _LARGE else 8, chart)
    intervals.minimise(unit)
    if chart is not None:
        intervals.hint(chart)
        hint_covers(intervals, left, chart)
    return intervals


def least_memory(task: Task, time_limit_s: float, floor_bytes: int, hint: tuple[Step, ...]) -> tuple[Step, ...]:
    """A line of small peak, whatever else it costs; starts from `hint`, a valid blocking line."""
    problem, clock = task.problem, Clock.of(time_limit_s)
    chart = chart_of(problem, hint)
    limits, _ = limits_for(task, chart, inf, 3, 2)
    try:
        intervals = Intervals(problem, task.budget_bytes, task.costs, limits, task.remat, task.paging, clock)
    except TimeUp:
        return hint
    most = sum(t.bytes for t in problem.tensors) + max(op.workspace for op in problem.ops)
    peak = intervals.model.new_int_var(floor_bytes, most, "")
    intervals.fit(peak)
    intervals.model.minimize(peak)
    if chart is not None:
        intervals.hint(chart)
    library, solver = solver_library(), _solver(task, clock)
    status, stopped = _answer(solver, intervals.model)
    if stopped:
        raise KeyboardInterrupt
    if status not in (library.OPTIMAL, library.FEASIBLE):
        return hint
    return steps_of(problem, intervals.chart(solver.value))


def _answer(solver: Any, model: Any) -> tuple[Any, bool]:
    """The solver's status, and whether Ctrl-C ended it, which CP-SAT would keep to itself: so it runs in a thread."""
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(solver.solve, model)
        try:
            return status.result(), False
        except KeyboardInterrupt:
            solver.stop_search()
            return status.result(), True


def _solver(task: Task, clock: Clock):
    solver = solver_library().CpSolver()
    solver.parameters.max_time_in_seconds = max(clock.left_s(), 0.01)
    solver.parameters.num_workers = task.workers
    solver.parameters.random_seed = task.seed
    if len(task.problem.ops) >= _LARGE:
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.symmetry_level = 0
    return solver

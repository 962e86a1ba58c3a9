"""Rows that follow from the exact model and bring its relaxation near to `bound.py`'s, where optimality is proven."""

from __future__ import annotations

from typing import Any

from mlir_passes.schedule.bound import crowded
from mlir_passes.schedule.chart import MADE, READ, Chart, Run, event
from mlir_passes.schedule.intervals import Intervals
from mlir_passes.schedule.problem import START


def add_covers(intervals: Intervals) -> dict[int, Any]:
    """At each op, enough of what is needed later must leave memory; returns a literal a tensor: it may have left."""
    model, problem = intervals.model, intervals.problem
    left: dict[int, Any] = {}
    for index in range(len(problem.tensors)):
        ways = _returns(intervals, index, MADE) + _returns(intervals, index, READ)
        if ways:
            left[index] = model.new_bool_var("")
            model.add_max_equality(left[index], ways)
    for number, op in enumerate(problem.ops):
        intervals.clock.check()
        used = {*op.reads, *op.makes}
        taken, terms = op.workspace, list[Any]()
        for index, tensor in enumerate(problem.tensors):
            state = tensor.maker == START
            if tensor.maker > number or not (index in used or state or problem.last[index] > number):
                continue
            taken += tensor.bytes
            if index in left and index not in used:
                terms.append(tensor.bytes * left[index])
        if taken > intervals.budget_bytes:
            model.add(sum(terms) >= taken - intervals.budget_bytes)
    return left


def hint_covers(intervals: Intervals, left: dict[int, Any], chart: Chart) -> None:
    """Tell which tensors leave memory in the chart."""
    back = {stay.tensor for stay in chart.stays if stay.how == READ or (stay.how == MADE and stay.number)}
    for index, literal in left.items():
        intervals.model.add_hint(literal, int(index in back))


def add_cuts(intervals: Intervals, most: int, chart: Chart | None) -> None:
    """The rows of `bound.py` at a few ops: kept, or read in later, or made again later, for which the same holds."""
    for number in crowded(intervals.problem, intervals.budget_bytes, most):
        intervals.clock.check()
        _Cut(intervals, number, chart).add()


def _returns(intervals: Intervals, index: int, how: str) -> list[Any]:
    spans = intervals.stays[index].items()
    return [span.active for stay, span in spans if stay.how == how and (how == READ or stay.number)]


class _Cut:
    def __init__(self, intervals: Intervals, number: int, chart: Chart | None) -> None:
        self._intervals, self._number, self._chart = intervals, number, chart
        self._at = event(number, number)
        self._ways: dict[int, list[Any]] = {}

    def add(self) -> None:
        """Add the variables and rows of this op."""
        problem, model, number = self._intervals.problem, self._intervals.model, self._number
        again: dict[int, Any] = {}
        for op in range(number + 1):
            runs = self._runs(op)
            if runs:
                again[op] = model.new_bool_var("")
                model.add(sum(self._intervals.runs[run].active for run in runs) >= again[op])
                self._hint(again[op], lambda chart, runs=runs: any(chart.runs.get(r, -1) > self._at for r in runs))
        kept: dict[int, Any] = {}
        for index, tensor in enumerate(problem.tensors):
            if tensor.maker > number or index in self._intervals.always:
                continue
            kept[index] = model.new_bool_var("")
            self._hint(kept[index], lambda chart, i=index: self._present(chart, i))
            self._ways[index] = [kept[index]] + ([again[tensor.maker]] if tensor.maker in again else [])
            self._add_read(index)
            if tensor.maker == START or problem.last[index] > number:
                model.add_bool_or(self._ways[index])
        for op, literal in again.items():
            for index in problem.ops[op].reads:
                if index in self._ways:
                    model.add_bool_or([*self._ways[index], literal.negated()])
        used = {*problem.ops[number].reads, *problem.ops[number].makes}
        for index in used & kept.keys():
            model.add(kept[index] == 1)
        taken = problem.ops[number].workspace + sum(problem.tensors[i].bytes for i in self._intervals.always)
        held = sum(problem.tensors[i].bytes * literal for i, literal in kept.items())
        model.add(held <= self._intervals.budget_bytes - taken)

    def _runs(self, op: int) -> list[Run]:
        found: list[Run] = []
        while (run := Run(op, len(found) + 1)) in self._intervals.runs:
            found.append(run)
        return found if self._intervals.problem.until[op] > self._number else []

    def _add_read(self, index: int) -> None:
        reads = _returns(self._intervals, index, READ)
        if not reads:
            return
        literal = self._intervals.model.new_bool_var("")
        self._intervals.model.add_bool_or([*reads, literal.negated()])
        self._ways[index].append(literal)
        self._hint(literal, lambda chart: self._read_later(chart, index))

    def _read_later(self, chart: Chart, index: int) -> bool:
        state = self._intervals.problem.tensors[index].maker == START
        stays = [(s, span) for s, span in chart.stays.items() if s.tensor == index and s.how == READ]
        return any(span[0] > self._at for _, span in stays) or (state and bool(stays))

    def _present(self, chart: Chart, index: int) -> bool:
        return any(s.tensor == index and a <= self._at <= b for s, (a, b) in chart.stays.items())

    def _hint(self, literal: Any, truth: Any) -> None:
        if self._chart is not None:
            self._intervals.model.add_hint(literal, int(truth(self._chart)))

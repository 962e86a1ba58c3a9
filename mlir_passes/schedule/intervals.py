"""The exact model: runs of ops and stays of tensors as optional intervals over a line of events, for CP-SAT.

It takes from MOCCASIN (arXiv 2304.14463) that a tensor's times in memory are intervals with a demand, of which a
cumulative constraint bounds the sum; transfers, ops of several outputs, state and the cuts of `covers.py` are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

from mlir_passes.errors import PassError
from mlir_passes.schedule.chart import MADE, READ, THERE, Chart, Run, Stay, end_event, event
from mlir_passes.schedule.clock import NO_END, Clock
from mlir_passes.schedule.expense import Expense, homeless
from mlir_passes.schedule.problem import START, Problem


def solver_library() -> Any:
    """OR-Tools' CP-SAT; raises PassError where it is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ModuleNotFoundError:
        raise PassError("schedule", "OR-Tools is not installed", "Install gevo[schedule]") from None
    return cp_model


@dataclass(frozen=True)
class Limits:
    """How often each op may be computed, and each tensor be read in, at most."""

    computations: tuple[int, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Reach:
    """Until when things can matter. stage: for each op, the last one in which computing it again can be of use, its
    own if none. event: for each tensor, the last one at which it can be needed."""

    stage: tuple[int, ...]
    event: tuple[int, ...]


def reach(problem: Problem, remat: bool = True) -> Reach:
    """An op is of use again as long as a tensor that it makes has a reader, for the first time or again."""
    count, end = len(problem.ops), end_event(problem)
    stages = list(range(count))
    events = [0] * len(problem.tensors)

    def needed(index: int) -> tuple[int, int]:
        tensor = problem.tensors[index]
        stage, at = max(tensor.maker, 0), event(tensor.maker, tensor.maker) if tensor.maker != START else 0
        for reader in tensor.readers:
            stage = max(stage, stages[reader])
            at = max(at, event(stages[reader], reader))
        if tensor.final and tensor.maker != START:
            return count - 1, end
        return stage, at

    for number in range(count - 1, -1, -1):
        for index in problem.ops[number].makes:
            stage, events[index] = needed(index)
            fixed = problem.tensors[index].updater >= 0
            useful = remat and not fixed and stage > number + 1
            stages[number] = max(stages[number], min(stage, problem.until[number]) if useful else number)
        if any(problem.tensors[index].updater >= 0 for index in problem.ops[number].makes):
            stages[number] = number
    for index, tensor in enumerate(problem.tensors):
        if tensor.maker == START:
            events[index] = needed(index)[1]
    return Reach(tuple(stages), tuple(events))


@dataclass
class _Span:
    """Variables of a run or stay; `start` and `end` may be numbers, `active` is 1 where there is no choice."""

    active: Any
    start: Any
    end: Any = 0
    first: int = 0  # the least value of start


class Intervals:
    """The model and its variables; `objective` and `seconds` are lists of (literal, cost) and (literal, s, is a
    transfer). What adds to it raises TimeUp where the clock says so."""

    def __init__(
        self,
        problem: Problem,
        budget_bytes: int,
        costs: Expense,
        limits: Limits,
        remat: bool,
        paging: bool,
        clock: Clock = NO_END,
    ) -> None:
        self._library = solver_library()
        self.model: Any = self._library.CpModel()
        self.problem, self.budget_bytes, self.costs, self.limits = problem, budget_bytes, costs, limits
        self.clock = clock
        self.end = end_event(problem)
        self.always = homeless(problem, paging)
        self.runs: dict[Run, _Span] = {}
        self.stays: dict[int, dict[Stay, _Span]] = {i: {} for i in range(len(problem.tensors))}
        self.stored: dict[int, Any] = {}
        self.uses: dict[tuple[Run, int], dict[Stay, Any]] = {}
        self.objective: list[tuple[Any, float]] = []
        self.seconds: list[tuple[Any, float, bool]] = []
        self._reach = reach(problem, remat)
        self._demands: list[tuple[Any, int]] = []
        for number in range(len(problem.ops)):
            clock.check()
            self._add_runs(number)
        for index in range(len(problem.tensors)):
            clock.check()
            if index not in self.always:
                self._add_stays(index, paging)
        self._add_uses()
        self._drop_useless()

    def fit(self, capacity: Any = None) -> None:
        """Memory at all events is within the budget, or within a variable."""
        fixed = sum(self.problem.tensors[i].bytes for i in self.always)
        intervals, demands = [i for i, _ in self._demands], [d for _, d in self._demands]
        self.model.add_cumulative(intervals, demands, (self.budget_bytes if capacity is None else capacity) - fixed)

    def limit_time(self, deadline_s: float, share: float) -> None:
        """Computing, and `share` of the transfers beside it, take no longer; nor do the transfers alone."""
        if deadline_s == inf:
            return
        unit = 1e9 / deadline_s
        terms = [(literal, floor(s * unit * (share if moved else 1))) for literal, s, moved in self.seconds]
        self.model.add(sum(literal * factor for literal, factor in terms) <= ceil(1e9 - self.problem.time_s * unit))
        moves = [literal * floor(s * unit) for literal, s, moved in self.seconds if moved]
        if moves:
            self.model.add(sum(moves) <= 10**9)

    def minimise(self, unit: float) -> None:
        """The overhead in units of `unit`, rounded down, so that a bound of it is one of the overhead itself."""
        self.model.minimize(sum(literal * floor(cost / unit) for literal, cost in self.objective))

    def hint(self, chart: Chart) -> dict[int, int]:
        """Give the chart as the first solution; returns the values given, by the index of the variable."""
        given: dict[int, int] = {}

        def say(variable: Any, value: int) -> None:
            if not isinstance(variable, int) and variable.index >= 0 and variable.index not in given:
                given[variable.index] = value
                self.model.add_hint(variable, value)

        for run, span in self.runs.items():
            say(span.active, int(run in chart.runs))
            say(span.start, chart.runs.get(run, span.first))
        for spans in self.stays.values():
            for stay, span in spans.items():
                start, end = chart.stays.get(stay, (span.first, span.first))
                say(span.active, int(stay in chart.stays))
                say(span.start, start)
                say(span.end, max(start, end))
        for index, literal in self.stored.items():
            say(literal, int(index in chart.stored))
        for (run, tensor), choices in self.uses.items():
            for stay, literal in choices.items():
                say(literal, int(chart.uses.get((run, tensor)) == stay))
        return given

    def chart(self, value: Any) -> Chart:
        """The chart of a solution, given by a function from variables to values."""

        def read(variable: Any) -> int:
            return variable if isinstance(variable, int) else int(value(variable))

        found = Chart()
        for run, span in self.runs.items():
            if read(span.active):
                found.runs[run] = read(span.start)
        for spans in self.stays.values():
            for stay, span in spans.items():
                if read(span.active):
                    found.stays[stay] = read(span.start), read(span.end)
        found.stored = {index for index, literal in self.stored.items() if read(literal)}
        for key, choices in self.uses.items():
            for stay, literal in choices.items():
                if read(literal):
                    found.uses[key] = stay
        return found

    def _literal(self) -> Any:
        return self.model.new_bool_var("")

    def _add_runs(self, number: int) -> None:
        op, model = self.problem.ops[number], self.model
        at = event(number, number)
        self.runs[Run(number, 0)] = _Span(1, at, at, at)
        if op.workspace:
            self._demands.append((model.new_fixed_size_interval_var(at, 1, ""), op.workspace))
        stages = range(number + 1, self._reach.stage[number] + 1)
        before: _Span | None = None
        for copy in range(1, min(self.limits.computations[number], len(stages) + 1)):
            events = [event(stage, number) for stage in stages]
            start = model.new_int_var_from_domain(self._library.Domain.from_values(events), "")
            run = _Span(self._literal(), start, start, events[0])
            self.runs[Run(number, copy)] = run
            self.objective.append((run.active, self.costs.compute[number]))
            self.seconds.append((run.active, op.time_s, False))
            if op.workspace:
                interval = model.new_optional_fixed_size_interval_var(start, 1, run.active, "")
                self._demands.append((interval, op.workspace))
            if before is not None:
                model.add_implication(run.active, before.active)
                model.add(start > before.start).only_enforce_if(run.active)
            before = run

    def _add_stays(self, index: int, paging: bool) -> None:
        tensor = self.problem.tensors[index]
        last = self._reach.event[index]
        if tensor.maker != START:
            alone = len(self.problem.ops[tensor.maker].makes) == 1
            again = event(self._reach.stage[tensor.maker], tensor.maker)  # there then, needed or not
            for run, span in self._runs_of(tensor.maker):
                active = span.active if alone or run.number == 0 else self._literal()
                if active is not span.active:
                    self.model.add_implication(active, span.active)
                end = max(last, again) if run.number else last
                self._add_stay(Stay(index, MADE, run.number), active, span.start, span.first, end)
        fixed = tensor.maker != START and tensor.updater >= 0
        if not paging or not tensor.pageable or fixed or not self.limits.reads[index]:
            if tensor.maker == START:
                self._add_stay(Stay(index, THERE, 0), 1, 0, 0, self.end)
            return
        first = event(tensor.maker + 1, 0) if tensor.maker != START else 0
        if first > last:
            return
        literal = self.stored[index] = self._literal()
        if tensor.maker == START:
            self._add_stay(Stay(index, THERE, 0), literal.negated(), 0, 0, self.end)
        if tensor.maker != START or tensor.updater >= 0:
            self.objective.append((literal, self.costs.out[index]))
            self.seconds.append((literal, tensor.out_s, True))
        before: _Span | None = None
        for number in range(self.limits.reads[index]):
            active = self._literal()
            start = self.model.new_int_var(first, last, "")
            span = self._add_stay(Stay(index, READ, number), active, start, first, last)
            self.objective.append((active, self.costs.into[index]))
            self.seconds.append((active, tensor.in_s, True))
            self.model.add_implication(active, literal)
            if before is not None:
                self.model.add_implication(active, before.active)
                self.model.add(start > before.end).only_enforce_if(active)
            before = span

    def _add_stay(self, stay: Stay, active: Any, start: Any, first: int, last: int) -> _Span:
        model = self.model
        if stay.how == THERE:
            span = _Span(active, 0, self.end, 0)
            interval = model.new_optional_fixed_size_interval_var(0, self.end + 1, active, "")
        else:
            end = model.new_int_var(first, max(first, last), "")
            span = _Span(active, start, end, first)
            size = end - start + 1 if isinstance(start, int) else model.new_int_var(1, max(first, last) - first + 1, "")
            interval = model.new_optional_interval_var(start, size, end + 1, active, "")
        self.stays[stay.tensor][stay] = span
        self._demands.append((interval, self.problem.tensors[stay.tensor].bytes))
        return span

    def _runs_of(self, number: int) -> list[tuple[Run, _Span]]:
        found: list[tuple[Run, _Span]] = []
        while (run := Run(number, len(found))) in self.runs:
            found.append((run, self.runs[run]))
        return found

    def _add_uses(self) -> None:
        """A run finds each tensor that it reads in one stay; one that it makes may be there already."""
        for run, span in self.runs.items():
            self.clock.check()
            op = self.problem.ops[run.op]
            for tensor in op.reads:
                if tensor not in self.always:
                    self._use(run, span, tensor, None)
            for tensor in op.makes if run.number and len(op.makes) > 1 else ():
                own = Stay(tensor, MADE, run.number)
                self._use(run, span, tensor, own)
        final = Run(len(self.problem.ops), 0)
        for index, tensor in enumerate(self.problem.tensors):
            if tensor.final and tensor.maker != START:
                self._use(final, _Span(1, self.end, self.end, self.end), index, None)

    def _use(self, run: Run, span: _Span, tensor: int, own: Stay | None) -> None:
        choices: dict[Stay, Any] = {}
        for stay, found in self.stays[tensor].items():
            if stay == own or (isinstance(span.start, int) and found.first > span.start):
                continue
            literal = choices[stay] = self._literal()
            if not isinstance(found.active, int):
                self.model.add_implication(literal, found.active)
            if not isinstance(span.active, int):
                self.model.add_implication(literal, span.active)
            if not (isinstance(found.start, int) and found.start <= span.first):
                self.model.add(found.start <= span.start).only_enforce_if(literal)
            if stay.how != THERE:
                self.model.add(found.end >= span.start).only_enforce_if(literal)
        self.uses[run, tensor] = choices
        ways: Sequence[Any] = list(choices.values()) + ([self.stays[tensor][own].active] if own else [])
        if isinstance(span.active, int):
            self.model.add_exactly_one(ways)
        else:
            self.model.add(sum(ways) == span.active)

    def _drop_useless(self) -> None:
        """A stay that was paid for is used, and so is one of those that a run began."""
        served: dict[Stay, list[Any]] = {}
        for choices in self.uses.values():
            for stay, literal in choices.items():
                served.setdefault(stay, []).append(literal)
        for run, span in self.runs.items():
            if run.number:
                stays = [Stay(t, MADE, run.number) for t in self.problem.ops[run.op].makes]
                literals = [literal for stay in stays for literal in served.get(stay, [])]
                self.model.add_bool_or([*literals, span.active.negated()])
        for index, spans in self.stays.items():
            for stay, span in spans.items():
                if stay.how == READ:
                    self.model.add_bool_or([*served.get(stay, []), span.active.negated()])
            if index in self.stored:
                self.model.add_implication(self.stored[index], spans[Stay(index, READ, 0)].active)

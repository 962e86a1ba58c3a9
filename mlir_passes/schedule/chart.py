"""A schedule as a chart: when each op runs, and in which stays each tensor is in memory, on a line of events.

Event (t, k), for k <= t, is the moment of stage t in which op k is computed: for the first time if k = t, again if
k < t. Its number is t (t + 1) / 2 + k; the end of the step comes after all. So within a stage ops run in their order,
each at most once, as POET and Checkmate have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, Step, stored_state

THERE, MADE, READ = "there", "made", "read"


class Stay(NamedTuple):
    """A time in memory of a tensor, which began as `how` says; number: of the computation of its op, or of the read."""

    tensor: int
    how: str
    number: int


class Run(NamedTuple):
    """A computation of an op; number: 0 for the first."""

    op: int
    number: int


def event(stage: int, op: int) -> int:
    """The number of the moment in which `op` is computed in `stage`."""
    return stage * (stage + 1) // 2 + op


def end_event(problem: Problem) -> int:
    """The number of the moment after all others."""
    return event(len(problem.ops), 0)


@dataclass
class Chart:
    """runs: the event of each. stays: first and last event of each. stored: tensors with a copy on the store, state
    with its home there. uses: the stay in which a run finds a tensor that it reads, or makes while it is there; run
    Run(number of ops, 0) is the end of the step.
    """

    runs: dict[Run, int] = field(default_factory=dict[Run, int])
    stays: dict[Stay, tuple[int, int]] = field(default_factory=dict[Stay, tuple[int, int]])
    stored: set[int] = field(default_factory=set[int])
    uses: dict[tuple[Run, int], Stay] = field(default_factory=dict[tuple[Run, int], Stay])

    def computations(self, count: int) -> list[int]:
        """For each op, how often it is computed."""
        return _counts((run.op for run in self.runs), count)

    def reads(self, count: int) -> list[int]:
        """For each tensor, how often it is read in."""
        return _counts((stay.tensor for stay in self.stays if stay.how == READ), count)


def _counts(found: Iterable[int], count: int) -> list[int]:
    counts = [0] * count
    for index in found:
        counts[index] += 1
    return counts


def chart_of(problem: Problem, steps: Sequence[Step]) -> Chart | None:
    """The chart of a valid blocking line; None if an op runs out of order, or twice in a stage.

    Stays end with their last use, and reads without any are left out.
    """
    events = _events(problem, steps)
    if events is None:
        return None
    chart, end = Chart(), end_event(problem)
    home = stored_state(problem, steps)
    chart.stored = set(home)
    now = {i: Stay(i, THERE, 0) for i, t in enumerate(problem.tensors) if t.maker == START and i not in home}
    chart.stays = {stay: (0, end) for stay in now.values()}
    counts: dict[tuple[str, int], int] = {}

    def use(run: Run, tensor: int, at: int) -> None:
        chart.uses[run, tensor] = now[tensor]
        chart.stays[now[tensor]] = (chart.stays[now[tensor]][0], max(at, chart.stays[now[tensor]][1]))

    def begin(tensor: int, how: str, number: int, at: int) -> None:
        now[tensor] = Stay(tensor, how, number)
        chart.stays[now[tensor]] = (at, at)

    for step, at in zip(steps, events, strict=True):
        if step.kind == Kind.COMPUTE:
            run = Run(step.index, counts.get(("run", step.index), 0))
            counts["run", step.index] = run.number + 1
            chart.runs[run] = at
            for tensor in problem.ops[step.index].reads:
                use(run, tensor, at)
            for tensor in problem.ops[step.index].makes:
                if tensor in now:
                    use(run, tensor, at)
                else:
                    begin(tensor, MADE, run.number, at)
        elif step.kind == Kind.IN:
            number = counts.get((READ, step.index), 0)
            counts[READ, step.index] = number + 1
            begin(step.index, READ, number, at)
        elif step.kind == Kind.OUT:
            chart.stored.add(step.index)
        elif step.kind == Kind.FREE:
            del now[step.index]
    for index, tensor in enumerate(problem.tensors):
        if tensor.final and tensor.maker != START:
            use(Run(len(problem.ops), 0), index, end)
    return _without_idle_reads(chart)


def _without_idle_reads(chart: Chart) -> Chart:
    used = set(chart.uses.values())
    stays: dict[Stay, tuple[int, int]] = {}
    place: dict[Stay, Stay] = {}
    counts: dict[int, int] = {}
    for stay, span in chart.stays.items():
        if stay.how == READ and stay not in used:
            continue
        if stay.how == READ:
            place[stay] = Stay(stay.tensor, READ, counts.get(stay.tensor, 0))
            counts[stay.tensor] = counts.get(stay.tensor, 0) + 1
        stays[place.get(stay, stay)] = span
    stored = {t for t in chart.stored if t in counts}
    return Chart(chart.runs, stays, stored, {key: place.get(stay, stay) for key, stay in chart.uses.items()})


def _events(problem: Problem, steps: Sequence[Step]) -> list[int] | None:
    """The event of each step: a compute's own, else that of the next compute."""
    first: dict[int, int] = {}
    for place, step in enumerate(steps):
        if step.kind == Kind.COMPUTE:
            first.setdefault(step.index, place)
    stage, at = len(problem.ops), end_event(problem)
    events: list[int] = []
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if step.kind == Kind.COMPUTE:
            if first[step.index] == place:
                stage = step.index
            following, at = at, event(stage, step.index)
            if at >= following or stage == len(problem.ops):
                return None
        events.append(at)
    return events[::-1]


def steps_of(problem: Problem, chart: Chart) -> tuple[Step, ...]:
    """The blocking line of a chart: overlapping stays of a tensor are one, and last as long as they are used."""
    last = {stay: span[0] for stay, span in chart.stays.items()}
    for (run, _), stay in chart.uses.items():
        last[stay] = max(last[stay], chart.runs.get(run, end_event(problem)))
    begins: dict[int, list[Stay]] = {}
    ends: dict[int, list[Stay]] = {}
    for stay, span in chart.stays.items():
        if stay.how != THERE:
            begins.setdefault(span[0], []).append(stay)
            ends.setdefault(last[stay], []).append(stay)
    computes = {at: run.op for run, at in chart.runs.items()}
    steps: list[Step] = []
    present: dict[int, int] = {}
    for at in sorted(begins.keys() | ends.keys() | computes.keys()):
        for stay in begins.get(at, ()):
            if stay.how == READ and not present.get(stay.tensor):
                steps.append(Step(Kind.IN, stay.tensor))
            present[stay.tensor] = present.get(stay.tensor, 0) + 1
        if at in computes:
            steps.append(Step(Kind.COMPUTE, computes[at]))
        for stay in begins.get(at, ()):
            if stay.how == MADE and stay.number == 0 and stay.tensor in chart.stored:
                steps.append(Step(Kind.OUT, stay.tensor))
        for stay in ends.get(at, ()):
            present[stay.tensor] -= 1
            if not present[stay.tensor] and at != end_event(problem):
                steps += _leave(problem, chart, stay.tensor, at)
    return tuple(steps)


def _leave(problem: Problem, chart: Chart, tensor: int, at: int) -> list[Step]:
    updater = problem.tensors[tensor].updater
    free = Step(Kind.FREE, tensor)
    if tensor in chart.stored and updater >= 0 and at == event(updater, updater):
        return [Step(Kind.OUT, tensor), free]
    return [free]

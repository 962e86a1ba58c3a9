"""A training step as a chain: stages of the forward, each with the piece of the backward that mirrors it.

A stage lies between two cuts: points where one tensor, the carrier, is all that the later forward reads of the earlier.
A skip connection makes one stage of all that it spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import Kind, Step


@dataclass(frozen=True)
class Run:
    """Ops computed in order, each tensor freed after its last use. peak_bytes: most that it holds at once, without
    what is there all the time: state, and the metrics of the forward."""

    steps: tuple[Step, ...]
    peak_bytes: int
    energy_j: float


@dataclass(frozen=True)
class Stage:
    """carrier: what the next stage reads, -1 for the last one. saved: what the backward here reads of what the forward
    here makes. waiting: what the backward of later stages leaves for here and for earlier ones. repeats: whether the
    way to the carrier may run again.

    Runs of the forward: advance goes as far as the carrier and keeps the input; passing does too, and frees it. whole
    does all, for the backward; whole_on keeps the carrier besides; rest is what whole lacks where the carrier is in
    memory and advance was done before. backward: from `saved` and `waiting` to what waits for the stage before.
    """

    carrier: int
    saved: tuple[int, ...]
    waiting: tuple[int, ...]
    repeats: bool
    advance: Run
    passing: Run
    whole: Run
    whole_on: Run
    rest: Run
    backward: Run


@dataclass(frozen=True)
class Chain:
    """stages, in the order of the forward. metrics: tensors that the forward makes and the end of the step needs."""

    stages: tuple[Stage, ...]
    metrics: frozenset[int]


def chain_of(problem: Problem) -> Chain | None:
    """The longest chain that the step can be cut into, wherever its backward may begin; None where there is none."""
    cuts = [_cut(problem, turn) for turn in range(1, len(problem.ops))]
    cut = max(cuts, key=lambda c: len(c.ends), default=None)
    if cut is None or len(cut.ends) < 2:
        return None
    made = {t for op in problem.ops[: cut.turn] for t in op.makes}
    metrics = frozenset(t for t in made if problem.tensors[t].final)
    return Chain(tuple(_stage(problem, cut, number, metrics) for number in range(len(cut.ends))), metrics)


@dataclass(frozen=True)
class _Cut:
    """ends: the first op after the forward of each stage. carriers: what goes over each end but the last.
    backward: the stage of each op from the last end on."""

    ends: tuple[int, ...]
    carriers: tuple[int, ...]
    backward: tuple[int, ...]

    @property
    def turn(self) -> int:
        return self.ends[-1]


def _cut(problem: Problem, turn: int) -> _Cut:
    """The finest cut of the ops before `turn` whose mirror the ops after it are."""
    carriers = _carriers(problem, turn)
    ends = [*sorted(carriers), turn]
    while True:
        outs = {carriers[end]: number for number, end in enumerate(ends[:-1])}
        placed: list[int] = []
        current = len(ends) - 1
        for op in problem.ops[turn:]:
            made = {
                t: bisect_right(ends, problem.tensors[t].maker)
                for t in op.reads
                if 0 <= problem.tensors[t].maker < turn
            }
            current = min([current, *(stage + (outs.get(t) == stage) for t, stage in made.items())])
            latest = max(made.values(), default=current)
            if latest > current:  # the backward comes back to a later stage: these are one
                del ends[current:latest]
                break
            placed.append(current)
        else:
            return _Cut(tuple(ends), tuple(carriers[end] for end in ends[:-1]), tuple(placed))


def _carriers(problem: Problem, turn: int) -> dict[int, int]:
    """The cuts of the forward before `turn`, and their carriers, each once."""
    last = {t: number for number, op in enumerate(problem.ops[:turn]) for t in op.reads}
    open_tensors: set[int] = set()
    found: dict[int, int] = {}
    for number, op in enumerate(problem.ops[: turn - 1]):
        open_tensors = {t for t in (*open_tensors, *op.makes) if last.get(t, -1) > number}
        if len(open_tensors) == 1 and not open_tensors & set(found.values()):
            found[number + 1] = min(open_tensors)
    return found


def _stage(problem: Problem, cut: _Cut, number: int, metrics: Collection[int]) -> Stage:
    first, end = cut.ends[number - 1] if number else 0, cut.ends[number]
    ops = range(first, end)
    enter = {cut.carriers[number - 1]} if number else set[int]()
    leave = {cut.carriers[number]} if end < cut.turn else set[int]()
    made = {t for op in ops for t in problem.ops[op].makes}
    place = {
        s: [cut.turn + i for i, stage in enumerate(cut.backward) if (stage > number) - (stage < number) == s]
        for s in (1, 0, -1)
    }
    later, here, earlier = place[1], place[0], place[-1]
    saved = {t for op in here for t in problem.ops[op].reads if t in made}
    waiting = _left(problem, later, [*here, *earlier])
    way = _needed(problem, ops, leave, set())
    side = [op for op in ops if op not in way]
    read = {t for op in side for t in problem.ops[op].reads}
    again = _needed(problem, ops, ((saved | read) & made) - leave, leave)

    def run(chosen: Iterable[int], start: Iterable[int], keep: Collection[int]) -> Run:
        return _run(problem, chosen, start, keep, metrics)

    return Stage(
        carrier=min(leave, default=-1),
        saved=tuple(sorted(saved)),
        waiting=tuple(sorted(waiting)),
        repeats=all(problem.until[op] >= cut.turn for op in way),
        advance=run(way, (), leave),
        passing=run(way, enter, leave),
        whole=run(ops, (), saved),
        whole_on=run(ops, (), saved | leave),
        rest=run([op for op in ops if op in again or op in side], leave, saved),
        backward=run(here, saved | waiting, _left(problem, [*later, *here], earlier)),
    )


def _left(problem: Problem, before: Iterable[int], after: Iterable[int]) -> set[int]:
    """What `before` make that `after` read, or that is needed when the step ends."""
    read = {t for op in after for t in problem.ops[op].reads}
    return {t for op in before for t in problem.ops[op].makes if t in read or problem.tensors[t].final}


def _needed(problem: Problem, ops: Sequence[int], wanted: Collection[int], there: Collection[int]) -> set[int]:
    """Those of `ops` that must run to make `wanted`, where `there` is in memory."""
    goal, found = set(wanted), set[int]()
    for op in reversed(ops):
        if goal & set(problem.ops[op].makes):
            found.add(op)
            goal |= {t for t in problem.ops[op].reads if t not in there}
    return found


def _run(
    problem: Problem, ops: Iterable[int], start: Iterable[int], keep: Collection[int], metrics: Collection[int]
) -> Run:
    order = sorted(ops)
    last = {t: place for place, op in enumerate(order) for t in problem.ops[op].reads}
    here = set(start)
    steps: list[Step] = []
    peak = sum(problem.tensors[t].bytes for t in here)
    for place, op in enumerate(order):
        here.update(t for t in problem.ops[op].makes if t not in metrics)
        steps.append(Step(Kind.COMPUTE, op))
        peak = max(peak, sum(problem.tensors[t].bytes for t in here) + problem.ops[op].workspace)
        gone = sorted(t for t in here if last.get(t, -1) <= place and t not in keep and not problem.tensors[t].final)
        steps += [Step(Kind.FREE, t) for t in gone]
        here.difference_update(gone)
    if not order:
        steps = [Step(Kind.FREE, t) for t in sorted(here) if t not in keep]
    return Run(tuple(steps), peak, sum(problem.ops[op].energy_j for op in order))

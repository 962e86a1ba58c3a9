"""Genes to a blocking line of steps, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.schedule.genes import Before, Gene, Hold
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, replay, stored_state
from mlir_passes.schedule.walk import Holds, Pairs, Stay, Walker


@dataclass(frozen=True)
class Decoded:
    """problem: with its ops in the order that the genes say. dropped: what could not be honoured, and why."""

    problem: Problem
    steps: tuple[Step, ...]
    dropped: tuple[str, ...]


def decode(problem: Problem, genes: Sequence[Gene]) -> Decoded:
    """The line that the genes stand for. It passes `replay`, whatever they are; what cannot be honoured is dropped.

    What an op needs and is not in memory is read in, if it is paged, else computed again, with what that needs in turn;
    it is given back right after its last use in that stage, unless it is held.
    """
    ordered, dropped = reordered(problem, [gene for gene in genes if isinstance(gene, Before)])
    holds, wrong = to_holds(ordered, [gene for gene in genes if isinstance(gene, Hold)])
    walk = Walker(ordered).walk(holds, record=True)
    names = [ordered.tensors[t].name for t in walk.refused]
    late = [f"{name}: it is kept, since it is missed when its maker can no more be computed again" for name in names]
    return Decoded(ordered, walk.steps, (*dropped, *wrong, *late))


def reordered(problem: Problem, genes: Sequence[Before]) -> tuple[Problem, tuple[str, ...]]:
    """The problem in the order that all genes make; if that is no valid order, those that break it are left out."""
    places = {op.name: number for number, op in enumerate(problem.ops)}
    dropped = [f"{g.op} before {g.other}: no such ops" for g in genes if not places.keys() >= {g.op, g.other}]
    moves = [(places[g.op], places[g.other]) for g in genes if places.keys() >= {g.op, g.other} and g.op != g.other]
    order = list(range(len(problem.ops)))
    if not moves:
        return problem, tuple(dropped)
    every = order
    for move in moves:
        every = _moved(every, *move)
    result = _valid(problem, every)
    if result:
        return result, tuple(dropped)
    result = problem
    for op, other in moves:
        following = _moved(order, op, other)
        valid = _valid(problem, following)
        if valid:
            order, result = following, valid
        else:
            dropped.append(f"{problem.ops[op].name} before {problem.ops[other].name}: against the order of the data")
    return result, tuple(dropped)


def _moved(order: Sequence[int], op: int, other: int) -> list[int]:
    left = [number for number in order if number != op]
    left.insert(left.index(other), op)
    return left


def _valid(problem: Problem, order: Sequence[int]) -> Problem | None:
    try:
        return problem.reordered(order)
    except ValueError:
        return None


def to_holds(problem: Problem, genes: Sequence[Hold]) -> tuple[dict[int, Stay], tuple[str, ...]]:
    """Genes by index, and why others are left out: a gene that cannot be honoured whole is left out whole."""
    tensors = {t.name: index for index, t in enumerate(problem.tensors)}
    places = {op.name: number for number, op in enumerate(problem.ops)}
    holds: dict[int, Stay] = {}
    dropped: list[str] = []
    for gene in genes:
        wrong = _wrong(problem, gene, tensors, places, holds)
        if wrong:
            dropped.append(f"{gene.value}: {wrong}")
        else:
            pairs = tuple((places[first], places[last]) for first, last in gene.stages)
            holds[tensors[gene.value]] = (gene.paged, merged(pairs, _end(problem, tensors[gene.value])))
    return holds, tuple(dropped)


def _wrong(
    problem: Problem, gene: Hold, tensors: dict[str, int], places: dict[str, int], holds: dict[int, Stay]
) -> str | None:
    if gene.value not in tensors:
        return "no such tensor"
    tensor = problem.tensors[tensors[gene.value]]
    unknown = [name for pair in gene.stages for name in pair if name not in places]
    if unknown:
        return f"no op {unknown[0]}"
    if tensors[gene.value] in holds:
        return "it has a gene already"
    if gene.paged and not tensor.pageable:
        return "it may not be paged"
    if tensor.maker == START and not gene.paged:
        return "state that is not paged stays in memory"
    if tensor.maker == START and not tensor.readers:
        return "nobody reads it, so that it would never leave the store"
    if any(places[first] > places[last] or places[first] < tensor.maker for first, last in gene.stages):
        return "a stage ends before it begins, or before the tensor is made"
    return None


def to_genes(problem: Problem, holds: Holds) -> tuple[Hold, ...]:
    """Holds by index as genes, in the order of the tensors."""
    names = [op.name for op in problem.ops]
    return tuple(
        Hold(problem.tensors[t].name, paged, tuple((names[first], names[last]) for first, last in pairs))
        for t, (paged, pairs) in sorted(holds.items())
    )


def merged(pairs: Pairs, end: int = -1) -> Pairs:
    """The same stages as pairs that are apart, ascending. A pair of one stage says nothing, but for stage `end`."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        elif first < last or first == last == end:
            result.append((first, last))
    return tuple(result)


def _end(problem: Problem, tensor: int) -> int:
    """The last stage for what is final and made in the step, which may come back in that stage and stay; else -1."""
    t, end = problem.tensors[tensor], len(problem.ops) - 1
    return end if t.final and START < t.maker < end else -1


def encode(problem: Problem, steps: Sequence[Step]) -> tuple[Hold, ...]:
    """The genes of a blocking line that is valid: for one that `decode` made, those of a line no dearer and no higher.

    For others the nearest that was found: stages are whole, and a tensor always comes back in the same way. Raises
    ScheduleError for a line with asynchronous transfers, or one that pages state whose home is memory.
    """
    if any(step.kind in (Kind.OUT_DONE, Kind.IN_DONE) for step in steps):
        raise ScheduleError("only a blocking line has genes")
    walker, usage = Walker(problem), replay(problem, steps)

    def strays(holds: Holds) -> tuple[int, float]:
        walk = walker.walk(holds)
        return max(0, walk.peak_bytes - usage.peak_bytes), max(usage.energy_j, walk.energy_j)

    return to_genes(problem, min((_holds(walker, steps, tight) for tight in (False, True)), key=strays))


def _holds(walker: Walker, steps: Sequence[Step], tight: bool) -> dict[int, Stay]:
    problem, home = walker.problem, stored_state(walker.problem, steps)
    holds: dict[int, Stay] = {}
    for tensor, (paged, pairs) in _stays(problem, steps, tight).items():
        start = problem.tensors[tensor].maker == START
        if start and tensor not in home:
            raise ScheduleError(f"{problem.tensors[tensor].name} is paged, and its home is memory: no gene says so")
        if start or paged or pairs != walker.default(tensor):
            holds[tensor] = (paged, pairs)
    return holds


def _stays(problem: Problem, steps: Sequence[Step], tight: bool) -> dict[int, Stay]:
    """When each tensor was in memory, but for state that never left it; tight: from its first to its last use there."""
    count = len(problem.ops)
    begun: dict[int, int] = {}
    used: dict[int, int] = {}
    pairs: dict[int, list[tuple[int, int]]] = {}
    read: set[int] = set()
    run = latest = 0  # ops that have run for the first time; the stage of the latest compute
    for step in steps:
        if step.kind == Kind.COMPUTE:
            latest = run
            for tensor in problem.ops[step.index].makes:
                begun.setdefault(tensor, run)
            for tensor in (*problem.ops[step.index].reads, *problem.ops[step.index].makes):
                if tight and tensor not in used and tensor in read:
                    begun[tensor] = run
                used[tensor] = run
            run = max(run, step.index + 1)
        elif step.kind == Kind.IN:
            begun[step.index] = run
            read.add(step.index)
        elif step.kind == Kind.FREE:
            last = used.pop(step.index, 0) if tight else latest
            pairs.setdefault(step.index, []).append((begun.pop(step.index, 0), min(last, count - 1)))
    for tensor, first in begun.items():
        pairs.setdefault(tensor, []).append((first, count - 1))
    ends = {t: _end(problem, t) for t, first in begun.items() if first == count - 1}
    return {t: (t in read, merged(tuple(found), ends.get(t, -1))) for t, found in pairs.items()}

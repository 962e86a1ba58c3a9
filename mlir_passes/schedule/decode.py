"""Genes to a blocking line of steps, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlir_passes.schedule.details import details_of
from mlir_passes.schedule.genes import Before, Gene, Hold
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, replay, stored_state
from mlir_passes.schedule.walk import NO_DETAILS, Detail, Details, Holds, Pairs, Stay, Walker


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
    named, wrong = _honoured(ordered, [gene for gene in genes if isinstance(gene, Hold)])
    walk = Walker(ordered).walk(_holds_of(ordered, named), record=True, details=_details_of(ordered, named))
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
    """Genes by index, without their details, and why others are left out: a gene that cannot be honoured whole is left
    out whole."""
    named, dropped = _honoured(problem, genes)
    return _holds_of(problem, named), dropped


def _honoured(problem: Problem, genes: Sequence[Hold]) -> tuple[dict[int, Hold], tuple[str, ...]]:
    tensors = {t.name: index for index, t in enumerate(problem.tensors)}
    places = {op.name: number for number, op in enumerate(problem.ops)}
    named: dict[int, Hold] = {}
    dropped: list[str] = []
    for gene in genes:
        wrong = _wrong(problem, gene, tensors, places, named)
        if wrong:
            dropped.append(f"{gene.value}: {wrong}")
        else:
            named[tensors[gene.value]] = gene
    return named, tuple(dropped)


def _holds_of(problem: Problem, named: Mapping[int, Hold]) -> dict[int, Stay]:
    places = {op.name: number for number, op in enumerate(problem.ops)}
    return {
        tensor: (gene.paged, merged([(places[a], places[b]) for a, b in gene.stages], _end(problem, tensor)))
        for tensor, gene in named.items()
    }


def _details_of(problem: Problem, named: Mapping[int, Hold]) -> Details:
    places = {op.name: number for number, op in enumerate(problem.ops)}
    return {
        tensor: Detail(
            frozenset(places[name] for name in gene.other),
            frozenset((places[stage], places[op]) for stage, op in gene.leaves),
        )
        for tensor, gene in named.items()
        if gene.other or gene.leaves
    }


def _wrong(
    problem: Problem, gene: Hold, tensors: dict[str, int], places: dict[str, int], named: Mapping[int, Hold]
) -> str | None:
    if gene.value not in tensors:
        return "no such tensor"
    tensor = problem.tensors[tensors[gene.value]]
    said = (*(name for pair in (*gene.stages, *gene.leaves) for name in pair), *gene.other)
    unknown = [name for name in said if name not in places]
    if unknown:
        return f"no op {unknown[0]}"
    if tensors[gene.value] in named:
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


def to_genes(problem: Problem, holds: Holds, details: Details = NO_DETAILS) -> tuple[Hold, ...]:
    """Holds by index as genes, in the order of the tensors."""
    names = [op.name for op in problem.ops]
    genes: list[Hold] = []
    for tensor, (paged, pairs) in sorted(holds.items()):
        detail = details.get(tensor, Detail())
        genes.append(
            Hold(
                problem.tensors[tensor].name, paged, _named(names, pairs),
                tuple(names[stage] for stage in sorted(detail.other)), _named(names, sorted(detail.leaves)),
            )
        )  # fmt: skip
    return tuple(genes)


def _named(names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> tuple[tuple[str, str], ...]:
    return tuple((names[first], names[last]) for first, last in pairs)


def merged(pairs: Sequence[tuple[int, int]], end: int = -1) -> Pairs:
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

    So it is for one that `chart.Chart` can say. For others the nearest that was found. Raises ScheduleError for a line
    with asynchronous transfers, or one that pages state whose home is memory.
    """
    if any(step.kind in (Kind.OUT_DONE, Kind.IN_DONE) for step in steps):
        raise ScheduleError("only a blocking line has genes")
    walker, usage = Walker(problem), replay(problem, steps)
    details = details_of(problem, steps)
    ways: list[tuple[dict[int, Stay], Details]] = []
    for tight in (False, True):
        holds = _holds(walker, steps, tight)
        ways += [(holds, NO_DETAILS), _detailed(walker, holds, details)]

    def strays(way: tuple[Holds, Details]) -> tuple[int, float, float]:
        walk = walker.walk(way[0], details=way[1])
        over = max(0, walk.peak_bytes - usage.peak_bytes)
        return over, max(usage.energy_j, walk.energy_j), max(usage.time_s, walk.time_s)

    return to_genes(problem, *min(ways, key=strays))


def _detailed(walker: Walker, holds: Holds, details: Details) -> tuple[dict[int, Stay], Details]:
    """The holds with one for each tensor that has details too."""
    more = {tensor: (False, walker.default(tensor)) for tensor in details if tensor not in holds}
    return {**holds, **more}, details


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

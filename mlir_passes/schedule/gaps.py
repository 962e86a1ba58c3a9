"""An evolution of what becomes of each tensor between two of its uses: fewer choices than holds, for many ops."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlir_passes.schedule.decode import encode, to_holds
from mlir_passes.schedule.expense import expense
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.moves import BOTH, Goal, cut, held, movable
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.walk import NO_LIMIT, Holds, Limit, Pairs, Stay, Walk, Walker

POPULATION = 32
RIVALS = 3  # individuals of which the best becomes a parent
CROSSED = 0.6  # share of children of two parents
EXTRA_MOVES = 1.2  # mean number of changed values after the first
COPIED = 0.2  # share of changes that copy what is done at one place to a place that looks the same
LONGEST = 24  # neighbouring gaps copied at most
REBUILT = 0.1  # share of children that keep some tensors again and let others go
LOST = 3  # gaps kept again at most
TRIED = 12  # gaps let go for them at most
NOISE = 2.0  # factor by which their prices are drawn higher or lower
FIRST_MOVES = 4  # values changed at most in the first population
SAID = 4  # of the best individuals, whose holds are compared at the end
TOLD = 500  # evaluations between two times that better ones are told of
STALLED = 1500  # evaluations without a better one, after which it begins anew from the seeds
JOINED = 3  # every so many times it begins with the best ones of all times before instead
OVER = 10.0  # cost, in parts of computing each op once, of needing the budget or the deadline twice

KEEP, AGAIN, PAGE, AGAIN_STAY, PAGE_STAY = range(5)  # the latter two stay when they come back before they are needed
PAGED, STAYING = (PAGE, PAGE_STAY), (AGAIN_STAY, PAGE_STAY)

Genome = tuple[int, ...]  # a value a gap
_Look = tuple[int, float, float, int, tuple[int, ...]]


@dataclass(frozen=True)
class Gap:
    """Between two ops that must find the tensor, neighbours among those; values: what may become of it there."""

    tensor: int
    first: int
    last: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class _Individual:
    rank: tuple[bool, float]
    genome: Genome


def _rank(one: _Individual) -> tuple[bool, float]:
    return one.rank


def evolve_gaps(
    problem: Problem,
    budget_bytes: int,
    deadline_s: float,
    seeds: Sequence[Sequence[Hold]],
    evaluations: int,
    rng: random.Random,
    allow: Collection[str] = BOTH,
    minimise: str = "energy",
    on_better: Callable[[tuple[Hold, ...]], None] = lambda holds: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Hold, ...]:
    """The best holds found from the seeds, as near as gaps say them; they may be over the limits.

    deadline_s: of all computes and transfers, one after the other. on_better is told now and then of better ones; stop
    is asked before each evaluation.
    """
    search = _Search(problem, Goal(budget_bytes, deadline_s, minimise), rng, Gaps(problem, allow))
    return search.run(seeds, evaluations, on_better, stop)


def _look(problem: Problem, gap: Gap) -> _Look:
    tensor = problem.tensors[gap.tensor]
    again_j = problem.ops[tensor.maker].energy_j if tensor.maker != START else 0.0
    return tensor.bytes, again_j, tensor.in_j, len(tensor.readers), gap.values


class Gaps:
    """The gaps of a problem, and holds for values of them."""

    def __init__(self, problem: Problem, allow: Collection[str] = BOTH) -> None:
        self.walker = Walker(problem)
        self._ways = movable(self.walker, allow)
        self.all = tuple(gap for tensor in sorted(self._ways) for gap in self._of(tensor))
        self._known: dict[tuple[tuple[int, int], ...], tuple[Stay, Pairs]] = {}

    def _of(self, tensor: int) -> list[Gap]:
        t, ways = self.walker.problem.tensors[tensor], self._ways[tensor]
        values = (KEEP, *((AGAIN, AGAIN_STAY) if False in ways else ()), *(PAGED if True in ways else ()))
        uses = [t.maker, *(reader for reader in t.readers if reader > t.maker)]
        if t.final and t.maker != START and uses[-1] < self.walker.count - 1:
            uses.append(self.walker.count - 1)
        apart = [(first, last) for first, last in pairwise(uses) if last > first + 1 or first == START]
        return [Gap(tensor, first, last, values) for first, last in apart]

    def values(self, holds: Holds) -> Genome:
        """What holds make of each gap, or nearly so."""
        found: list[int] = []
        for gap in self.all:
            paged, pairs = holds.get(gap.tensor, (False, held(self.walker, holds, gap.tensor)))
            value = KEEP
            if gap.tensor in holds and not any(a <= max(gap.first, 0) and gap.last <= b for a, b in pairs):
                stays = any(gap.first < a < gap.last <= b for a, b in pairs)
                value = (PAGE_STAY if stays else PAGE) if paged else (AGAIN_STAY if stays else AGAIN)
            found.append(value if value in gap.values else KEEP)
        return tuple(found)

    def walk(self, genome: Genome, record: bool = False, limit: Limit = NO_LIMIT) -> Walk:
        """The line of these values, as `Walker.walk` has it."""
        chosen: dict[int, list[tuple[int, int]]] = {}
        for number, value in enumerate(genome):
            if value:
                chosen.setdefault(self.all[number].tensor, []).append((number, value))
        holds: dict[int, Stay] = {}
        returns: dict[int, Pairs] = {}
        for tensor, values in chosen.items():
            key = tuple(values)
            if key not in self._known:
                self._known[key] = self._stay(tensor, key)
            holds[tensor], back = self._known[key]
            if back:
                returns[tensor] = back
        return self.walker.walk(holds, record, returns, limit)

    def _stay(self, tensor: int, values: Sequence[tuple[int, int]]) -> tuple[Stay, Pairs]:
        t, pairs, back = self.walker.problem.tensors[tensor], self.walker.default(tensor), list[tuple[int, int]]()
        for number, value in values:
            gap = self.all[number]
            pairs = cut(pairs, gap.first, gap.last)
            if value in STAYING:
                at_end = t.final and t.maker != START and gap.last == self.walker.count - 1
                back.append((gap.first, self.walker.end[tensor] if at_end else gap.last))
        return (any(value in PAGED for _, value in values), pairs), tuple(back)


class _Search:
    def __init__(self, problem: Problem, goal: Goal, rng: random.Random, gaps: Gaps) -> None:
        self._problem, self._goal, self._rng, self._gaps = problem, goal, rng, gaps
        self._costs = expense(problem, goal.minimise)
        self._once = max(self._costs.once, 1e-300)
        self._looks = [_look(problem, gap) for gap in gaps.all]
        self._alike: dict[_Look, list[int]] = {}
        for number, look in enumerate(self._looks):
            self._alike.setdefault(look, []).append(number)

    def run(
        self,
        seeds: Sequence[Sequence[Hold]],
        evaluations: int,
        on_better: Callable[[tuple[Hold, ...]], None],
        stop: Callable[[], bool],
    ) -> tuple[Hold, ...]:
        if not self._gaps.all:
            return ()
        genomes = [self._gaps.values(to_holds(self._problem, seed)[0]) for seed in seeds] or [
            (KEEP,) * len(self._gaps.all)
        ]
        starts = [self._rated(genome) for genome in dict.fromkeys(genomes)]
        people, walker, told = sorted(starts, key=_rank), self._gaps.walker, min(one.rank for one in starts)
        begun = walker.walks - len(starts)
        done = told_at = better_at = len(starts)
        first, champions = starts, list[_Individual]()
        while done < evaluations and not stop():
            if len(people) < POPULATION:
                genome = self._mutated(first[done % len(first)].genome, self._rng.randint(1, FIRST_MOVES))
            else:
                genome = self._child(people)
            best = min([*champions, people[0]], key=_rank)
            if done - told_at >= TOLD and best.rank < told:
                told, told_at = best.rank, done
                on_better(self._holds([best]))
            full, worst = len(people) == POPULATION, people[-1].rank
            limit = self._goal.limit(worst[1] * self._once) if full and not worst[0] else NO_LIMIT
            child = self._rated(genome, limit)
            done = walker.walks - begun
            if not (full and child.rank >= worst) and all(child.rank != one.rank for one in people):
                better_at = done if child.rank < people[0].rank else better_at
                people = sorted([*people, child], key=_rank)[:POPULATION]
            if done - better_at > STALLED:
                champions.append(people[0])
                first = list(dict.fromkeys(champions)) if len(champions) % JOINED == 0 else starts
                people, better_at = sorted(first, key=_rank), done
        return self._holds(sorted([*champions, *people], key=_rank)[:SAID])

    def _rated(self, genome: Genome, limit: Limit = NO_LIMIT) -> _Individual:
        outside, cost = self._goal.rank(self._gaps.walk(genome, limit=limit))
        return _Individual((outside > 0, cost / self._once + OVER * outside), genome)

    def _child(self, people: list[_Individual]) -> Genome:
        genome = self._drawn(people)
        if self._rng.random() < CROSSED:
            genome = self._crossed(genome, self._drawn(people))
        if self._rng.random() < REBUILT:
            return self._rebuilt(genome)
        return self._mutated(genome, 1 + int(self._rng.expovariate(1 / EXTRA_MOVES)))

    def _drawn(self, people: list[_Individual]) -> Genome:
        return min(self._rng.sample(people, RIVALS), key=lambda one: one.rank).genome

    def _crossed(self, one: Genome, other: Genome) -> Genome:
        low, high = sorted(self._rng.choices(range(len(one) + 1), k=2))
        return one[:low] + other[low:high] + one[high:]

    def _mutated(self, parent: Genome, moves: int) -> Genome:
        genome = list(parent)
        for _ in range(moves):
            number = self._rng.randrange(len(genome))
            if self._rng.random() < COPIED:
                self._copy(genome, number, self._rng.choice(self._alike[self._looks[number]]))
            else:
                genome[number] = self._rng.choice(self._gaps.all[number].values)
        return tuple(genome)

    def _copy(self, genome: list[int], source: int, target: int) -> None:
        """Graphs repeat blocks of ops: what is good in one is often so in another."""
        looks, most = self._looks, min(self._rng.randint(1, LONGEST), len(genome) - max(source, target))
        same = next((i for i in range(most) if looks[source + i] != looks[target + i]), most)
        genome[target : target + same] = genome[source : source + same]

    def _rebuilt(self, parent: Genome) -> Genome:
        """Keeps some tensors again, dear ones rather, and lets cheap ones go at the peaks until it fits: ruin and
        recreate (Schrimpf et al. 2000), for exchanges of one dear tensor for several cheap ones."""
        genome = list(parent)
        gone = [number for number, value in enumerate(genome) if value != KEEP]
        if not gone:
            return parent
        weights = [self._price(number, genome[number]) ** 0.5 for number in gone]
        lost = set(self._rng.choices(gone, weights, k=self._rng.randint(1, LOST)) if any(weights) else gone[:1])
        for number in lost:
            genome[number] = KEEP
        for _ in range(TRIED):
            walk = self._gaps.walk(tuple(genome))
            cuts = self._cuts(genome, walk.peak_stage, lost) if self._goal.rank(walk)[0] > 0 else ()
            if not cuts:
                break
            _, number, value = min(cuts)
            genome[number] = value
        return tuple(genome)

    def _cuts(self, genome: Sequence[int], stage: int, lost: Collection[int]) -> list[tuple[float, int, int]]:
        """What may be let go in a stage, with prices a byte as drawn, but not what was just kept again."""
        cuts: list[tuple[float, int, int]] = []
        for number, gap in enumerate(self._gaps.all):
            if genome[number] == KEEP and number not in lost and gap.first < stage < gap.last:
                size = max(self._looks[number][0], 1)
                for value in gap.values[1:]:
                    price = self._price(number, value) * self._rng.uniform(1 / NOISE, NOISE) / size
                    cuts.append((price, number, value))
        return cuts

    def _price(self, number: int, value: int) -> float:
        """What it costs at least to let a tensor go."""
        tensor = self._gaps.all[number].tensor
        if value in PAGED:
            return self._costs.out[tensor] + self._costs.into[tensor]
        return self._costs.compute[self._problem.tensors[tensor].maker]

    def _holds(self, people: Sequence[_Individual]) -> tuple[Hold, ...]:
        """The best of their holds, which now and then say a little less than values of gaps."""
        walker, problem = self._gaps.walker, self._problem
        found = [encode(problem, self._gaps.walk(one.genome, record=True).steps) for one in people]
        return min(found, key=lambda holds: self._goal.rank(walker.walk(to_holds(problem, holds)[0])))

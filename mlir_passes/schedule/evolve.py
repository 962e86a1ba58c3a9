"""An evolution of holds: many small changes, the better ones kept."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mlir_passes.schedule.decode import merged, to_genes, to_holds
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.greedy import completed
from mlir_passes.schedule.moves import BOTH, Goal, allowed, changed, cut, held, movable, touches
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.walk import NO_LIMIT, Holds, Limit, Pairs, Stay, Walker

POPULATION = 32
POLISH = 100  # walks after the greedy way
RIVALS = 3  # individuals of which the best becomes a parent
CROSSED = 0.5  # share of children of two parents
EXTRA_MOVES = 1.2  # mean number of moves after the first
REBUILT = 0.01  # share of children that lose some holds and get others by the greedy way
LOST = 6  # holds lost at most


@dataclass
class _Individual:
    rank: tuple[float, float]
    peak_stage: int
    holds: Holds
    uses: list[list[int]] = field(default_factory=list[list[int]])  # of each tensor; filled when it has a child


def evolve(
    problem: Problem,
    budget_bytes: int,
    deadline_s: float,
    seeds: Sequence[Sequence[Hold]],
    evaluations: int,
    rng: random.Random,
    allow: Collection[str] = BOTH,
    minimise: str = "energy",
    on_best: Callable[[tuple[Hold, ...], float], None] = lambda holds, cost: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Hold, ...]:
    """The best holds found: never worse than the best seed, or than to keep everything where there is no seed.

    Whether the limits are kept comes first, then the cost. deadline_s: of all computes and transfers, one after the
    other. on_best is told of each better one within the limits, and its cost; stop is asked before each evaluation.
    """
    return _Evolution(problem, Goal(budget_bytes, deadline_s, minimise), rng, allow).run(
        seeds, evaluations, on_best, stop
    )


class _Evolution:
    def __init__(self, problem: Problem, goal: Goal, rng: random.Random, allow: Collection[str]) -> None:
        self._walker, self._goal, self._rng = Walker(problem), goal, rng
        self._ways = movable(self._walker, allow)
        self._tensors = sorted(self._ways)

    def run(
        self,
        seeds: Sequence[Sequence[Hold]],
        evaluations: int,
        on_best: Callable[[tuple[Hold, ...], float], None],
        stop: Callable[[], bool],
    ) -> tuple[Hold, ...]:
        problem = self._walker.problem
        first = [self._rated(allowed(to_holds(problem, seed)[0], self._ways)) for seed in seeds] or [self._rated({})]
        people, done = sorted(first, key=lambda one: one.rank), len(first)
        begun = self._walker.walks
        while self._tensors and self._walker.walks - begun + done < evaluations and not stop():
            growing = len(people) < POPULATION
            worst = people[-1].rank
            limit = NO_LIMIT if growing or worst[0] > 0 else self._goal.limit(worst[1])
            if self._rng.random() < REBUILT:
                child = self._rated(self._rebuilt(self._drawn(people), stop), limit)
            else:
                parent = self._rng.choice(first) if growing else self._parent(people)
                child = self._rated(self._mutated(parent), limit)
            if any(child.rank == one.rank for one in people):
                continue
            if not growing and child.rank >= worst:
                continue
            better = child.rank < people[0].rank
            people = sorted([*people, child], key=lambda one: one.rank)[:POPULATION]
            if better and child.rank[0] == 0.0:
                on_best(to_genes(problem, child.holds), child.rank[1])
        return to_genes(problem, people[0].holds)

    def child(self, holds: Sequence[Hold]) -> tuple[Hold, ...]:
        """Holds with random changes."""
        problem = self._walker.problem
        parent = self._rated(allowed(to_holds(problem, holds)[0], self._ways))
        return to_genes(problem, self._mutated(parent)) if self._tensors else to_genes(problem, parent.holds)

    def _rated(self, holds: Holds, limit: Limit = NO_LIMIT) -> _Individual:
        walk = self._walker.walk(holds, limit=limit)
        kept = {tensor: stay for tensor, stay in holds.items() if tensor not in walk.refused}
        return _Individual(self._goal.rank(walk), walk.peak_stage, kept)

    def _rebuilt(self, parent: _Individual, stop: Callable[[], bool]) -> Holds:
        """Less greedy holds of which some were lost, near each other as often as not."""
        named = sorted(parent.holds)
        count = min(len(named), self._rng.randint(1, LOST))
        start = self._rng.randrange(len(named) - count + 1)
        lost = named[start : start + count] if self._rng.random() < 0.5 else self._rng.sample(named, count)
        holds = {tensor: stay for tensor, stay in parent.holds.items() if tensor not in lost}
        return completed(self._walker, self._goal, self._ways, holds, self._rng, POLISH, stop)

    def _parent(self, people: list[_Individual]) -> _Individual:
        parent = self._drawn(people)
        if self._rng.random() >= CROSSED:
            return parent
        other = self._drawn(people)
        low, high = sorted(self._rng.choices(range(len(self._walker.problem.tensors) + 1), k=2))
        holds = {t: stay for t, stay in parent.holds.items() if not low <= t < high}
        holds.update({t: stay for t, stay in other.holds.items() if low <= t < high})
        return _Individual(parent.rank, parent.peak_stage, holds, self._uses(parent))

    def _drawn(self, people: list[_Individual]) -> _Individual:
        return min(self._rng.sample(people, min(RIVALS, len(people))), key=lambda one: one.rank)

    def _uses(self, one: _Individual) -> list[list[int]]:
        if not one.uses:
            one.uses = touches(self._walker.problem, self._walker.walk(one.holds, record=True).steps)
        return one.uses

    def _mutated(self, parent: _Individual) -> Holds:
        uses, holds = self._uses(parent), parent.holds
        for _ in range(1 + int(self._rng.expovariate(1 / EXTRA_MOVES))):
            tensor, drawn = self._rng.choice(self._tensors), self._rng.random()
            if drawn < 0.4 and holds:
                tensor = self._rng.choice(list(holds))
            elif drawn < 0.6:
                tensor = self._live(uses, parent.peak_stage)
            holds = changed(self._walker, holds, tensor, self._moved(holds, tensor, uses[tensor]))
        return holds

    def _live(self, uses: list[list[int]], stage: int) -> int:
        """A tensor that is used both before and after a stage, if there is one."""
        live = [t for t in self._tensors if uses[t] and uses[t][0] <= stage <= uses[t][-1]]
        return self._rng.choice(live or self._tensors)

    def _moved(self, holds: Holds, tensor: int, uses: list[int]) -> Stay | None:
        """Another stay of a tensor: home, paged or not, given back in a gap, held in one, an end moved."""
        rng, ways = self._rng, self._ways[tensor]
        paged = holds[tensor][0] if tensor in holds else rng.choice(ways)
        pairs, kind = held(self._walker, holds, tensor), rng.random()
        if kind < 0.08:
            return None
        if kind < 0.25:
            return (rng.choice(ways), pairs)
        gaps = list(pairwise(uses))
        free = [gap for gap in gaps if not any(a <= gap[0] and gap[1] <= b for a, b in pairs)]
        if kind < 0.5 and gaps:
            return (rng.choice(ways) if rng.random() < 0.5 else paged, cut(pairs, *rng.choice(gaps)))
        if kind < 0.75 and free:
            return (paged, merged((*pairs, rng.choice(free))))
        return (paged, self._end_moved(tensor, pairs, uses))

    def _end_moved(self, tensor: int, pairs: Pairs, uses: list[int]) -> Pairs:
        rng, last_stage = self._rng, self._walker.count - 1
        lowest = max(self._walker.maker[tensor], 0)
        points = uses or [lowest]
        if not pairs or rng.random() < 0.2:
            first, last = rng.choice(points), rng.choice(points)
            return merged((*pairs, (min(first, last), max(first, last))))
        which = rng.randrange(len(pairs))
        first, last = pairs[which]
        step = rng.randint(-6, 6)
        if rng.random() < 0.5:
            last = rng.choice(points) if rng.random() < 0.6 else min(last_stage, last + step)
        else:
            first = rng.choice(points) if rng.random() < 0.6 else max(lowest, first + step)
        return merged((*pairs[:which], (first, last), *pairs[which + 1 :]))


def varied(
    problem: Problem, holds: Sequence[Hold], rng: random.Random, allow: Collection[str] = BOTH
) -> tuple[Hold, ...]:
    """The holds with a random change or two, as a child in the evolution has them; whatever they need. One that is not
    changed keeps its details."""
    evolution = _Evolution(problem, Goal(sys.maxsize), rng, allow)
    before = {(hold.value, hold.paged, hold.stages): hold for hold in holds}
    return tuple(before.get((hold.value, hold.paged, hold.stages), hold) for hold in evolution.child(holds))

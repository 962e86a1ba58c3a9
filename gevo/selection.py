"""Who survives and who has children, on plain points: the only file that imports DEAP.

Points are tuples of finite numbers, lower is better; NaN and infinity are refused, since DEAP treats NaN as a tie and
lets it displace valid points. `violations` says how far each point is over the limits of a campaign, 0 where it meets
them: constrained domination (Deb, Pratap, Agarwal, Meyarivan 2002), which needs no penalty. `floors` has the difference
of each objective up to which points do not rank (`gevo.order`), 0 by default.

One or two objectives are selected by NSGA-II. With three and more, crowding distances say little, and DEAP's NSGA-III
takes the ideal point off its intercepts twice, which is wrong where the ideal is not 0; there the front that does not
fit whole gives up what adds the least hypervolume. `benchmarks/selection.py` compares them with published figures.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from deap import base, tools  # pyright: ignore[reportMissingTypeStubs]

from gevo.leaders import layers
from gevo.order import Floors, Point, beats
from gevo.volume import checked, ranks, spread_out

MANY = 3  # objectives from which hypervolume selects


class _Individual:
    """A point and its place in the caller's list; DEAP wants the attribute `fitness`."""

    def __init__(self, index: int, point: Point, kind: type[base.Fitness]) -> None:
        self.index = index
        self.fitness: Any = kind(point)


def survivors(points: Sequence[Point], k: int, violations: Sequence[float] = (), floors: Floors = ()) -> list[int]:
    """Indices of the `k` points that are kept, best first: those within the limits, then the least over them.

    Points that are alike survive only if places are left: they are mostly the same program under different genomes,
    and would fill the population.
    """
    over = _violations(points, violations)
    within = [i for i in range(len(points)) if not over[i]]
    fronts = _fronts(points, within, floors)
    chosen: list[int] = []
    for front, _ in fronts:
        room = k - len(chosen)
        chosen += front if len(front) <= room else _thinned(front, points, room, fronts[0][0])
    beyond = sorted((i for i in range(len(points)) if over[i]), key=lambda i: over[i])
    first = {(tuple(points[i]), over[i]): i for i in reversed(beyond)}
    chosen += [i for i in beyond if first[tuple(points[i]), over[i]] == i]
    chosen += [i for _, alike in fronts for i in alike]
    chosen += [i for i in beyond if first[tuple(points[i]), over[i]] != i]
    return chosen[:k]


def tournament(
    points: Sequence[Point], k: int, rng: random.Random, violations: Sequence[float] = (), floors: Floors = ()
) -> list[int]:
    """Indices of `k` winners of binary tournaments by constrained domination, then crowding; all play equally often."""
    if not points:
        raise ValueError("tournament: expected at least one point, got none")
    over = _violations(points, violations)
    checked(points)
    floors = floors or (0.0,) * len(points[0])
    wide = _crowding(points, floors)

    def wins(one: int, two: int) -> int:
        if over[one] != over[two]:
            return one if over[one] < over[two] else two
        if beats(points[one], points[two], floors):
            return one
        if beats(points[two], points[one], floors):
            return two
        return one if wide[one] >= wide[two] else two  # whoever stands first in a shuffled order wins a tie

    chosen: list[int] = []
    queue: list[int] = []
    while len(chosen) < k:
        if len(queue) < 2:
            queue += rng.sample(range(len(points)), len(points))
        if len(points) == 1:
            queue += queue
        chosen.append(wins(queue.pop(), queue.pop()))
    return chosen


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other dominates, in their order; equal points all stay."""
    return [index for index, rank in enumerate(ranks(points)) if rank == 0]


def _fronts(points: Sequence[Point], indices: Sequence[int], floors: Floors) -> list[tuple[list[int], list[int]]]:
    """The indices by front, the best first, each in two parts: who leads there, and who is like one that does."""
    if not indices:
        return []
    floors = floors or (0.0,) * len(points[0])
    found = layers([points[i] for i in indices], floors)
    return [(sorted(indices[i] for i in lead), sorted(indices[i] for i in alike)) for lead, alike in found]


def _thinned(front: Sequence[int], points: Sequence[Point], k: int, best: Sequence[int]) -> list[int]:
    """`k` of a front. With few objectives the most crowded one goes and distances are made afresh, again and again,
    which spreads the rest better than one cut (Kukkonen, Deb 2006)."""
    if k == 0:
        return []
    if len(points[0]) >= MANY:
        kept = spread_out([points[i] for i in front], k, [points[i] for i in best])
        return [front[i] for i in kept]
    left = _individuals(points, front)
    while len(left) > k:
        tools.emo.assignCrowdingDist(left)
        left.remove(min(left, key=lambda one: one.fitness.crowding_dist))
    return [one.index for one in left]


def _crowding(points: Sequence[Point], floors: Floors) -> list[float]:
    """NSGA-II's crowding distance of each point within its front; infinite at the ends."""
    pool = _individuals(points, range(len(points)))
    for lead, alike in _fronts(points, range(len(points)), floors):
        tools.emo.assignCrowdingDist([pool[i] for i in sorted((*lead, *alike))])
    return [one.fitness.crowding_dist for one in pool]


def _violations(points: Sequence[Point], violations: Sequence[float]) -> Sequence[float]:
    if violations and len(violations) != len(points):
        raise ValueError(f"expected a violation for each of {len(points)} points, got {len(violations)}")
    return violations or [0.0] * len(points)


def _individuals(points: Sequence[Point], indices: Sequence[int]) -> list[_Individual]:
    kind = type("Minimised", (base.Fitness,), {"weights": (-1.0,) * len(points[0])})
    return [_Individual(index, points[index], kind) for index in indices]

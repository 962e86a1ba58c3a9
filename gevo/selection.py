"""Who survives and who has children, on plain points: the only file that imports DEAP.

Points are tuples of finite numbers, lower is better; NaN and infinity are refused, since DEAP treats NaN as a tie and
lets it displace valid points. `violations` says how far each point is over the limits of a campaign, 0 where it meets
them: constrained domination (Deb, Pratap, Agarwal, Meyarivan 2002), which needs no penalty.

One or two objectives are selected by NSGA-II. With three and more, crowding distances say little, and DEAP's NSGA-III
takes the ideal point off its intercepts twice, which is wrong where the ideal is not 0; there the front that does not
fit whole gives up what adds the least hypervolume. `benchmarks/selection.py` compares them with published figures.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from deap import base, tools  # pyright: ignore[reportMissingTypeStubs]

from gevo.volume import Point, checked, ranks, spread_out

MANY = 3  # objectives from which hypervolume selects


class _Individual:
    """A point and its place in the caller's list; DEAP wants the attribute `fitness`."""

    def __init__(self, index: int, point: Point, kind: type[base.Fitness]) -> None:
        self.index = index
        self.fitness: Any = kind(point)


def survivors(points: Sequence[Point], k: int, violations: Sequence[float] = ()) -> list[int]:
    """Indices of the `k` points that are kept, best first: those within the limits, then the least over them.

    Equal points survive only if places are left: they are mostly the same program under different genomes, and would
    fill the population.
    """
    over = _violations(points, violations)
    first: dict[tuple[Point, float], int] = {}
    for index, point in enumerate(points):
        first.setdefault((tuple(point), over[index]), index)
    unique = sorted(first.values())
    again = sorted(set(range(len(points))) - set(unique))
    chosen: list[int] = []
    for group in (unique, again):
        within = [i for i in group if not over[i]]
        chosen += _best(points, within, min(k - len(chosen), len(within)))
        chosen += sorted((i for i in group if over[i]), key=lambda i: over[i])[: k - len(chosen)]
    return chosen


def tournament(points: Sequence[Point], k: int, rng: random.Random, violations: Sequence[float] = ()) -> list[int]:
    """Indices of `k` winners of binary tournaments by constrained domination, then crowding; all play equally often."""
    if not points:
        raise ValueError("tournament: expected at least one point, got none")
    over = _violations(points, violations)
    values = checked(points)
    wide = _crowding(points)

    def wins(one: int, two: int) -> int:
        if over[one] != over[two]:
            return one if over[one] < over[two] else two
        if (values[one] <= values[two]).all() and (values[one] < values[two]).any():
            return one
        if (values[two] <= values[one]).all() and (values[two] < values[one]).any():
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


def _best(points: Sequence[Point], indices: Sequence[int], k: int) -> list[int]:
    """`k` of `indices`, whole fronts first; the front that does not fit is thinned."""
    chosen: list[int] = []
    fronts = _fronts(points, indices)
    for front in fronts:
        room = k - len(chosen)
        if room < len(front):
            front = _thinned(front, points, room, fronts[0])
        chosen += front
    return chosen


def _fronts(points: Sequence[Point], indices: Sequence[int]) -> list[list[int]]:
    """The indices by non-dominated front, the best first."""
    found: dict[int, list[int]] = {}
    for index, rank in zip(indices, ranks([points[i] for i in indices]), strict=True):
        found.setdefault(rank, []).append(index)
    return [found[rank] for rank in sorted(found)]


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


def _crowding(points: Sequence[Point]) -> list[float]:
    """NSGA-II's crowding distance of each point within its front; infinite at the ends."""
    pool = _individuals(points, range(len(points)))
    for front in _fronts(points, range(len(points))):
        tools.emo.assignCrowdingDist([pool[i] for i in front])
    return [one.fitness.crowding_dist for one in pool]


def _violations(points: Sequence[Point], violations: Sequence[float]) -> Sequence[float]:
    if violations and len(violations) != len(points):
        raise ValueError(f"expected a violation for each of {len(points)} points, got {len(violations)}")
    return violations or [0.0] * len(points)


def _individuals(points: Sequence[Point], indices: Sequence[int]) -> list[_Individual]:
    kind = type("Minimised", (base.Fitness,), {"weights": (-1.0,) * len(points[0])})
    return [_Individual(index, points[index], kind) for index in indices]

"""NSGA-II on plain points through DEAP: the only file that imports it.

Points are tuples of finite numbers, lower is better. DEAP treats NaN as a tie and lets it displace valid
points, so NaN and infinity are refused here. Neither `creator` nor pickle nor deepcopy is used.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from deap import base, tools  # pyright: ignore[reportMissingTypeStubs]

Point = tuple[float, ...]


class _Individual:
    """A point and its place in the caller's list; DEAP wants the attribute `fitness`."""

    def __init__(self, index: int, point: Point, kind: type[base.Fitness]) -> None:
        self.index = index
        self.fitness: Any = kind(point)


def survivors(points: Sequence[Point], k: int) -> list[int]:
    """Indices of the `k` points that NSGA-II keeps, best first; equal points survive only if places are left.

    Equal points are mostly the same program under different genomes, and would fill the population.
    """
    first: dict[Point, int] = {}
    for index, point in enumerate(points):
        first.setdefault(tuple(point), index)
    unique = sorted(first.values())
    chosen = _nsga2(points, unique, min(k, len(unique)))
    if len(chosen) == k:
        return chosen
    again = sorted(set(range(len(points))) - set(unique))
    return chosen + _nsga2(points, again, min(k - len(chosen), len(again)))


def tournament(points: Sequence[Point], k: int, rng: random.Random) -> list[int]:
    """Indices of `k` winners of binary tournaments by dominance, then crowding; ranks are made afresh.

    DEAP draws from the global generator and wants multiples of four: `rng` stands in for the former, whose
    state is put back, and the list is filled up with random repeats for the latter.
    """
    if not points:
        raise ValueError("tournament: expected at least one point, got none")
    pool = _individuals(points, range(len(points)))
    for front in tools.sortLogNondominated(pool, len(pool)):
        tools.emo.assignCrowdingDist(front)
    chosen: list[int] = []
    with _global_random_is(rng):
        while len(chosen) < k:
            filled = pool + [random.choice(pool) for _ in range(-len(pool) % 4)]
            chosen += [winner.index for winner in tools.selTournamentDCD(filled, len(filled))]
    return chosen[:k]


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other dominates, in their order; equal points all stay."""
    if not points:
        return []
    _individuals(points, range(len(points)))  # refuses what cannot be ranked
    values = np.array(points, dtype=np.float64)
    kept = np.empty((0, values.shape[1]))
    found: list[int] = []
    for index in np.lexsort(values.T[::-1]):  # what dominates a point stands before it in this order
        at = values[index]
        above = (kept <= at).all(axis=1) & (kept < at).any(axis=1)
        if not above.any():
            found.append(int(index))
            kept = np.vstack((kept, at))
    return sorted(found)


def _nsga2(points: Sequence[Point], indices: Sequence[int], k: int) -> list[int]:
    if k == 0:
        return []
    return [chosen.index for chosen in tools.selNSGA2(_individuals(points, indices), k, nd="log")]


def _individuals(points: Sequence[Point], indices: Sequence[int]) -> list[_Individual]:
    width = len(points[0])
    filler = (0.0,) if width == 1 else ()  # DEAP's sort fails on four or more points with one objective
    kind = type("Minimised", (base.Fitness,), {"weights": (-1.0,) * (width + len(filler))})
    for index in indices:
        if len(points[index]) != width:
            raise ValueError(f"point {index}: expected {width} objectives, got {len(points[index])}")
        if not all(math.isfinite(value) for value in points[index]):
            raise ValueError(f"point {index}: expected finite objectives, got {points[index]}; give valid results only")
    return [_Individual(index, (*points[index], *filler), kind) for index in indices]


@contextmanager
def _global_random_is(rng: random.Random) -> Generator[None]:
    saved = random.getstate()
    random.setstate(rng.getstate())
    try:
        yield
    finally:
        rng.setstate(random.getstate())
        random.setstate(saved)

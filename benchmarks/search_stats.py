"""Hypervolume over a run, and whether one method's runs end better than another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import moocore
import numpy as np
from scipy.stats import mannwhitneyu

Point = tuple[float, ...]


@dataclass(frozen=True)
class Against:
    """One method's final hypervolumes against another's.

    p: two-sided Mann-Whitney U, Holm-corrected over all methods compared. a12: probability that a run of the first
    is better than one of the other, ties counted half (Vargha and Delaney 2000).
    """

    p: float
    a12: float


def hypervolume(points: Sequence[Point]) -> float:
    """Share of the unit box that the points dominate, lower being better and 1 the reference in each objective."""
    inside = [p for p in points if all(v < 1.0 for v in p)]
    return float(moocore.hypervolume(np.maximum(inside, 0.0), ref=[1.0] * len(inside[0]))) if inside else 0.0


def curve(start: Point, points: Sequence[Point | None], length: int) -> list[float]:
    """Hypervolume of `start` and the points so far after each of `length` evaluations; a run that ended before stays
    where it was."""
    front, value, found = [start], hypervolume([start]), list[float]()
    for point in [*points, *[None] * length][:length]:
        if point is not None and not any(all(a <= b for a, b in zip(old, point, strict=True)) for old in front):
            front = [old for old in front if not all(a <= b for a, b in zip(point, old, strict=True))] + [point]
            value = hypervolume(front)
        found.append(value)
    return found


def a12(one: Sequence[float], two: Sequence[float]) -> float:
    """Probability that a value of `one` is greater than one of `two`, ties counted half."""
    difference = np.subtract.outer(np.asarray(one), np.asarray(two))
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def holm(p: Sequence[float]) -> list[float]:
    """The p-values corrected for their number by Holm's step-down method (1979)."""
    order, corrected, largest = np.argsort(p), [0.0] * len(p), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = largest
    return corrected


def against(first: Sequence[float], others: dict[str, Sequence[float]]) -> dict[str, Against]:
    """How the runs of `first` compare with those of each of the others."""
    raw = [1.0 if set(first) == set(two) and len(set(two)) == 1 else _p(first, two) for two in others.values()]
    return {name: Against(p, a12(first, others[name])) for name, p in zip(others, holm(raw), strict=True)}


def _p(one: Sequence[float], two: Sequence[float]) -> float:
    tied = len({*one, *two}) < len(one) + len(two)
    method = "asymptotic" if tied else "exact"  # the exact distribution knows no ties; the other corrects for them
    return float(mannwhitneyu(one, two, alternative="two-sided", method=method).pvalue)

"""Values with intervals: of a median by order statistics, of a difference of errors by pairs or by counts of rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
# Student's t, 97.5 % quantile, for 1, 2, ... degrees of freedom (any table); the last stands for all larger ones.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_Z_975 = 1.960


@dataclass(frozen=True)
class Estimate:
    """A value, the ends of its interval, and how often such an interval holds the truth; level 0: none is known."""

    value: float
    low: float
    high: float
    level: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def unknown(value: float) -> Estimate:
    """A value whose interval nobody knows."""
    return Estimate(value, value, value, 0.0)


def around(value: float, half: float) -> Estimate:
    return Estimate(value, value - half, value + half, LEVEL)


def median_interval(values: Sequence[float]) -> Estimate:
    """The median with the narrowest symmetric pair of order statistics that holds the true one at `LEVEL`.

    [x(k), x(n+1-k)] holds it with probability 1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution (David and
    Nagaraja, "Order Statistics", 7.1). Six values are the first for which it is above 95 %; of fewer, the interval is
    from the least to the greatest, and the level says how much that is worth.
    """
    ordered, count = sorted(values), len(values)
    best = next((k for k in range(count // 2, 1, -1) if _coverage(count, k) >= LEVEL), 1)
    return Estimate(statistics.median(ordered), ordered[best - 1], ordered[count - best], _coverage(count, best))


def paired_interval(variant: Sequence[float], base: Sequence[float], rows: int = 0) -> Estimate:
    """The mean of variant - base, one pair a seed, with Student's interval.

    rows: how many rows each error is a share of, 0 if it is none. All seeds share them, so that their mean does not
    lessen the noise of this sample: a difference of d needs at least d * rows that only one of the two has right,
    which is a variance of at least d / rows (McNemar's), beside that of the seeds.
    """
    differences = [v - b for v, b in zip(variant, base, strict=True)]
    count, mean = len(differences), statistics.fmean(differences)
    if count < 2:
        return unknown(mean)
    of_seeds = T_975[min(count - 1, len(T_975)) - 1] * math.sqrt(statistics.variance(differences) / count)
    return around(mean, math.hypot(of_seeds, half_of_rows(mean, rows)))


def half_of_rows(difference: float, rows: int) -> float:
    """Half the interval of a difference of two shares of `rows` by their sampling alone, at least; 0 without rows."""
    return _Z_975 * math.sqrt(abs(difference) / rows) if rows else 0.0


def binomial_interval(variant: float, base: float, rows: int) -> Estimate:
    """variant - base of two shares of `rows`, one scored state each; wider than a paired one, which needs each row."""
    variance = (variant * (1 - variant) + base * (1 - base)) / rows
    return around(variant - base, _Z_975 * math.sqrt(variance))


def mcnemar_interval(variant: str, base: str, rows: int) -> Estimate:
    """The difference of two errors that are shares of the same `rows`, by the rows that only one has right.

    variant, base: `fitness.result.Measure.right`. With b rows that only the base has right and c that only the variant
    has, the difference is (b - c) / n and its variance (b + c - (b - c)^2 / n) / n^2 (McNemar 1947; Agresti,
    "Categorical Data Analysis", 10.1.1).
    """
    own, of_base = int(variant, 16), int(base, 16)
    only_base, only_own = (of_base & ~own).bit_count(), (own & ~of_base).bit_count()
    difference = only_base - only_own
    variance = (only_base + only_own - difference * difference / rows) / rows**2
    return around(difference / rows, _Z_975 * math.sqrt(max(0.0, variance)))


def _coverage(count: int, k: int) -> float:
    return 1.0 - 2.0 * sum(math.comb(count, i) for i in range(k)) / 2.0**count

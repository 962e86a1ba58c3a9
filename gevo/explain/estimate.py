"""A mean of a few repeated measurements with its confidence interval, and when it is more than noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gevo.intervals import T_975

# Student's t, 99.5 % quantile, by degrees of freedom (any statistics textbook's table).
T_995 = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947)


@dataclass(frozen=True)
class Estimate:
    """A mean and the interval that holds the true one, in the unit of what was measured."""

    mean: float
    low: float
    high: float

    def beyond(self, floor: float) -> int:
        """1 if it is above zero by more than noise and `floor`, -1 if below, else 0."""
        if self.low > 0 and self.mean > floor:
            return 1
        return -1 if self.high < 0 and self.mean < -floor else 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def estimate(values: Sequence[float], quantiles: Sequence[float] = T_975) -> Estimate | None:
    """The mean of independent measurements with Student's interval, 95 % unless other `quantiles` are given; None for
    fewer than two, of which nothing is known about their noise."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = quantiles[min(len(values) - 2, len(quantiles) - 1)] * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)

"""Intervals hold the truth as often as they say: by many made-up samples, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gevo.intervals import Estimate, binomial_interval, mcnemar_interval, median_interval, paired_interval

TRIALS = 4000
NOISE = 3 * (0.95 * 0.05 / TRIALS) ** 0.5  # three standard errors of a share of so many trials


@pytest.mark.parametrize(("count", "level"), [(3, 0.75), (5, 0.9375), (6, 0.96875), (9, 0.9609375)])
def test_median_interval_covers_as_often_as_it_says_also_where_nothing_is_normal(count: int, level: float) -> None:
    drawn = np.random.default_rng(0).lognormal(0.0, 0.7, (TRIALS, count))  # its median is 1
    found = [median_interval(list(row)) for row in drawn]
    assert found[0].level == pytest.approx(level)
    assert np.mean([f.low <= 1.0 <= f.high for f in found]) == pytest.approx(level, abs=NOISE)
    assert found[0].value == np.median(drawn[0])


def test_median_interval_takes_the_narrowest_pair_that_suffices() -> None:
    assert median_interval([6.0, 1.0, 3.0, 2.0, 5.0, 4.0]) == Estimate(3.5, 1.0, 6.0, 0.96875)
    assert (median_interval(list(range(9))).low, median_interval(list(range(9))).high) == (1, 7)
    assert median_interval([2.0]).level == 0.0


def test_paired_interval_covers_a_difference_over_seeds() -> None:
    rng = np.random.default_rng(1)
    seeds = rng.normal(0.1, 0.05, (TRIALS, 5))  # what a seed does to base and variant alike
    base, variant = (seeds + rng.normal(mean, 0.01, seeds.shape) for mean in (0.0, 0.02))
    found = [paired_interval(list(v), list(b)) for v, b in zip(variant, base, strict=True)]
    assert np.mean([f.low <= 0.02 <= f.high for f in found]) == pytest.approx(0.95, abs=NOISE)
    assert np.mean([f.half for f in found]) < 0.04  # the seeds' own spread is gone


def test_paired_interval_is_not_certain_where_seeds_agree_by_chance() -> None:
    assert paired_interval([0.11] * 5, [0.10] * 5).half == pytest.approx(0.0)
    by_rows = paired_interval([0.11] * 5, [0.10] * 5, rows=400)  # 4 rows that only one has right: McNemar's
    assert by_rows.half == pytest.approx(1.96 * (4**0.5) / 400)
    assert paired_interval([0.11], [0.10]).level == 0.0


def test_binomial_interval_covers_a_difference_of_two_scored_states() -> None:
    rng = np.random.default_rng(2)
    variant, base = rng.binomial(1000, 0.12, TRIALS) / 1000, rng.binomial(1000, 0.10, TRIALS) / 1000
    found = [binomial_interval(v, b, 1000) for v, b in zip(variant, base, strict=True)]
    assert np.mean([f.low <= 0.02 <= f.high for f in found]) == pytest.approx(0.95, abs=NOISE)


def test_mcnemar_interval_covers_a_difference_of_two_programs_on_the_same_rows() -> None:
    rng = np.random.default_rng(4)
    base = rng.random((TRIALS, 999)) < 0.90
    flips = rng.random(base.shape) < np.where(base, 0.03, 0.10)  # what is right becomes wrong, and now and then back
    variant = base ^ flips
    truth = 0.90 * 0.03 - 0.10 * 0.10

    def bits(row: np.ndarray) -> str:
        return np.packbits(row).tobytes().hex()

    found = [mcnemar_interval(bits(v), bits(b), 999) for v, b in zip(variant, base, strict=True)]
    assert found[0].value == pytest.approx(base[0].mean() - variant[0].mean())
    assert np.mean([f.low <= truth <= f.high for f in found]) == pytest.approx(0.95, abs=NOISE)
    assert np.mean([f.half for f in found]) < 0.5 * binomial_interval(0.117, 0.10, 999).half  # rows pair noise away
    assert mcnemar_interval(bits(base[0]), bits(base[0]), 999) == Estimate(0.0, 0.0, 0.0, 0.95)

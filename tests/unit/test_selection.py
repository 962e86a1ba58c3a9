import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gevo.selection import non_dominated, survivors, tournament

values = st.integers(0, 6).map(float)


def clouds(width: int) -> st.SearchStrategy[list[tuple[float, ...]]]:
    return st.lists(st.tuples(*[values] * width), min_size=1, max_size=40)


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def brute_front(points: list[tuple[float, ...]]) -> list[int]:
    return [i for i, p in enumerate(points) if not any(dominates(q, p) for q in points)]


@given(st.integers(1, 4).flatmap(clouds))
@settings(max_examples=200, deadline=None)
def test_front_equals_brute_force(points: list[tuple[float, ...]]) -> None:
    assert non_dominated(points) == brute_front(points)


@given(st.integers(1, 4).flatmap(clouds), st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_survivors_are_distinct_and_no_loser_dominates_one(points: list[tuple[float, ...]], k: int) -> None:
    kept = survivors(points, k)
    assert len(kept) == len(set(kept)) == min(k, len(points))
    if len(set(points)) < k:
        return
    assert len({points[i] for i in kept}) == k
    lost = [i for i in range(len(points)) if points[i] not in {points[j] for j in kept}]
    assert not any(dominates(points[i], points[j]) for i in lost for j in kept)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "call", [lambda p: survivors(p, 2), non_dominated, lambda p: tournament(p, 4, random.Random(0))]
)
def test_not_finite_points_are_refused(bad: float, call: object) -> None:
    with pytest.raises(ValueError, match="point 1: expected finite objectives"):
        call([(1.0, 2.0), (bad, 1.0), (3.0, 3.0)])  # type: ignore[operator]


def test_points_of_different_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="point 1: expected 2 objectives, got 3"):
        non_dominated([(1.0, 2.0), (1.0, 2.0, 3.0)])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 28, 30])
def test_tournament_works_for_any_size(size: int) -> None:
    points = [(float(i), float(size - i)) for i in range(size)]
    for k in (1, 2, 6, 30):
        winners = tournament(points, k, random.Random(1))
        assert len(winners) == k and set(winners) <= set(range(size))


def test_tournament_prefers_dominating_points() -> None:
    points = [(float(i), float(i)) for i in range(20)]
    winners = tournament(points, 400, random.Random(5))
    assert sum(w < 10 for w in winners) > 280
    assert 19 not in winners  # the worst of all wins against nobody


def test_tournament_draws_from_the_given_generator_and_leaves_the_global_one() -> None:
    points = [(0.0, 1.0)] * 9
    random.seed(4)
    before = random.getstate()
    rng = random.Random(2)
    first, second = tournament(points, 12, rng), tournament(points, 12, rng)
    assert random.getstate() == before
    assert first != second
    random.seed(99)
    assert tournament(points, 12, random.Random(2)) == first


def zdt1(x: list[float]) -> tuple[float, float]:
    g = 1 + 9 * sum(x[1:]) / (len(x) - 1)
    return x[0], g * (1 - math.sqrt(x[0] / g))


def volume(points: list[tuple[float, ...]]) -> float:
    """Two-objective hypervolume to (1.1, 1.1)."""
    total, height = 0.0, 1.1
    for x, y in sorted(points[i] for i in non_dominated(points)):
        if x < 1.1 and y < height:
            total += (1.1 - x) * (height - y)
            height = y
    return total


def test_nsga2_beats_random_search_on_zdt1() -> None:
    rng, width, size, generations = random.Random(0), 10, 24, 60
    people = [[rng.random() for _ in range(width)] for _ in range(size)]
    for _ in range(generations):
        scores = [zdt1(x) for x in people]
        parents = [people[i] for i in tournament(scores, size, rng)]
        children = []
        for one, two in zip(parents, parents[1:] + parents[:1], strict=True):
            mixed = [a if rng.random() < 0.5 else b for a, b in zip(one, two, strict=True)]
            at = rng.randrange(width)
            mixed[at] = min(1.0, max(0.0, mixed[at] + rng.gauss(0, 0.2)))
            children.append(mixed)
        pool = people + children
        people = [pool[i] for i in survivors([zdt1(x) for x in pool], size)]
    guesses = [zdt1([rng.random() for _ in range(width)]) for _ in range(size * (generations + 1))]
    found, guessed = volume([zdt1(x) for x in people]), volume(guesses)
    assert found > 0.80 > guessed + 0.3  # the true front has 0.8714

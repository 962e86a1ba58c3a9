"""What ranks where differences up to a floor are none: as the sentence says, in any pair, and soundly in any set."""

from __future__ import annotations

import random
from graphlib import TopologicalSorter
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gevo.archive import Archive, Member
from gevo.genome import IDENTITY
from gevo.leaders import layers
from gevo.order import beats, change, covers, in_order
from gevo.selection import survivors, tournament

Point = tuple[float, ...]
FLOORS = [(2.0, 0.0, 0.0), (2.0, 3.0, 0.0), (0.0, 2.0), (2.0, 3.0), (2.0,), (0.0, 0.0, 0.0)]
values = st.integers(0, 8).map(float)  # sums of them are exact, and many lie just a floor apart


@st.composite
def clouds(draw: st.DrawFn) -> tuple[list[Point], Point]:
    floors = draw(st.sampled_from(FLOORS))
    return draw(st.lists(st.tuples(*[values] * len(floors)), min_size=1, max_size=30)), floors


@given(clouds())
@settings(max_examples=300, deadline=None)
def test_a_difference_under_the_floor_decides_nothing(cloud: tuple[list[Point], Point]) -> None:
    points, floors = cloud
    for one, two in product(points[:12], repeat=2):
        near = [abs(a - b) <= floor for a, b, floor in zip(one, two, floors, strict=True)]
        without = tuple(b if same else a for a, b, same in zip(one, two, near, strict=True))
        assert beats(one, two, floors) == beats(without, two, floors) and not (all(near) and beats(one, two, floors))
        assert not (beats(one, two, floors) and beats(two, one, floors))
        assert [c == 0 for c in change(one, two, floors)] == near


@given(clouds())
@settings(max_examples=300, deadline=None)
def test_no_chain_of_points_that_beat_each_other_closes(cloud: tuple[list[Point], Point]) -> None:
    points, floors = cloud
    graph = {i: {j for j, two in enumerate(points) if beats(two, one, floors)} for i, one in enumerate(points)}
    list(TopologicalSorter(graph).static_order())  # raises CycleError


@given(clouds(), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_no_leader_beats_another_and_all_others_are_covered_by_one(cloud: tuple[list[Point], Point], seed: int) -> None:
    points, floors = cloud
    prefer = [random.Random(seed + i).randrange(3) for i in range(len(points))]
    seen: list[int] = []
    for leaders, alike in layers(points, floors, prefer):
        here = [points[i] for i in leaders]
        assert not any(beats(a, b, floors) for a, b in permutations(here, 2))
        assert all(any(covers(a, points[i], floors) and covers(points[i], a, floors) for a in here) for i in alike)
        seen += [*leaders, *alike]
        rest = set(range(len(points))) - set(seen)
        assert all(any(covers(a, points[i], floors) for a in here) for i in rest)
    assert sorted(seen) == list(range(len(points)))


@given(clouds(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_leaders_do_not_depend_on_the_order_of_the_points(cloud: tuple[list[Point], Point], rng: random.Random) -> None:
    points = list(dict.fromkeys(cloud[0]))
    prefer = dict(zip(points, rng.sample(range(len(points)), len(points)), strict=True))
    shuffled = rng.sample(points, len(points))
    found = [
        {given_[i] for i in next(layers(given_, cloud[1], [prefer[p] for p in given_]))[0]}
        for given_ in (points, shuffled)
    ]
    assert found[0] == found[1]


def test_small_losses_do_not_add_up() -> None:
    """Each point of a chain beats the one before, by a byte, and is slower by less than the floor."""
    floors = (0.01, 0.0)
    chain = [(0.5 + 0.008 * i, 100.0 - i) for i in range(30)]
    assert all(beats(two, one, floors) for one, two in pairwise(chain))
    leaders, _ = next(layers(chain, floors))
    archive = Archive(floors=floors)
    for point in chain:
        archive.add(Member(IDENTITY, point))
    for kept in ([chain[i] for i in leaders], [m.point for m in archive.members]):
        assert all(any(covers(one, other, floors) for one in kept) for other in chain)
        assert min(time for time, _ in kept) <= 0.5 + 0.01


@given(clouds())
@settings(max_examples=200, deadline=None)
def test_all_that_was_added_is_covered_by_a_member_of_the_archive(cloud: tuple[list[Point], Point]) -> None:
    points, floors = cloud
    archive = Archive(floors=floors)
    for point in points:
        new = not any(covers(m.point, point, floors) for m in archive.members)
        assert archive.add(Member(IDENTITY, point)) == new
    kept = [m.point for m in archive.members]
    assert all(any(covers(one, point, floors) for one in kept) for point in points)
    assert not any(all(a <= b for a, b in zip(one, two, strict=True)) for one, two in permutations(kept, 2))


def test_of_a_hundred_like_the_base_one_survives_beside_what_is_better() -> None:
    rng, floors = random.Random(0), (0.01, 0.0)
    like = [(1.0 + rng.uniform(-0.005, 0.005), 100.0) for _ in range(100)]  # no two are a floor apart
    faster = (0.8, 120.0)
    kept = survivors([*like, faster], 2, (), floors)
    assert sorted(kept)[1] == 100
    assert tournament([*like[:1], (1.004, 99.0)], 8, rng, (), floors) == [1] * 8  # a byte less counts, and 0.4 % do not


def test_more_noisy_objectives_than_can_be_ranked_are_refused() -> None:
    one, two, three = (0.0, 1.0, 2.0), (2.0, 0.0, 1.0), (1.0, 2.0, 0.0)
    assert all(beats(a, b, (1.0,) * 3) for a, b in ((one, two), (two, three), (three, one)))  # a ring
    with pytest.raises(ValueError, match="at most 2"):
        in_order({"a": 1.0, "b": 1.0, "c": 1.0}, ("a", "b", "c"))

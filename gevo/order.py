"""Which points are better than others, where differences up to a floor are none.

A point covers another if it is worse in no objective by more than the floor; it beats the other if it is also better
in one by more than the floor. So whatever lies within the floor in an objective is decided by the other objectives.

To be within the floor of each other is not transitive, and therefore neither is beating: of three points each may beat
the next, and the last be faster than the first by almost two floors. But no chain of points that beat each other ever
closes, with at most two objectives that have a floor. Where one has: the others never get worse along the chain, so in
a ring they stay equal, and then each beats the next by the one objective, which only falls. Where two have: each step
lowers one by more than its floor and raises the other by at most its own, so their sum in floors falls.
`gevo.leaders` makes fronts of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Point = tuple[float, ...]
Floors = Sequence[float]
MOST_NOISY = 2  # objectives with a floor; with three, points may beat each other in a ring


def in_order(floors: Mapping[str, float], objectives: Sequence[str]) -> tuple[float, ...]:
    """The floor of each objective, 0 where there is none; raises ValueError if more have one than can be ranked by."""
    found = tuple(floors.get(name, 0.0) for name in objectives)
    if sum(floor > 0 for floor in found) > MOST_NOISY:
        raise ValueError(f"expected at most {MOST_NOISY} objectives with a noise floor, got {dict(floors)}")
    return found


def covers(one: Point, two: Point, floors: Floors) -> bool:
    """Whether `one` is worse than `two` in no objective by more than its floor."""
    return all(a <= b + floor for a, b, floor in zip(one, two, floors, strict=True))


def beats(one: Point, two: Point, floors: Floors) -> bool:
    """Whether `one` covers `two` and is better in some objective by more than its floor."""
    return covers(one, two, floors) and any(a + floor < b for a, b, floor in zip(one, two, floors, strict=True))


def change(one: Point, two: Point, floors: Floors) -> Point:
    """How much more `two` has than `one` in each objective, 0 where that is no more than the floor."""
    return tuple(b - a if abs(b - a) > floor else 0.0 for a, b, floor in zip(one, two, floors, strict=True))

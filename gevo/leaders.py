"""Fronts where differences up to a floor are none (`gevo.order`): who leads, and who is like one that does.

Points stand in an order that has each of them behind all that beat it, and whoever is covered by no leader so far
leads. So no leader beats another, and every other point is covered by one: a chain of small differences, in which each
beats the next, costs no more than one floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gevo.order import Floors, Point
from gevo.volume import checked

Rows = NDArray[np.float64]
Indices = NDArray[np.intp]


def layers(
    points: Sequence[Point], floors: Floors, prefer: Sequence[float] = ()
) -> Iterator[tuple[list[int], list[int]]]:
    """The indices of the leaders of all points, then of the rest, and so on; with each, those that are like one.

    Of points that lie within the floor of each other in all objectives one leads: the least by `prefer`, then the
    first. The others are like it, and in no later layer.
    """
    if not points:
        return
    values, width = checked(points), np.array(floors, dtype=np.float64)
    left = order = _sorted(values, width)
    while len(left):
        leaders: list[int] = []
        like: list[int] = []
        beaten: list[int] = []
        while len(left):
            first = values[left[0]]
            alike = left[_covered(values[left], first, width) & _covering(values[left], first, width)]
            lead = _chosen(alike, left, values, width, prefer)
            covered = _covered(values[left], values[lead], width)
            same = covered & _covering(values[left], values[lead], width)
            leaders.append(lead)
            like += [int(i) for i in left[same] if i != lead]
            beaten += [int(i) for i in left[covered & ~same]]
            left = left[~covered]
        yield leaders, like
        rest = set(beaten)
        left = np.array([i for i in order if int(i) in rest], dtype=np.intp)


def _chosen(
    alike: Indices,
    left: Indices,
    values: Rows,
    width: Rows,
    prefer: Sequence[float],
) -> int:
    """The one of `alike` that leads: the first by preference that none of `left` beats; the first of `left` is one."""
    for index in sorted(map(int, alike), key=lambda i: (prefer[i] if prefer else 0, i)):
        mine = values[index]
        over = _covering(values[left], mine, width) & (values[left] + width < mine).any(axis=1)
        if not over.any():
            return index
    return int(left[0])


def _sorted(values: Rows, width: Rows) -> Indices:
    """The indices so that whoever beats another stands before it: by what is exact, then by the sum of the others."""
    noisy = width > 0
    total = (values[:, noisy] / width[noisy]).sum(axis=1)
    return np.lexsort((total, *values[:, ~noisy].T[::-1]))


def _covered(rows: Rows, point: Rows, width: Rows) -> NDArray[np.bool_]:
    return np.logical_and.reduce(point <= rows + width, axis=1)


def _covering(rows: Rows, point: Rows, width: Rows) -> NDArray[np.bool_]:
    return np.logical_and.reduce(rows <= point + width, axis=1)

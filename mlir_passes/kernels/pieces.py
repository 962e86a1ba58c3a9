"""How a width is taken apart into vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Offsets = Mapping[int, int]  # iteration within the tile, by loop


@dataclass(frozen=True)
class Piece:
    """`active` of `lanes` lanes of the vector loop, from `offset` within the tile; (0, 1, 1) is a scalar."""

    offset: int = 0
    lanes: int = 1
    active: int = 1

    @property
    def partial(self) -> bool:
        return self.active < self.lanes


SCALAR = Piece()


def moved(offsets: Offsets, loop: int, by: int) -> Offsets:
    """The offsets with `loop`, the vector loop (-1 for none), `by` iterations into the tile."""
    return {**offsets, loop: by} if loop >= 0 and by else offsets


def pieces(width: int, lanes: int, masked: bool) -> list[Piece]:
    """`width` elements in vectors: whole ones, then powers of two, or one that is masked where that is fewer."""
    found = [Piece(at, lanes, lanes) for at in range(0, width - lanes + 1, lanes)]
    at = len(found) * lanes
    rest = width - at
    if rest and (masked or (rest > lanes // 2 and rest.bit_count() > 1)):
        return [*found, Piece(at, lanes, rest)]
    return [*found, *powers(at, rest)]


def powers(at: int, width: int) -> list[Piece]:
    """`width` elements from `at` in vectors of falling powers of two."""
    found: list[Piece] = []
    while width:
        part = 1 << (width.bit_length() - 1)
        found.append(Piece(at, part, part))
        at, width = at + part, width - part
    return found

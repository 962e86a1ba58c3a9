"""The best trade-offs so far: what children are built on, and whether a search still gets on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gevo.genome import Genome
from gevo.volume import Point, hypervolume, spread_out

SIZE = 64  # members; the front that a user sees is made from all records


@dataclass(frozen=True)
class Member:
    """A valid genome, the point it is selected by, how far it is over the limits, and its program's fingerprint."""

    genome: Genome
    point: Point
    over: float = 0.0
    fingerprint: str = ""


class Archive:
    """Members within the limits that no other dominates; of equal points the one with the fewest edits, then the first.

    Past its size it gives up what adds the least hypervolume.
    """

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members = list(members)

    def add(self, new: Member) -> bool:
        """Take in `new`; whether it is better than all there is in some way."""
        if new.over:
            return False
        for index, old in enumerate(self.members):
            if old.point == new.point:
                if new.genome.size < old.genome.size:
                    self.members[index] = new
                return False
            if all(a <= b for a, b in zip(old.point, new.point, strict=True)):
                return False
        dominated = [all(a <= b for a, b in zip(new.point, m.point, strict=True)) for m in self.members]
        self.members = [m for m, gone in zip(self.members, dominated, strict=True) if not gone]
        self.members.append(new)
        if len(self.members) > SIZE:
            points = [m.point for m in self.members]
            self.members = [self.members[i] for i in spread_out(points, SIZE, points)]
        return True

    def hypervolume(self, bounds: Sequence[tuple[float, float]]) -> float:
        return hypervolume([m.point for m in self.members], bounds)

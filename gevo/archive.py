"""The best trade-offs so far: what children are built on, and whether a search still gets on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gevo.genome import Genome
from gevo.order import Floors, Point, covers
from gevo.volume import hypervolume, spread_out

SIZE = 64  # members; the front that a user sees is made from all records


@dataclass(frozen=True)
class Member:
    """A valid genome, the point it is selected by, how far it is over the limits, and its program's fingerprint."""

    genome: Genome
    point: Point
    over: float = 0.0
    fingerprint: str = ""


class Archive:
    """Members within the limits. None is no worse than another in any figure.

    What a member covers (`gevo.order`) does not enter, and a member leaves only for one that is no worse in any figure,
    be it by less than the floor. So all that was ever added is covered by a member, and small losses do not add up.
    Past its size it gives up what adds the least hypervolume.
    """

    def __init__(self, members: Iterable[Member] = (), floors: Floors = ()) -> None:
        self.members, self._floors = list(members), tuple(floors)

    def add(self, new: Member) -> bool:
        """Take in `new`; whether it is better than all there is in some way."""
        if new.over:
            return False
        none = (0.0,) * len(new.point)
        worse = [covers(new.point, old.point, none) for old in self.members]
        if any(covers(old.point, new.point, self._floors or none) for old in self.members):
            shorter = (i for i, old in enumerate(self.members) if worse[i] and new.genome.size < old.genome.size)
            if (index := next(shorter, None)) is not None:
                self.members[index] = new
            return False
        self.members = [old for old, gone in zip(self.members, worse, strict=True) if not gone]
        self.members.append(new)
        if len(self.members) > SIZE:
            points = [m.point for m in self.members]
            self.members = [self.members[i] for i in spread_out(points, SIZE, points)]
        return True

    def hypervolume(self, bounds: Sequence[tuple[float, float]]) -> float:
        return hypervolume([m.point for m in self.members], bounds)

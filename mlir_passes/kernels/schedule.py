"""How a phase of a kernel is run: the genes of a kernel, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Schedule:
    """One phase's loops in vectors and tiles.

    vector: the loop that runs in vectors, -1 for none; it may be a reduction loop. lanes: elements of one vector.
    columns: vectors in a tile along that loop. unroll: (loop, count) of other loops done side by side in a tile;
    what is left over runs in a smaller tile. order: the parallel loops, outermost first. pack: where the vector loop
    is entered, copy what its tile will read into a buffer that stands in the order in which it is read.
    implementation: "loops" for this emitter; others are named in `implementations`.
    """

    vector: int = -1
    lanes: int = 1
    columns: int = 1
    unroll: tuple[tuple[int, int], ...] = ()
    order: tuple[int, ...] = ()
    pack: bool = False

    def tile(self, loop: int) -> int:
        """Iterations of a loop that one tile holds."""
        return self.lanes * self.columns if loop == self.vector else dict(self.unroll).get(loop, 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "vector": self.vector,
            "lanes": self.lanes,
            "columns": self.columns,
            "unroll": [list(pair) for pair in self.unroll],
            "order": list(self.order),
            "pack": self.pack,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Schedule:
        return Schedule(
            data["vector"],
            data["lanes"],
            data["columns"],
            tuple((loop, count) for loop, count in data["unroll"]),
            tuple(data["order"]),
            data.get("pack", False),
        )

"""What schedules need to know of a CPU, and questions about loops that several families ask."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlir_passes.kernels.nest import Access, Nest, Phase

_BYTES = {"f64": 8, "i64": 8, "index": 8}


@dataclass(frozen=True)
class Machine:
    """vector_bytes: width of the widest float vector register. registers: how many of them there are."""

    vector_bytes: int = 32
    registers: int = 16

    def lanes(self, nest: Nest, phase: Phase) -> int:
        """Elements of a whole vector: of the widest type that the phase computes floats with."""
        elements = {nest.arrays[a.array].element for a in nest.accesses(phase)}
        widest = max((_BYTES.get(e, 4) for e in elements if e not in ("i64", "index")), default=4)
        return self.vector_bytes // widest


def vector_loop(nest: Nest, phase: Phase) -> int:
    """The parallel loop that the phase's results are contiguous in, -1 for none."""
    parallel = nest.parallel(phase)
    found = [loop for loop in parallel if phase.stores and all(s.access.stride(loop) == 1 for s in phase.stores)]
    if not found:
        found = [loop for loop in parallel if any(s.access.stride(loop) == 1 for s in phase.stores)]
    if not found:  # nothing is stored along it: what the loads are contiguous in
        found = [loop for loop in parallel if any(a.stride(loop) == 1 for a in nest.accesses(phase))]
    return max(found, key=lambda loop: nest.sizes[loop], default=-1)


def contiguous(nest: Nest, phase: Phase, loop: int) -> bool:
    """Whether every access that moves with the loop moves by one element, and no index read from memory does."""
    return all(a.stride(loop) in (0, 1) and not _dynamic(nest, a, loop) for a in nest.accesses(phase))


def _dynamic(nest: Nest, access: Access, loop: int) -> bool:
    return any(loop in nest.loops_of(node) for node, _ in access.nodes)


def in_tiles(size: int, heights: tuple[int, ...]) -> int:
    """The first of `heights` that divides `size`; else the first that is not larger; else the size."""
    exact = next((h for h in heights if size % h == 0), 0)
    return exact or next((h for h in heights if h <= size), size)


def trips(nest: Nest, loops: tuple[int, ...]) -> int:
    return math.prod(nest.sizes[loop] for loop in loops)

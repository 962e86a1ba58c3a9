"""Windows: depthwise convolution, pooling: a few elements reduced for each result, all of them unrolled.

Results side by side along the window share its loads, and hide the latency of the sums.
"""

from __future__ import annotations

from mlir_passes.kernels.machine import Machine, contiguous, in_tiles, trips, vector_loop
from mlir_passes.kernels.nest import Nest, Phase
from mlir_passes.kernels.schedule import Schedule

_MOST = 25  # elements of a window that are unrolled: 5 x 5


def is_window(nest: Nest, phase: Phase) -> bool:
    """Whether the phase reduces few elements for each of many results."""
    loop = vector_loop(nest, phase)
    return loop >= 0 and contiguous(nest, phase, loop) and trips(nest, nest.reduced(phase)) <= _MOST


def schedules(nest: Nest, phase: Phase, machine: Machine) -> list[Schedule]:
    loop, lanes = vector_loop(nest, phase), machine.lanes(nest, phase)
    reduced = nest.reduced(phase)
    whole = tuple((k, nest.sizes[k]) for k in reduced)
    parallel = [p for p in nest.parallel(phase) if p != loop]
    moving = [a for a in nest.accesses(phase) if any(a.stride(k) for k in reduced)]
    shared = [p for p in parallel if any(a.stride(p) for a in moving)] or parallel
    row = shared[-1] if shared else -1
    found: list[Schedule] = []
    for columns, heights in ((1, (4, 7, 5, 3, 2)), (2, (4, 2, 3)), (1, (8, 7, 6)), (1, (2,)), (1, (1,))):
        if columns > 1 and columns * lanes > nest.sizes[loop]:
            continue
        height = in_tiles(nest.sizes[row], heights) if row >= 0 else 1
        unroll = (*whole, (row, height)) if height > 1 else whole
        found.append(Schedule(loop, lanes, columns, unroll, tuple([*parallel, loop])))
    return list(dict.fromkeys(found))

"""Elementwise work, broadcasts, copies, pads, gathers: vectors along what is stored contiguously."""

from __future__ import annotations

from mlir_passes.kernels.machine import Machine, vector_loop
from mlir_passes.kernels.nest import Apply, Nest, Phase
from mlir_passes.kernels.schedule import Schedule

_HEAVY = 12  # ops on an element that keep the units busy without vectors side by side


def schedules(nest: Nest, phase: Phase, machine: Machine) -> list[Schedule]:
    loop, lanes = vector_loop(nest, phase), machine.lanes(nest, phase)
    if loop < 0:
        return [Schedule(order=nest.parallel(phase))]
    ops = sum(isinstance(nest.nodes[n], Apply) for n in nest.reach(nest.roots(phase)))
    order = tuple([*(p for p in nest.parallel(phase) if p != loop), loop])
    vectors = -(-nest.sizes[loop] // lanes)
    across = [p for p in order for a in nest.accesses(phase) if a.stride(loop) > 1 and a.stride(p) == 1 and p != loop]
    if across and nest.sizes[across[0]] >= lanes:
        blocks = tuple(p for p in order if p not in (loop, across[0]))
        return [Schedule(loop, lanes, 1, ((across[0], count),), (*blocks, *pair))
                for count in (lanes, 2 * lanes) if count <= nest.sizes[across[0]]
                for pair in ((across[0], loop), (loop, across[0]))]  # fmt: skip
    counts = (1, 2, 4) if ops > _HEAVY else (4, 2, 1, 8)
    return [Schedule(loop, lanes, c, (), order) for c in dict.fromkeys(min(c, vectors) for c in counts)]

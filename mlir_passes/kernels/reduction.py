"""Reductions that read every element once: by columns in vectors, by rows with partial results in lanes."""

from __future__ import annotations

from mlir_passes.kernels.machine import Machine, contiguous, vector_loop
from mlir_passes.kernels.nest import Nest, Phase
from mlir_passes.kernels.schedule import Schedule


def schedules(nest: Nest, phase: Phase, machine: Machine) -> list[Schedule]:
    """By columns where the results are contiguous in what is read too; else along the loop that is reduced."""
    lanes, loop = machine.lanes(nest, phase), vector_loop(nest, phase)
    rows = _along_sum(nest, phase, lanes)
    columns = _along_result(nest, phase, loop, lanes)
    by_columns = loop >= 0 and contiguous(nest, phase, loop)
    found = [*columns, *rows] if by_columns or not rows else [*rows, *columns]
    return found or [Schedule()]


def _along_result(nest: Nest, phase: Phase, loop: int, lanes: int) -> list[Schedule]:
    if loop < 0:
        return []
    inner = nest.reduced(phase)[-1:]
    order = tuple([*(p for p in nest.parallel(phase) if p != loop), loop])
    found: list[Schedule] = []
    for columns in (4, 2, 8, 1):
        if columns == 1 or (columns - 1) * lanes < nest.sizes[loop]:
            for steps in (1, 4):
                unroll = tuple((k, steps) for k in inner if steps > 1 and nest.sizes[k] >= steps)
                found.append(Schedule(loop, lanes, columns, unroll, order))
    return list(dict.fromkeys(found))


def _along_sum(nest: Nest, phase: Phase, lanes: int) -> list[Schedule]:
    if any(not nest.reductions[r].combiner for r in phase.reductions):
        return []
    loops = [k for k in nest.reduced(phase) if contiguous(nest, phase, k) and nest.sizes[k] > 1]
    if not loops:
        return []
    loop = max(loops, key=lambda k: nest.sizes[k])
    vectors = -(-nest.sizes[loop] // lanes)
    counts = dict.fromkeys(min(c, vectors) for c in (4, 2, 8, 1))
    return [Schedule(loop, lanes, c, (), nest.parallel(phase)) for c in counts]

"""Small steps from one schedule of a phase to the next: what a tuner tries beyond the families' own lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from mlir_passes.kernels.choice import fits
from mlir_passes.kernels.contraction import reuse_loops
from mlir_passes.kernels.machine import Machine, trips
from mlir_passes.kernels.nest import Nest, Phase
from mlir_passes.kernels.schedule import Schedule

_MOST_UNROLLED = 128  # vectors of work in a tile; more is long to compile and never won (Zen 3)
_LARGEST_PANEL = 1 << 16  # elements; panels stand on the stack
_SPILLED = 1.5  # accumulators may be this many times the registers: some are spilled at little cost


def neighbours(schedule: Schedule, nest: Nest, phase: Phase, machine: Machine) -> list[Schedule]:
    """Schedules one step away: columns, the count of one unrolled loop, two loops in the other order, packing."""
    found = dict.fromkeys(
        [
            *_columns(schedule, nest),
            *_unrolls(schedule, nest, phase),
            *_orders(schedule, nest, phase),
            *_packing(schedule, nest, phase),
        ]
    )
    return [s for s in found if s != schedule and fits(nest, phase, s) and _small(s, nest, phase, machine)]


def _columns(schedule: Schedule, nest: Nest) -> Iterator[Schedule]:
    if schedule.vector < 0:
        return
    most = -(-nest.sizes[schedule.vector] // schedule.lanes)
    now = schedule.columns
    for columns in (now + 1, now - 1, now * 2, now // 2):
        if 1 <= columns <= most:
            yield replace(schedule, columns=columns)


def _unrolls(schedule: Schedule, nest: Nest, phase: Phase) -> Iterator[Schedule]:
    counts = dict(schedule.unroll)
    for loop in phase.loops:
        if loop == schedule.vector:
            continue
        size, now = nest.sizes[loop], counts.get(loop, 1)
        for count in dict.fromkeys((*_divisors_beside(size, now), now + 1, now - 1, now * 2, now // 2)):
            if 1 <= count <= size and count != now:
                changed = {**counts, loop: count}
                yield replace(schedule, unroll=tuple((k, n) for k, n in changed.items() if n > 1))


def _divisors_beside(size: int, now: int) -> list[int]:
    """The divisors of `size` next below and above `now`: tiles that leave nothing over."""
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    below, above = [d for d in divisors if d < now], [d for d in divisors if d > now]
    return below[-1:] + above[:1]


def _orders(schedule: Schedule, nest: Nest, phase: Phase) -> Iterator[Schedule]:
    parallel = nest.parallel(phase)
    order = [loop for loop in schedule.order if loop in parallel]
    order += [loop for loop in parallel if loop not in order]
    for i in range(len(order) - 1):
        swapped = [*order[:i], order[i + 1], order[i], *order[i + 2 :]]
        yield replace(schedule, order=tuple(swapped))


def _packing(schedule: Schedule, nest: Nest, phase: Phase) -> Iterator[Schedule]:
    if schedule.vector in nest.parallel(phase) and reuse_loops(nest, phase):
        yield replace(schedule, pack=not schedule.pack)


def _small(schedule: Schedule, nest: Nest, phase: Phase, machine: Machine) -> bool:
    """Whether a tile's accumulators nearly fit the registers, and its code stays short."""
    reduced = set(nest.reduced(phase))
    side_by_side = math.prod(count for loop, count in schedule.unroll if loop not in reduced)
    deep = math.prod(count for loop, count in schedule.unroll if loop in reduced)
    accumulators = schedule.columns * side_by_side * max(1, len(phase.reductions))
    if schedule.pack and trips(nest, nest.reduced(phase)) * schedule.tile(schedule.vector) > _LARGEST_PANEL:
        return False
    return accumulators <= _SPILLED * machine.registers and accumulators * deep <= _MOST_UNROLLED

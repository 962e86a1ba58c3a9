"""Which calls of a plan run at once, and on which slices: plain data in, plain data out.

A schedule is a list of phases, a phase a list of tasks. Any thread may take any task of the phase that is open;
the next phase opens when all of this one are done. So a phase may hold no two tasks of which one writes bytes
of the arena that the other reads or writes; the slices of one call write disjoint memory and may stand together.
Buffers share arena memory over time, so it is byte ranges that are compared, not buffers. The end of a step ends
a phase, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlir_passes.program import Kernel, KernelCall, Plan

# Costs are flops + bytes. To hand over a task takes 0.1 to 0.2 us, to open a phase as much (benchmarks/threads.py
# --handover); a core does 2 to 50 units a ns, so that a call of WORTH takes 3 us or more, a task of GRAIN 1 us.
WORTH = 150_000
GRAIN = 50_000
_MOST_PER_THREAD = 16  # more do not balance better: the last task of a phase is then below 1/16 of a thread's share


@dataclass(frozen=True)
class Slices:
    """Slices [begin, end) of the call at this index of the plan."""

    call: int
    begin: int
    end: int


Task = tuple[Slices, ...]  # done in order by one thread
Phase = tuple[Task, ...]


@dataclass(frozen=True)
class _Range:
    """Bytes [start, stop) of the arena that a call uses."""

    start: int
    stop: int
    written: bool


@dataclass
class _Open:
    """A task of the phase that is being filled. A task that is a piece of a call can take no further call."""

    slices: list[Slices]
    ranges: list[_Range]
    cost: float
    piece: bool


def schedule(plan: Plan, kernels: Mapping[str, Kernel], threads: int) -> tuple[Phase, ...]:
    """Phases that do all calls of the plan as if one after the other. Costly tasks come first in their phase."""
    phases: list[list[_Open]] = [[]]
    for number, call in enumerate(plan.calls):
        kernel = kernels[call.kernel]
        ranges = _ranges(plan, call, kernel)
        count = pieces(plan, call, kernel, threads)
        rivals = [task for task in phases[-1] if _conflict(task.ranges, ranges)]
        if count == 1 and (place := _place(phases[-1], rivals, kernel)) is not None:
            place.slices.append(Slices(number, 0, kernel.shards))
            place.ranges += ranges
            place.cost += cost(kernel)
            continue
        if rivals:
            phases.append([])
        cuts = [kernel.shards * k // count for k in range(count + 1)]
        phases[-1] += [
            _Open([Slices(number, begin, end)], list(ranges), cost(kernel) / count, count > 1)
            for begin, end in pairwise(cuts)
        ]
    by_cost = [sorted(phase, key=lambda task: -task.cost) for phase in phases if phase]
    return tuple(tuple(tuple(task.slices) for task in phase) for phase in by_cost)


def cost(kernel: Kernel) -> int:
    return kernel.flops + kernel.bytes_read + kernel.bytes_written


def pieces(plan: Plan, call: KernelCall, kernel: Kernel, threads: int) -> int:
    """Into how many tasks a call is split: 1 where it is too cheap, has no slices, or has one workspace for all."""
    if threads == 1 or kernel.shards == 1 or cost(kernel) < WORTH:
        return 1
    if any(plan.buffers[i].role == "workspace" for i in call.args):
        return 1
    fair = min(cost(kernel) // GRAIN, _MOST_PER_THREAD * threads) // threads * threads
    return min(kernel.shards, max(threads, fair))


def _place(phase: Sequence[_Open], rivals: Sequence[_Open], kernel: Kernel) -> _Open | None:
    """The task of the phase that a whole call joins: the one it must wait for, or another cheap one."""
    if rivals:
        return rivals[0] if len(rivals) == 1 and not rivals[0].piece else None
    cheap = [task for task in phase if not task.piece and task.cost + cost(kernel) < WORTH]
    return cheap[0] if cheap else None


def _ranges(plan: Plan, call: KernelCall, kernel: Kernel) -> list[_Range]:
    buffers = [plan.buffers[i] for i in call.args]
    return [_Range(b.offset, b.offset + b.bytes, place >= kernel.inputs) for place, b in enumerate(buffers)]


def _conflict(some: Sequence[_Range], others: Sequence[_Range]) -> bool:
    return any(a.start < b.stop and b.start < a.stop and (a.written or b.written) for a in some for b in others)

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

# Costs are flops + bytes; a core does 2 (scalar code) to 50 (multiply-adds on whole vectors) of them a ns. Handing over
# a task takes 0.3 us, measured on Zen 3: the "mill" of benchmarks/threads.py, cut into 250 tasks a step more, takes
# 80 us more. It is best with 2 to 4 tasks a thread: 1.83 times the speed of one thread; 1.73 with 1, 1.72 with 16.
WORTH = 150_000  # 3 us at least: split over two it gains more than two tasks cost
GRAIN = 50_000  # 1 us at least
LEAST = (
    5_000_000  # of a step, 100 us: where cores are far apart (220 ns for a cache line), digits (2.5 M) loses a third
)
LONG = 2_000_000  # 1 ms at most: a thread gives way between tasks, in time before the system takes its core away
_PER_THREAD = 4


@dataclass(frozen=True)
class Slices:
    """Slices [begin, end) of the call at this index of the plan."""

    call: int
    begin: int
    end: int


@dataclass(frozen=True)
class Task:
    """What one thread does, in order. owner: the thread that tries it first, because its data may be in that cache."""

    parts: tuple[Slices, ...]
    owner: int


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
    middle: float  # of a piece's slices, as a fraction of all


def schedule(plan: Plan, kernels: Mapping[str, Kernel], threads: int) -> tuple[Phase, ...]:
    """Phases that do all calls of the plan as if one after the other. Costly calls come first in their phase."""
    if useful(plan, kernels, threads) == 1:
        whole = tuple(Slices(i, 0, kernels[call.kernel].shards) for i, call in enumerate(plan.calls))
        return ((Task(whole, 0),),) if whole else ()
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
            _Open(
                [Slices(number, begin, end)],
                list(ranges),
                cost(kernel) / count,
                count > 1,
                (begin + end) / 2 / kernel.shards,
            )
            for begin, end in pairwise(cuts)
        ]
    return tuple(_owned(phase, threads) for phase in phases if phase)


def orders(phases: Sequence[Phase], threads: int) -> list[list[tuple[int, int]]]:
    """For each thread, the tasks as it tries them, each with the place in this list to go on at if it is claimed.

    In each phase its own come first, in order; then, thread by thread, those of others from the last one on. Where one
    of them is claimed, so are those before it, or another thread is about to claim them.
    """
    found: list[list[tuple[int, int]]] = [[] for _ in range(threads)]
    first = 0
    for phase in phases:
        owned = [[first + i for i, task in enumerate(phase) if task.owner == thread] for thread in range(threads)]
        for thread, order in enumerate(found):
            order += [(task, len(order) + i) for i, task in enumerate(owned[thread], 1)]
            for other in (*owned[thread + 1 :], *owned[:thread]):
                after = len(order) + len(other)
                order += [(task, after) for task in reversed(other)]
        first += len(phase)
    return found


def useful(plan: Plan, kernels: Mapping[str, Kernel], threads: int) -> int:
    """How many of `threads` can speed the step up: one if all its calls together are cheap, or memory is paged."""
    return threads if not plan.transfers and sum(cost(kernels[call.kernel]) for call in plan.calls) >= LEAST else 1


def cost(kernel: Kernel) -> int:
    return kernel.flops + kernel.bytes_read + kernel.bytes_written


def pieces(plan: Plan, call: KernelCall, kernel: Kernel, threads: int) -> int:
    """Into how many tasks a call is split: 1 where it is too cheap, has no slices, or has one workspace for all."""
    if threads == 1 or kernel.shards == 1 or cost(kernel) < WORTH:
        return 1
    if any(plan.buffers[i].role == "workspace" for i in call.args):
        return 1
    fair = max(min(cost(kernel) // GRAIN, _PER_THREAD * threads), cost(kernel) // LONG)
    return min(kernel.shards, max(threads, fair // threads * threads))


def _owned(phase: Sequence[_Open], threads: int) -> Phase:
    """The pieces of a call go to the threads in equal ranges, the same for every call; the rest where least is."""
    load = [0.0] * threads
    owners: dict[int, int] = {}
    for number, task in enumerate(phase):
        if task.piece:
            owners[number] = int(threads * task.middle)
            load[owners[number]] += task.cost
    by_cost = sorted(range(len(phase)), key=lambda number: -phase[number].cost)
    for number in by_cost:
        if number not in owners:
            owners[number] = load.index(min(load))
            load[owners[number]] += phase[number].cost
    return tuple(Task(tuple(phase[number].slices), owners[number]) for number in by_cost)


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

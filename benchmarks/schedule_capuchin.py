"""Swap first, recompute where a swap cannot be hidden: after Capuchin (Peng et al., ASPLOS 2020).

Capuchin runs one step as it comes and notes when each tensor is accessed; from that it decides, gap by gap, what is
evicted after one access and back at the next. Gaps are taken by the free time that a swap leaves between the end of
its way out and the last moment its way in may begin, most first, until the peak is under the budget. A swap with no
free time cannot be hidden; then it is a swap or a recomputation, whichever costs less time, and recomputations are
taken by bytes a second (MSPS), highest first. What still does not fit is evicted on demand, oldest access first.

What is simpler here: the times are those of the problem, not measured, and the decisions follow from replaying the line
instead of from feedback over several steps. A swap has one channel, half duplex, and finds the first free time on
it. What was made on the way of a recomputation is freed, never kept for the next. State is in memory for the whole
step, or has its home on the store. Only time counts: it knows no joules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import ScheduleError, Step, replay
from schedule_walk import Eviction, Fate, Gap, Walk, accesses

Span = tuple[float, float]


def capuchin_steps(problem: Problem, budget: int) -> tuple[Step, ...] | None:
    """A blocking line within the budget; None where there is none, even with evictions on demand."""
    evictions = _decided(problem, budget, frozenset(Fate))
    homes = {g: Eviction(Fate.SWAP, g[2]) for g in _gaps(problem) if g[1] == START and problem.tensors[g[0]].pageable}
    for chosen in (evictions, {}, homes):
        found = _within(problem, chosen, budget, on_demand=True)
        if found is not None:
            return found
    return None


def greedy_remat_steps(problem: Problem, budget: int) -> tuple[Step, ...] | None:
    """A blocking line within the budget without swaps, or None: at the peak, what frees most bytes for a second of
    recomputation goes first. So does XLA's rematerialisation, which knows compression and host memory besides."""
    return _within(problem, _decided(problem, budget, {Fate.RECOMPUTE}), budget, on_demand=False)


def _within(
    problem: Problem, evictions: Mapping[Gap, Eviction], budget: int, on_demand: bool
) -> tuple[Step, ...] | None:
    try:
        steps = tuple(Walk(problem, evictions, budget if on_demand else None).steps)
        replay(problem, steps, budget)
    except ScheduleError:
        return None
    return steps


def _decided(problem: Problem, budget: int, fates: Collection[Fate]) -> dict[Gap, Eviction]:
    """Evictions after which the peak is within the budget, or nothing is left to evict at the peak."""
    gaps = _gaps(problem)
    evictions: dict[Gap, Eviction] = {}
    refused: set[tuple[Gap, Fate]] = set()
    walk = Walk(problem, evictions)
    while walk.peak_bytes > budget:
        options = _Options(problem, walk, evictions, fates, refused)
        found = [c for gap in gaps if gap not in evictions and (c := options.best(gap)) is not None]
        if not found:
            break
        gap, eviction = max(found, key=lambda c: c.rank).chosen
        try:
            walk = Walk(problem, {**evictions, gap: eviction})
            evictions[gap] = eviction
        except ScheduleError:  # something else is recomputed from it, and it cannot be made again in time
            refused.add((gap, eviction.fate))
    return evictions


def _gaps(problem: Problem) -> list[Gap]:
    pairs = ((t, *pair) for t in range(len(problem.tensors)) for pair in pairwise(accesses(problem, t)))
    return [(t, a, b) for t, a, b in pairs if b > a + 1 or a == START]


@dataclass(frozen=True)
class _Candidate:
    """rank: hidden swaps first, by free seconds; then what costs time, by bytes a second."""

    chosen: tuple[Gap, Eviction]
    rank: tuple[bool, float]


class _Options:
    """What may be done about the peak of a walk."""

    def __init__(
        self,
        problem: Problem,
        walk: Walk,
        evictions: Mapping[Gap, Eviction],
        fates: Collection[Fate],
        refused: Collection[tuple[Gap, Fate]],
    ) -> None:
        self._problem, self._walk, self._fates, self._refused = problem, walk, fates, refused
        self._starts = [0.0, *accumulate(op.time_s for op in problem.ops)]
        self._busy = sorted(span for eviction in evictions.values() for span in eviction.transfers)
        self._written = {gap[0] for gap, eviction in evictions.items() if eviction.fate == Fate.SWAP}

    def best(self, gap: Gap) -> _Candidate | None:
        """The best that can be done with a gap; None where it does not help at the peak, or must not be."""
        tensor, before, after = gap
        found = self._problem.tensors[tensor]
        peak = self._walk.peak_stage
        swap = Fate.SWAP in self._fates and found.pageable and (gap, Fate.SWAP) not in self._refused
        if before == START:
            return self._home(gap) if swap and not after <= peak <= found.readers[-1] else None
        if not before < peak < after or (found.maker == START and tensor not in self._written):
            return None
        candidates = [self._swap(gap)] if swap else []
        seconds = self._recompute_s(tensor, after)
        if Fate.RECOMPUTE in self._fates and (gap, Fate.RECOMPUTE) not in self._refused and seconds is not None:
            candidates.append(self._costly(gap, Eviction(Fate.RECOMPUTE, after), seconds))
        return max(candidates, key=lambda c: c.rank, default=None)

    def _home(self, gap: Gap) -> _Candidate:
        """State on the store: read in before its first use, and written back after its update."""
        tensor, after = self._problem.tensors[gap[0]], gap[2]
        out_s = tensor.out_s if tensor.updater >= 0 else 0.0
        out = _first_free(self._busy, self._starts[tensor.readers[-1] + 1], out_s)
        back = _last_free([*self._busy, (out, out + out_s)], self._starts[after], tensor.in_s)
        transfers = ((out, out + out_s), (back, back + tensor.in_s))
        free_s = min(back, self._starts[-1] - out - out_s)
        ready = max(0, min(bisect_right(self._starts, back) - 1, after))
        early = self._walk.peak_stage < after
        if free_s >= 0 and not (early and ready <= self._walk.peak_stage):
            return _Candidate((gap, Eviction(Fate.SWAP, ready, transfers)), (True, free_s))
        ready = max(ready, self._walk.peak_stage + 1) if early else ready
        return self._costly(gap, Eviction(Fate.SWAP, ready), tensor.in_s + out_s)

    def _costly(self, gap: Gap, eviction: Eviction, seconds: float) -> _Candidate:
        size = self._problem.tensors[gap[0]].bytes
        return _Candidate((gap, eviction), (False, size / seconds if seconds > 0 else inf))

    def _swap(self, gap: Gap) -> _Candidate:
        tensor, before, after = self._problem.tensors[gap[0]], gap[1], gap[2]
        out_s = 0.0 if gap[0] in self._written else tensor.out_s
        out = _first_free(self._busy, self._starts[before + 1], out_s)
        back = _last_free([*self._busy, (out, out + out_s)], self._starts[after], tensor.in_s)
        free_s = back - (out + out_s)
        ready = bisect_right(self._starts, back) - 1
        transfers = ((out, out + out_s), (back, back + tensor.in_s))
        if free_s >= 0 and ready > self._walk.peak_stage:
            return _Candidate((gap, Eviction(Fate.SWAP, min(ready, after), transfers)), (True, free_s))
        ready = max(self._walk.peak_stage + 1, min(ready, after))
        stall_s = max(0.0, -free_s, tensor.in_s - (self._starts[after] - self._starts[ready]))
        return self._costly(gap, Eviction(Fate.SWAP, ready, transfers if free_s >= 0 else ()), stall_s)

    def _recompute_s(self, tensor: int, stage: int) -> float | None:
        """Seconds of making it again in a stage, from what is in memory or stored then; None where that cannot be."""
        there = self._walk.before[stage] - {tensor}
        chain: set[int] = set()
        todo, seconds = [tensor], 0.0
        while todo:
            t = todo.pop()
            maker = self._problem.tensors[t].maker
            if t in there or maker in chain:
                continue
            if t != tensor and t in self._walk.stored[stage]:
                seconds += self._problem.tensors[t].in_s
                continue
            if maker == START or self._problem.until[maker] < stage:
                return None
            chain.add(maker)
            seconds += self._problem.ops[maker].time_s
            todo += self._problem.ops[maker].reads
        return seconds


def _first_free(busy: Iterable[Span], start: float, length: float) -> float:
    """The first moment from `start` on at which the channel is free for so long; `busy` ascends."""
    for begin, end in busy:
        if begin >= start + length:
            break
        start = max(start, end)
    return start


def _last_free(busy: Iterable[Span], end: float, length: float) -> float:
    """The last moment from which the channel is free for so long, up to `end`."""
    for begin, over in sorted(busy, reverse=True):
        if over <= end - length:
            break
        end = min(end, begin)
    return end - length

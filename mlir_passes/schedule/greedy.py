"""A schedule within a budget by taking the cheapest bytes first."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from mlir_passes.schedule.decode import merged, to_genes, to_holds
from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.moves import BOTH, Goal, allowed, changed, cut, held, movable, touches
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.walk import Holds, Stay, Walk, Walker

CANDIDATES = 40  # tensors tried at a peak, the cheapest a byte first
POLISH = 400  # walks of the second half
FEW, NOISE = 12, 0.3  # where it is random: tensors tried, and by what share a price may be off


def greedy(
    problem: Problem,
    budget_bytes: int,
    start: Sequence[Hold] = (),
    allow: Collection[str] = BOTH,
    minimise: str = "energy",
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Hold, ...]:
    """Holds of which the line is within the budget, or as near as this way leads: the caller looks which.

    From the start, which keeps everything unless it says more: as long as the peak is too high, the tensor that lies
    unused over the peak and costs least for each byte freed is given back there. Then what the budget permits is held
    again where that makes it cheaper. allow: "remat", "page", or both. stop is asked before each walk.
    """
    walker, goal = Walker(problem), Goal(budget_bytes, minimise=minimise)
    ways = movable(walker, allow)
    return to_genes(problem, completed(walker, goal, ways, allowed(to_holds(problem, start)[0], ways), stop=stop))


def completed(
    walker: Walker,
    goal: Goal,
    ways: dict[int, tuple[bool, ...]],
    holds: Holds,
    rng: random.Random | None = None,
    polish: int = POLISH,
    stop: Callable[[], bool] = lambda: False,
) -> Holds:
    """What `greedy` makes of holds by index; with an rng it tries few tensors at a peak, and is off in their prices."""
    return _held_again(walker, goal, ways, _within(walker, goal, ways, holds, rng, stop), polish, stop)


def _within(
    walker: Walker,
    goal: Goal,
    ways: dict[int, tuple[bool, ...]],
    holds: Holds,
    rng: random.Random | None,
    stop: Callable[[], bool],
) -> Holds:
    for _ in range(4 * len(walker.problem.tensors)):
        walk = walker.walk(holds, record=True)
        if walk.peak_bytes <= goal.budget_bytes or stop():
            return holds
        best: tuple[float, Holds] | None = None
        for tensor, other in _cuts(walker, ways, holds, walk, rng):
            if stop():
                return best[1] if best else holds
            tried = walker.walk(other)
            freed = walk.peak_bytes - tried.peak_bytes
            if tried.peak_stage != walk.peak_stage and freed >= 0:
                freed = max(freed, walker.bytes[tensor] / 2)  # this peak is gone, and another is as high
            if freed > 0:
                price = (goal.cost(tried) - goal.cost(walk)) / freed
                price *= rng.uniform(1 - NOISE, 1 + NOISE) if rng else 1.0
                best = min(best or (price, other), (price, other), key=lambda found: found[0])
        if best is None:
            return holds
        holds = best[1]
    return holds


def _cuts(
    walker: Walker, ways: dict[int, tuple[bool, ...]], holds: Holds, walk: Walk, rng: random.Random | None
) -> Iterator[tuple[int, dict[int, Stay]]]:
    """The holds with one tensor given back between two uses, around the peak."""
    touched, peak = touches(walker.problem, walk.steps), walk.peak_stage
    ops, tensors = walker.problem.ops, walker.problem.tensors

    def there(tensor: int) -> bool:
        always = walker.maker[tensor] == START and tensor not in holds
        over = any(first <= peak <= last for first, last in held(walker, holds, tensor))
        return always or over or peak in touched[tensor]

    def cheapness(tensor: int) -> float:
        t = tensors[tensor]
        again = ops[t.maker].energy_j if False in ways[tensor] else float("inf")
        paged = t.in_j + t.out_j if True in ways[tensor] else float("inf")
        return min(again, paged) / max(t.bytes, 1)

    candidates = sorted(filter(there, ways), key=cheapness)[:CANDIDATES]
    if rng:
        candidates = rng.sample(candidates, min(FEW, len(candidates)))
    for tensor in candidates:
        pairs, uses = held(walker, holds, tensor), touched[tensor]
        gaps = {(bisect_left(uses, peak) - 1, bisect_left(uses, peak))}
        gaps.add((bisect_right(uses, peak) - 1, bisect_right(uses, peak)))
        found: dict[tuple[bool, tuple[tuple[int, int], ...]], None] = {}
        for before, after in sorted(gaps):
            shorter = pairs
            if before >= 0 and after < len(uses):
                shorter = cut(pairs, uses[before], uses[after])
            found.update(dict.fromkeys((paged, shorter) for paged in ways[tensor]))
        for stay in found:
            if holds.get(tensor) != stay:
                yield tensor, changed(walker, holds, tensor, stay)


def _held_again(
    walker: Walker,
    goal: Goal,
    ways: dict[int, tuple[bool, ...]],
    holds: Holds,
    polish: int,
    stop: Callable[[], bool],
) -> Holds:
    """Holds a tensor between two uses where the limits allow it and the cost falls, until nothing is found."""
    walk = walker.walk(holds, record=True)
    left, found = polish, True
    while found and left > 0:
        found = False
        for tensor in [t for t in holds if t in ways]:
            uses = touches(walker.problem, walk.steps)[tensor]
            for stay in _longer(holds[tensor], uses):
                left -= 1
                if stop():
                    return holds
                other = changed(walker, holds, tensor, stay)
                if goal.rank(walker.walk(other)) < goal.rank(walk):
                    holds, walk, found = other, walker.walk(other, record=True), True
                    break
            if left <= 0:
                return holds
    return holds


def _longer(stay: Stay, uses: Sequence[int]) -> list[Stay | None]:
    """Kept always, or between two uses where it is not."""
    paged, pairs = stay
    joined = [merged((*pairs, gap)) for gap in pairwise(uses)]
    return [None, *((paged, longer) for longer in joined if longer != pairs)]

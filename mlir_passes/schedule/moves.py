"""What the heuristics share: what they are after, and the small changes of holds that they try."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mlir_passes.schedule.decode import merged
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step
from mlir_passes.schedule.walk import Holds, Limit, Pairs, Stay, Walk, Walker

REMAT, PAGE = "remat", "page"
BOTH = frozenset({REMAT, PAGE})


@dataclass(frozen=True)
class Goal:
    """minimise: "energy" or "time". deadline_s: of all computes and transfers, one after the other."""

    budget_bytes: int
    deadline_s: float = float("inf")
    minimise: str = "energy"

    def __post_init__(self) -> None:
        if self.minimise not in ("energy", "time"):
            raise ScheduleError(f'minimise is "energy" or "time", not "{self.minimise}"')

    def cost(self, walk: Walk) -> float:
        return walk.energy_j if self.minimise == "energy" else walk.time_s

    def rank(self, walk: Walk) -> tuple[float, float]:
        """Lower is better: first how far it is from keeping to the limits, then its cost."""
        over = max(0, walk.peak_bytes - self.budget_bytes) / max(self.budget_bytes, 1)
        late = max(0.0, walk.time_s - self.deadline_s) / max(self.deadline_s, 1e-30)
        return over + late, self.cost(walk)

    def limit(self, cost: float) -> Limit:
        """Beyond which a line is not within the limits, or costs more."""
        cost *= 1 + 1e-12  # of sums in another order
        if self.minimise == "energy":
            return Limit(self.budget_bytes, cost, self.deadline_s)
        return Limit(self.budget_bytes, time_s=min(cost, self.deadline_s))


def touches(problem: Problem, steps: Sequence[Step]) -> list[list[int]]:
    """Of each tensor the stages in which it is made, read, or read in, ascending. What is final is read at the end."""
    found: list[list[int]] = [[] for _ in problem.tensors]
    run, last_stage = 0, len(problem.ops) - 1
    for step in steps:
        stage = min(run, last_stage)
        if step.kind == Kind.COMPUTE:
            touched = (*problem.ops[step.index].reads, *problem.ops[step.index].makes)
            run = max(run, step.index + 1)
        elif step.kind == Kind.IN:
            touched = (step.index,)
        else:
            continue
        for tensor in touched:
            if not found[tensor] or found[tensor][-1] != stage:
                found[tensor].append(stage)
    for tensor, t in enumerate(problem.tensors):
        if t.final and t.maker != START and found[tensor][-1] != last_stage:
            found[tensor].append(last_stage)
    return found


def held(walker: Walker, holds: Holds, tensor: int) -> Pairs:
    """The stages through which a tensor is held now; of state in memory, those that it would need on the store."""
    return holds[tensor][1] if tensor in holds else walker.default(tensor)


def cut(pairs: Pairs, first: int, last: int) -> Pairs:
    """The same without what is after stage `first` and before stage `last`."""
    parts = [part for a, b in pairs for part in ((a, min(b, first)), (max(a, last), b))]
    return merged(tuple((a, b) for a, b in parts if a < b))


def changed(walker: Walker, holds: Holds, tensor: int, stay: Stay | None) -> dict[int, Stay]:
    """The holds with another stay of one tensor; None, or what is no different from it, is how it is kept anyway."""
    result = dict(holds)
    result.pop(tensor, None)
    state = walker.maker[tensor] == START
    kept = not state and stay == (False, walker.default(tensor))
    if stay is not None and not kept and (stay[0] or not state):
        result[tensor] = stay
    return result


def movable(walker: Walker, allow: Collection[str]) -> dict[int, tuple[bool, ...]]:
    """The tensors that may leave memory, and with which values of `paged`."""
    found: dict[int, tuple[bool, ...]] = {}
    for tensor, t in enumerate(walker.problem.tensors):
        ways = [True] if PAGE in allow and walker.may_page(tensor) else []
        if REMAT in allow and t.maker != START and walker.until[t.maker] >= 0:
            ways.append(False)
        if ways and (t.maker == START or walker.end[tensor] > t.maker + 1):
            found[tensor] = tuple(ways)
    return found


def allowed(holds: Holds, ways: dict[int, tuple[bool, ...]]) -> dict[int, Stay]:
    """The holds that do only what is allowed."""
    return {tensor: stay for tensor, stay in holds.items() if stay[0] in ways.get(tensor, ())}

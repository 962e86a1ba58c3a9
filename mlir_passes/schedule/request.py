"""What is asked of the scheduler, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.steps import Step, Usage


@dataclass(frozen=True)
class Request:
    """A budget of memory and of time, and what to spend least of.

    deadline_s: of the overlapped line, transfers and computes on two engines. minimise: "energy", or "time", the
    seconds of the blocking line. remat, paging: whether ops may be computed again, and tensors go to the store.
    """

    budget_bytes: int
    deadline_s: float = inf
    minimise: str = "energy"
    remat: bool = True
    paging: bool = True
    time_limit_s: float = 60.0
    seed: int = 0
    workers: int = 1


@dataclass(frozen=True)
class Solution:
    """A schedule within the budget and the deadline, and how good it is.

    steps: with asynchronous transfers; blocking: the same, one thing after the other; holds: the same as genes.
    usage: the replay of `steps`. bound: a proven lower bound of the objective (J or s), however often ops are computed
    again, for lines in which state that is paged has its home on the store; where the exact search proved it, for
    those in which an op runs at most once in a stage, and in order. gap: (objective - bound) / objective of computing
    each op once. proven: who proved what. seconds: by stage of the chain.
    """

    steps: tuple[Step, ...]
    blocking: tuple[Step, ...]
    holds: tuple[Hold, ...]
    usage: Usage
    makespan_s: float
    bound: float
    gap: float
    proven: str
    found_by: str
    seconds: dict[str, float]

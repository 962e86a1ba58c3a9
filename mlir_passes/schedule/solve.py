"""The chain that finds a schedule: bound, heuristics, exact model, overlap, certificate."""

from __future__ import annotations

from collections.abc import Callable

from mlir_passes.schedule.infeasible import Infeasible
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request, Solution

__all__ = ["Infeasible", "Request", "Solution", "solve"]


def _silent(stage: str) -> None:
    """Tell nobody."""


def solve(problem: Problem, request: Request, on_stage: Callable[[str], None] = _silent) -> Solution:
    """The best schedule found within the budget and the deadline; raises Infeasible."""
    raise NotImplementedError

"""Ways to schedule a step within a memory budget, by name: ours, each technique alone, and those of other systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request
from mlir_passes.schedule.solve import Infeasible, solve
from mlir_passes.schedule.steps import Step, keep_all, replay
from schedule_capuchin import capuchin_steps, greedy_remat_steps
from schedule_chain import chain_steps

Steps = tuple[Step, ...] | None


@dataclass(frozen=True)
class Effort:
    """What a solver may take; the other ways have no use for it."""

    seconds: float = 30.0
    seed: int = 0
    workers: int = 1


def kept(problem: Problem, budget: int, effort: Effort) -> Steps:
    """Each op once, nothing leaves memory before its last use."""
    steps = keep_all(problem)
    return steps if replay(problem, steps).peak_bytes <= budget else None


def capuchin(problem: Problem, budget: int, effort: Effort) -> Steps:
    return capuchin_steps(problem, budget)


def greedy_remat(problem: Problem, budget: int, effort: Effort) -> Steps:
    return greedy_remat_steps(problem, budget)


def chain(problem: Problem, budget: int, effort: Effort) -> Steps:
    return chain_steps(problem, budget)


def chain_offload(problem: Problem, budget: int, effort: Effort) -> Steps:
    return chain_steps(problem, budget, offload=True)


def paging_only(problem: Problem, budget: int, effort: Effort) -> Steps:
    return solved(problem, budget, effort, remat=False)


def remat_only(problem: Problem, budget: int, effort: Effort) -> Steps:
    """What Checkmate (Jain et al., MLSys 2020) asks for, by our solver: the least recomputation, no paging."""
    return solved(problem, budget, effort, paging=False)


def ours(problem: Problem, budget: int, effort: Effort) -> Steps:
    return solved(problem, budget, effort)


def solved(problem: Problem, budget: int, effort: Effort, remat: bool = True, paging: bool = True) -> Steps:
    """The blocking line of the best schedule that the solver finds; None where it finds none."""
    request = Request(
        budget,
        remat=remat,
        paging=paging,
        time_limit_s=effort.seconds,
        seed=effort.seed,
        workers=effort.workers,
    )
    try:
        return solve(problem, request).blocking
    except Infeasible:
        return None


WAYS: dict[str, Callable[[Problem, int, Effort], Steps]] = {
    "keep all": kept,
    "Capuchin-like": capuchin,
    "greedy remat (XLA-like)": greedy_remat,
    "chain (rotor-like)": chain,
    "chain (POFO-like)": chain_offload,
    "paging only": paging_only,
    "remat only": remat_only,
    "ours": ours,
}

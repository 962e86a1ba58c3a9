"""POET's time-indexed integer program (arXiv 2207.07697), solved by HiGHS: a second opinion on optima.

In stage t, which ends with the first computation of op t, op i <= t may be computed (run), its tensor be in memory
from the start (kept), be on the store (stored), be read in (read, there from stage t + 1) or written out (written).
Memory is followed op by op (used), with Checkmate's rule of when a tensor is freed (freed). As in POET the deadline
counts computing alone. It knows ops of one tensor each, and no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from mlir_passes.schedule.milp import Program
from mlir_passes.schedule.problem import Problem

_Terms = list[tuple[tuple[object, ...], float]]


@dataclass(frozen=True)
class Verdict:
    """overhead_j: joules beyond computing each op once, of the best schedule found; bound_j: proven of that."""

    status: str
    overhead_j: float
    bound_j: float


def solve_milp(
    problem: Problem, budget_bytes: int, deadline_s: float = inf, time_limit_s: float = 400.0, threads: int = 1
) -> Verdict:
    """The least energy within the budget; raises ValueError for a problem that POET's program cannot state."""
    if any(op.makes != (i,) or op.workspace for i, op in enumerate(problem.ops)):
        raise ValueError("op i must make tensor i alone, and need no workspace")
    if any(t.final or t.updater >= 0 for t in problem.tensors):
        raise ValueError("there may be no state and nothing that stays to the end")
    program = _Program(problem, budget_bytes)
    program.limit_time(deadline_s)
    answer = program.program.solve(time_limit_s, threads)
    return Verdict(answer.status, answer.objective / program.scale, max(0.0, answer.bound / program.scale))


class _Program:
    def __init__(self, problem: Problem, budget_bytes: int) -> None:
        self.program = Program()
        self._problem = problem
        self.scale = (
            len(problem.ops) / problem.energy_j
        )  # so that a mean op costs 1; the first computations cost nothing
        self._unit = 1 / max(t.bytes for t in problem.tensors)
        self._budget = budget_bytes * self._unit
        self._bytes = [t.bytes * self._unit for t in problem.tensors]
        self._stages = range(len(problem.ops))
        self._add_variables()
        for stage in self._stages:
            self._add_data(stage)
            self._add_store(stage)
            self._add_frees(stage)
            self._add_memory(stage)

    def limit_time(self, deadline_s: float) -> None:
        """Computing takes no longer."""
        if deadline_s < inf:
            ops = self._problem.ops
            runs = [(("run", t, i), ops[i].time_s / deadline_s) for t in self._stages for i in range(t + 1)]
            self.program.row(runs, upper=1)

    def _add_variables(self) -> None:
        problem, program, scale = self._problem, self.program, self.scale
        for t in self._stages:
            for i in range(t + 1):
                first = i == t
                cost = 0.0 if first else problem.ops[i].energy_j * scale
                program.variable(("run", t, i), cost, lower=float(first))
            for i in range(t):
                program.variable(("kept", t, i))
                program.variable(("stored", t, i))
                program.variable(("read", t, i), problem.tensors[i].in_j * scale)
                program.variable(("written", t, i), problem.tensors[i].out_j * scale)
            for k in range(t + 1):
                program.variable(("used", t, k), upper=self._budget, integer=False)
                for i in problem.ops[k].reads:
                    program.variable(("freed", t, i, k))

    def _add_data(self, t: int) -> None:
        """What an op reads was kept or is computed before it; what is kept was in memory, or is read in."""
        for k in range(t + 1):
            for i in self._problem.ops[k].reads:
                self.program.row([(("run", t, k), 1), (("run", t, i), -1), *self._if(("kept", t, i), -1)], upper=0)
        for i in range(t + 1) if t + 1 in self._stages else ():
            terms: _Terms = [(("kept", t + 1, i), 1), (("run", t, i), -1)]
            self.program.row([*terms, *self._if(("kept", t, i), -1), *self._if(("read", t, i), -1)], upper=0)

    def _add_store(self, t: int) -> None:
        for i in range(t + 1) if t + 1 in self._stages else ():
            terms: _Terms = [(("stored", t + 1, i), 1)]
            self.program.row([*terms, *self._if(("stored", t, i), -1), *self._if(("written", t, i), -1)], upper=0)
        for i in range(t):
            self.program.row([(("read", t, i), 1), (("stored", t, i), -1)], upper=0)
            self.program.row([(("written", t, i), 1), (("kept", t, i), -1)], upper=0)

    def _add_frees(self, t: int) -> None:
        """A tensor is freed after op k exactly if that ran, nothing later in the stage reads it, and it is not kept."""
        for i, k in self._pairs(t):
            later = [j for j in self._problem.tensors[i].readers if k < j <= t]
            hazards: _Terms = [(("run", t, k), -1), *self._if(("kept", t + 1, i), 1)]
            hazards += [(("run", t, j), 1) for j in later]
            most = len(hazards)
            self.program.row([*hazards, (("freed", t, i, k), 1)], lower=0)
            self.program.row([*hazards, (("freed", t, i, k), most)], upper=most - 1)

    def _pairs(self, t: int) -> Iterator[tuple[int, int]]:
        for k in range(t + 1):
            for i in self._problem.ops[k].reads:
                yield i, k

    def _add_memory(self, t: int) -> None:
        kept: _Terms = [(("kept", t, i), -self._bytes[i]) for i in range(t)]
        self.program.row([(("used", t, 0), 1), (("run", t, 0), -self._bytes[0]), *kept], 0, 0)
        for k in range(t):
            freed: _Terms = [(("freed", t, i, k), self._bytes[i]) for i in self._problem.ops[k].reads]
            after: _Terms = [(("used", t, k + 1), 1), (("used", t, k), -1), (("run", t, k + 1), -self._bytes[k + 1])]
            self.program.row([*after, *freed], 0, 0)

    def _if(self, key: tuple[object, ...], factor: float) -> _Terms:
        return [(key, factor)] if key in self.program else []

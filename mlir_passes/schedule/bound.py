"""A proven lower bound of what a budget costs, from a relaxation that looks at a few moments only.

At the moment when an op is computed for the first time, each tensor that is still needed is in memory, or is read in
later, or is computed again later, for which its op needs its inputs likewise. What is in memory fits into the budget.
That holds for every schedule, however often it computes an op, so the least cost of such a choice is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from mlir_passes.schedule.expense import Expense, homeless
from mlir_passes.schedule.milp import Answer, Program
from mlir_passes.schedule.problem import START, Problem


@dataclass(frozen=True)
class Bound:
    """overhead: proven, of the cost beyond computing each op once; inf where no schedule can keep the budget.

    peak: the op at which most must leave memory. remats: ops, paged: tensors that the relaxed choice computes again
    or has on the store; a start for heuristics.
    """

    overhead: float
    peak: int
    remats: frozenset[int]
    paged: frozenset[int]


def cut_bound(
    problem: Problem,
    budget_bytes: int,
    costs: Expense,
    *,
    deadline_s: float = inf,
    remat: bool = True,
    paging: bool = True,
    moments: int = 12,
    time_limit_s: float = 10.0,
    threads: int = 1,
) -> Bound:
    """The bound from the relaxation at `moments` ops, those in which keeping everything is over the budget."""
    chosen, peak = crowded(problem, budget_bytes, moments)
    if not chosen:
        return Bound(0.0, peak, frozenset(), frozenset())
    relaxation = _Relaxation(problem, budget_bytes, costs, remat, paging)
    for moment in chosen:
        relaxation.look_at(moment)
    relaxation.limit_time(deadline_s)
    answer = relaxation.program.solve(time_limit_s, threads)
    if answer.infeasible:
        return Bound(inf, peak, frozenset(), frozenset())
    overhead = max(0.0, answer.bound / relaxation.scale) if answer.bound > -inf else 0.0
    return Bound(overhead, peak, _true(answer, "again"), _true(answer, "stored"))


def live_bytes(problem: Problem) -> list[int]:
    """For each op, what is in memory while it runs if everything is kept."""
    count = len(problem.ops)
    changes = [0] * (count + 1)
    for index, tensor in enumerate(problem.tensors):
        stays = tensor.final or tensor.maker == START
        changes[max(tensor.maker, 0)] += tensor.bytes
        changes[count if stays else problem.last[index] + 1] -= tensor.bytes
    found: list[int] = []
    total = 0
    for op, change in zip(problem.ops, changes, strict=False):
        total += change
        found.append(total + op.workspace)
    return found


def crowded(problem: Problem, budget_bytes: int, most: int) -> tuple[list[int], int]:
    """At most `most` ops, spread over those at which keeping everything is over the budget; and the worst of all."""
    live = live_bytes(problem)
    over = [i for i, taken in enumerate(live) if taken > budget_bytes]
    peak = max(range(len(live)), key=live.__getitem__)
    if len(over) <= most:
        return over, peak
    spread = {over[int((i + 0.5) * len(over) / (most - 1))] for i in range(most - 1)}
    return sorted(spread | {peak}), peak


def _true(answer: Answer, kind: str) -> frozenset[int]:
    return frozenset(key[1] for key, value in answer.values.items() if key[0] == kind and value > 0.5)  # type: ignore[index]


class _Relaxation:
    """Keys: (again, op), (stored, tensor), and at a moment (kept | read, tensor, moment), (made, op, moment)."""

    def __init__(self, problem: Problem, budget_bytes: int, costs: Expense, remat: bool, paging: bool) -> None:
        self.program = Program()
        self.scale = 100 / costs.once if costs.once > 0 else 1.0
        self._problem, self._budget = problem, budget_bytes
        self._always = homeless(problem, paging)
        self._unit = 1 / max(max((t.bytes for t in problem.tensors), default=1), 1)
        for number in range(len(problem.ops)):
            if remat and problem.until[number] > number:
                self.program.variable(("again", number), costs.compute[number] * self.scale)
        for index, tensor in enumerate(problem.tensors):
            if not paging or not tensor.pageable:
                continue
            written = tensor.maker != START or tensor.updater >= 0
            cost = costs.into[index] + (costs.out[index] if written else 0.0)
            self.program.variable(("stored", index), cost * self.scale)

    def look_at(self, moment: int) -> None:
        """Add the choice at the first computation of an op."""
        problem, program = self._problem, self.program
        there = [i for i, t in enumerate(problem.tensors) if t.maker <= moment and i not in self._always]
        for index in there:
            program.variable(("kept", index, moment))
            if ("stored", index) in program:
                program.variable(("read", index, moment))
                program.row([(("read", index, moment), 1), (("stored", index), -1)], upper=0)
        for number in range(moment + 1):
            if ("again", number) in program and problem.until[number] > moment:
                program.variable(("made", number, moment))
                program.row([(("made", number, moment), 1), (("again", number), -1)], upper=0)
        for index in there:
            state = problem.tensors[index].maker == START
            if state or problem.last[index] > moment:
                program.row(self._ways(index, moment), lower=1)
        for number in range(moment + 1):
            again = ("made", number, moment)
            for index in problem.ops[number].reads if again in program else ():
                if index not in self._always:
                    program.row([*self._ways(index, moment), (again, -1)], lower=0)
        op = problem.ops[moment]
        for index in {*op.reads, *op.makes} - self._always:
            program.fix(("kept", index, moment), 1)
        taken = op.workspace + sum(problem.tensors[i].bytes for i in self._always)
        weights = [(("kept", i, moment), problem.tensors[i].bytes * self._unit) for i in there]
        program.row(weights, upper=(self._budget - taken) * self._unit)

    def limit_time(self, deadline_s: float) -> None:
        """Neither the computing engine nor the transferring one works longer than that."""
        problem, program = self._problem, self.program
        if deadline_s == inf:
            return
        ops = [(("again", i), op.time_s / deadline_s) for i, op in enumerate(problem.ops) if ("again", i) in program]
        program.row(ops, upper=1 - problem.time_s / deadline_s)
        transfers = [
            (("stored", i), (t.in_s + (t.out_s if t.maker != START or t.updater >= 0 else 0.0)) / deadline_s)
            for i, t in enumerate(problem.tensors)
            if ("stored", i) in program
        ]
        program.row(transfers, upper=1)

    def _ways(self, index: int, moment: int) -> list[tuple[tuple[str, int, int], float]]:
        """A tensor is in memory, or read in later, or made again later."""
        keys = [("kept", index, moment), ("read", index, moment)]
        maker = self._problem.tensors[index].maker
        keys += [("made", maker, moment)] if maker != START else []
        return [(key, 1.0) for key in keys if key in self.program]

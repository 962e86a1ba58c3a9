"""A relaxation of scheduling: what is in memory at a few moments, and what happens in the windows between them.

A moment is the first computation of an op. In a window after it, up to the next moment, an op is computed again or is
not, a tensor is read in or is not, however often. What a window's first computations read, and what is in memory at its
end, was in memory at its beginning or comes back in it; what is computed again needs its inputs likewise. Memory is
bounded at the moments alone. All that holds for every schedule, so the least cost of such a choice is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from mlir_passes.schedule.expense import Expense, homeless
from mlir_passes.schedule.milp import Program
from mlir_passes.schedule.problem import START, Problem

_Way = tuple[tuple[str, int, int], float]


def may_run_until(problem: Problem, number: int) -> int:
    """As `Problem.until`, but what can be computed again at all can be after the last op too."""
    overwritten = any(problem.tensors[t].updater >= 0 for t in problem.ops[number].reads)
    return problem.until[number] if overwritten else len(problem.ops)


class Windows:
    """The relaxation at `moments`, ascending. Keys of the program: (stored, tensor, 0), and in a window, or at the
    moment that begins it, (kept | read, tensor, window) and (made, op, window); window -1 ends with the first moment.
    """

    def __init__(
        self, problem: Problem, budget_bytes: int, costs: Expense, moments: Sequence[int], remat: bool, paging: bool
    ) -> None:
        self.program = Program()
        self.scale = 100 / costs.once if costs.once > 0 else 1.0
        self._problem, self._costs, self._remat = problem, costs, remat
        self._moments = list(moments)
        self._ends = [*self._moments[1:], len(problem.ops)]  # the last op of each window; the end of the step is one
        self._always = homeless(problem, paging)
        self._unit = 1 / max(max((t.bytes for t in problem.tensors), default=1), 1)
        self._add_store(paging)
        for window in range(len(self._moments)):
            self._add_variables(window)
        for window in range(len(self._moments)):
            self._add_needs(window)
            self._add_memory(window, budget_bytes)

    def limit_time(self, deadline_s: float) -> None:
        """Neither the computing engine nor the transferring one works longer than that."""
        if deadline_s == inf:
            return
        problem = self._problem
        computes: list[_Way] = []
        transfers: list[_Way] = []
        for key in self.program:
            kind, index, _ = key
            if kind == "made":
                computes.append((key, problem.ops[index].time_s / deadline_s))
            elif kind == "read":
                transfers.append((key, problem.tensors[index].in_s / deadline_s))
            elif kind == "stored" and self._written(index):
                transfers.append((key, problem.tensors[index].out_s / deadline_s))
        self.program.row(computes, upper=1 - problem.time_s / deadline_s)
        self.program.row(transfers, upper=1)

    def _written(self, index: int) -> bool:
        tensor = self._problem.tensors[index]
        return tensor.maker != START or tensor.updater >= 0

    def _add_store(self, paging: bool) -> None:
        """State with its home on the store is read in before its first use; other state is always in memory."""
        for index, tensor in enumerate(self._problem.tensors):
            if not paging or not tensor.pageable or index in self._always:
                continue
            cost = self._costs.out[index] if self._written(index) else 0.0
            self.program.variable(("stored", index, 0), cost * self.scale)
            if tensor.maker == START:
                self._add_read(index, -1)
                if tensor.readers[0] <= self._moments[0]:
                    self.program.row([(("read", index, -1), 1), (("stored", index, 0), -1)], lower=0)

    def _add_read(self, index: int, window: int) -> None:
        if ("stored", index, 0) in self.program:
            self.program.variable(("read", index, window), self._costs.into[index] * self.scale)
            self.program.row([(("read", index, window), 1), (("stored", index, 0), -1)], upper=0)

    def _add_variables(self, window: int) -> None:
        problem, moment = self._problem, self._moments[window]
        for index, tensor in enumerate(problem.tensors):
            if tensor.maker <= moment and index not in self._always:
                self.program.variable(("kept", index, window))
                self._add_read(index, window)
        for number in range(moment + 1):
            if self._remat and may_run_until(problem, number) > moment:
                self.program.variable(("made", number, window), self._costs.compute[number] * self.scale)

    def _add_needs(self, window: int) -> None:
        problem, moment, end = self._problem, self._moments[window], self._ends[window]
        last = window == len(self._moments) - 1
        for index, tensor in enumerate(problem.tensors):
            if tensor.maker > moment or index in self._always:
                continue
            ways, state = self._ways(index, window), tensor.maker == START
            if any(moment < reader <= end for reader in tensor.readers) or (last and tensor.final and not state):
                self.program.row(ways, lower=1)
            if not last:
                self.program.row([*ways, (("kept", index, window + 1), -1)], lower=0)
            if state:
                self._add_home(index, window)
        for number in range(moment + 1):
            again = ("made", number, window)
            for index in problem.ops[number].reads if again in self.program else ():
                if index not in self._always:
                    self.program.row([*self._ways(index, window), (again, -1)], lower=0)

    def _add_home(self, index: int, window: int) -> None:
        kept, stored = ("kept", index, window), ("stored", index, 0)
        if stored not in self.program:
            self.program.fix(kept, 1)
            return
        self.program.row([(kept, 1), (stored, 1)], lower=1)
        if window == 0:
            self.program.row([(kept, 1), (stored, 1), (("read", index, -1), -1)], upper=1)

    def _add_memory(self, window: int, budget_bytes: int) -> None:
        problem, moment = self._problem, self._moments[window]
        op = problem.ops[moment]
        for index in {*op.reads, *op.makes} - self._always:
            self.program.fix(("kept", index, window), 1)
        taken = op.workspace + sum(problem.tensors[i].bytes for i in self._always)
        held = [
            (("kept", i, window), t.bytes * self._unit)
            for i, t in enumerate(problem.tensors)
            if ("kept", i, window) in self.program
        ]
        self.program.row(held, upper=(budget_bytes - taken) * self._unit)

    def _ways(self, index: int, window: int) -> list[_Way]:
        """A tensor is in memory when the window begins, or comes back in it."""
        keys = [("kept", index, window), ("read", index, window)]
        maker = self._problem.tensors[index].maker
        keys += [("made", maker, window)] if maker != START else []
        return [(key, 1.0) for key in keys if key in self.program]

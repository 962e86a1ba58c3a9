"""A mixed-integer program, built row by row and solved by HiGHS."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from mlir_passes.errors import PassError

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """What HiGHS found. values: of each variable by its key, empty without a solution. bound: proven, of a minimum."""

    status: str
    values: dict[Key, float]
    objective: float
    bound: float

    @property
    def infeasible(self) -> bool:
        return self.status == "Infeasible"


@contextmanager
def _stdout_closed() -> Generator[None]:
    """Nothing that is printed meanwhile is seen: the first solver of a process greets, and no option stops it."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class Program:
    """Variables with keys, and rows over them; the objective is a minimum."""

    def __init__(self) -> None:
        self._columns: dict[Key, int] = {}
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._costs: list[float] = []
        self._integer: list[bool] = []
        self._starts, self._indices, self._values = [0], list[int](), list[float]()
        self._rows: list[tuple[float, float]] = []

    def __contains__(self, key: Key) -> bool:
        return key in self._columns

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._columns))

    def variable(
        self, key: Key, cost: float = 0.0, lower: float = 0.0, upper: float = 1.0, integer: bool = True
    ) -> None:
        """Add one; by default it is 0 or 1."""
        self._columns[key] = len(self._costs)
        self._costs.append(cost)
        self._lower.append(lower)
        self._upper.append(upper)
        self._integer.append(integer)

    def fix(self, key: Key, value: float) -> None:
        """Let it have no other value."""
        self._lower[self._columns[key]] = self._upper[self._columns[key]] = value

    def row(self, terms: Iterable[tuple[Key, float]], lower: float = -inf, upper: float = inf) -> None:
        """lower <= the sum of variable * factor <= upper. Each key once."""
        for key, factor in terms:
            self._indices.append(self._columns[key])
            self._values.append(factor)
        self._starts.append(len(self._indices))
        self._rows.append((lower, upper))

    def solve(self, time_limit_s: float, threads: int = 1, relative_gap: float = 1e-6) -> Answer:
        """The least objective found within the time, and what is proven of it."""
        try:
            import highspy
        except ModuleNotFoundError:
            raise PassError("schedule", "HiGHS is not installed", "Install gevo[schedule]") from None
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self._costs), len(self._rows)
        program.col_cost_ = np.array(self._costs)
        program.col_lower_, program.col_upper_ = np.array(self._lower), np.array(self._upper)
        program.row_lower_, program.row_upper_ = (np.array(side) for side in zip(*self._rows, strict=True))
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(self._starts, dtype=np.int32)
        program.a_matrix_.index_ = np.array(self._indices, dtype=np.int32)
        program.a_matrix_.value_ = np.array(self._values)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        program.integrality_ = [kinds[integer] for integer in self._integer]
        with _stdout_closed():
            solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", float(max(time_limit_s, 0.1)))
        solver.setOptionValue("threads", threads)
        solver.setOptionValue("mip_rel_gap", relative_gap)
        solver.passModel(program)
        solver.run()
        information = solver.getInfo()
        found = information.primal_solution_status == 2
        values = solver.getSolution().col_value if found else []
        return Answer(
            solver.modelStatusToString(solver.getModelStatus()),
            dict(zip(self._columns, values, strict=True)) if found else {},
            information.objective_function_value if found else inf,
            information.mip_dual_bound,
        )

"""What budgets from the smallest feasible one to everything kept cost, by both techniques and by each alone."""

from __future__ import annotations

from dataclasses import replace

from gevo.schedule_curve import Curve, Series, budgets_between
from gevo.schedule_fit import least_bytes
from gevo.schedule_setup import OnStage, Ready
from gevo.schedule_view import ScheduleView
from gevo.scheduled import share, stopped
from mlir_passes.schedule.clock import Clock
from mlir_passes.schedule.order import ordered
from mlir_passes.schedule.request import Request, Solution
from mlir_passes.schedule.solve import Infeasible, solve
from mlir_passes.schedule.steps import keep_all, replay

BOTH = "both"
BUDGETS = 10
_LEAST_S = 0.05  # of a solve, whatever is left
_ORDERING = 0.1  # of the time, at most


class Sweep:
    """`request` says all but the budget; its time is that of all solves together. Budgets, `count` of them, are of
    bytes in use, without gaps between buffers. `curve` has what was found so far, also after an interrupt.

    A schedule is one for every larger budget too, and one that only pages or only computes again is one of both kinds;
    a bound holds for every smaller budget. The curve makes use of that, so all are in one order of the calls, the best
    one for half of the memory.
    """

    def __init__(self, ready: Ready, request: Request, count: int = BUDGETS) -> None:
        kept = replay(ready.problem, keep_all(ready.problem)).peak_bytes
        self._clock, ordering = Clock.of(request.time_limit_s), Clock.of(_ORDERING * request.time_limit_s)
        ready = replace(ready, problem=ordered(ready.problem, kept // 2, ordering)[0])
        self._ready, self._request, self._count = ready, request, count
        self._ways = {BOTH: request}
        if request.paging and request.remat:
            self._ways |= {
                "paging only": replace(request, remat=False),
                "computing again only": replace(request, paging=False),
            }
        else:
            self._ways = {"paging" if request.paging else "computing again": request}
        self._keep = replay(ready.problem, keep_all(ready.problem))
        self._costs: dict[str, dict[int, float]] = {name: {} for name in self._ways}
        self._bounds: dict[int, float] = {}
        self._tried: dict[str, list[int]] = {name: [] for name in self._ways}

    @property
    def curve(self) -> Curve:
        ready, energy = self._ready, self._request.minimise == "energy"
        bounds = {at: max(b for other, b in self._bounds.items() if other >= at) for at in self._bounds}
        return Curve(
            title=f"{ready.bench.workload} for {ready.target}: what less memory costs",
            keep_bytes=self._keep.peak_bytes,
            series=(*map(self._series, self._ways), Series("proven bound", tuple(sorted(bounds.items())), bound=True)),
            what=self._request.minimise,
            method=ready.energy_method if energy else ready.time_method,
        )

    def run(self, view: ScheduleView) -> None:
        """Solve all, from the largest budget on: what is proven soon leaves its time to the others."""
        view.doing = "smallest budget"
        least = least_bytes(self._ready, self._request, view)
        budgets = budgets_between(least, self._keep.peak_bytes, self._count)
        todo = [(budget, name) for budget in reversed(budgets) for name in self._ways]
        for number, (budget, name) in enumerate(todo):
            view.doing = f"budget {number // len(self._ways) + 1} of {len(budgets)}, {name}"
            limit_s = max(_LEAST_S, self._clock.left_s() / (len(todo) - number))
            found = self._solved(replace(self._ways[name], budget_bytes=budget, time_limit_s=limit_s), view)
            self._tried[name].append(budget)
            if found is None:
                continue
            self._costs[name][budget] = self._cost(found)
            if self._ways[name] is self._request:
                self._bounds[budget] = max(0.0, share(found.bound, self._kept))
            if stopped(found):
                raise KeyboardInterrupt

    def _series(self, name: str) -> Series:
        sources = list(self._costs.values()) if name == BOTH else [self._costs[name]]
        points: list[tuple[int, float | None]] = []
        for budget in sorted(self._tried[name]):
            fitting = [cost for costs in sources for at, cost in costs.items() if at <= budget]
            points.append((budget, min(fitting, default=None)))
        return Series(name, tuple(points))

    @property
    def _kept(self) -> float:
        return self._keep.energy_j if self._request.minimise == "energy" else self._keep.time_s

    def _cost(self, found: Solution) -> float:
        if self._request.minimise == "energy":
            return share(found.usage.energy_j, self._kept)
        return share(replay(self._ready.problem, found.blocking).time_s, self._kept)

    def _solved(self, request: Request, on_stage: OnStage) -> Solution | None:
        try:
            return solve(self._ready.problem, request, on_stage)
        except Infeasible:
            return None

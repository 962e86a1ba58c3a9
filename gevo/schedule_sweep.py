"""What budgets from the smallest feasible one to everything kept cost, by both techniques and by each alone."""

from __future__ import annotations

from dataclasses import replace

from gevo.schedule_curve import Curve, Series, budgets_between
from gevo.schedule_setup import OnStage, Ready, least_bytes
from gevo.schedule_view import ScheduleView
from gevo.scheduled import share
from mlir_passes.schedule.request import Request, Solution
from mlir_passes.schedule.solve import Infeasible, solve
from mlir_passes.schedule.steps import keep_all, replay

_BUDGETS = 10


class Sweep:
    """`request` says all but the budget; its time is that of all solves together. Budgets are of bytes in use, without
    gaps between buffers. `curve` has what was found so far, also after an interrupt."""

    def __init__(self, ready: Ready, request: Request) -> None:
        self._ready, self._request = ready, request
        self._ways = {"both": request}
        if request.paging and request.remat:
            self._ways |= {
                "paging only": replace(request, remat=False),
                "computing again only": replace(request, paging=False),
            }
        else:
            self._ways = {"paging" if request.paging else "computing again": request}
        self._keep = replay(ready.problem, keep_all(ready.problem))
        self._points: dict[str, list[tuple[int, float | None]]] = {name: [] for name in self._ways}
        self._bounds: list[tuple[int, float | None]] = []

    @property
    def curve(self) -> Curve:
        ready, energy = self._ready, self._request.minimise == "energy"
        series = [Series(name, tuple(points)) for name, points in self._points.items()]
        return Curve(
            title=f"{ready.bench.workload} for {ready.target}: what less memory costs",
            keep_bytes=self._keep.peak_bytes,
            series=(*series, Series("proven bound", tuple(self._bounds), bound=True)),
            what=self._request.minimise,
            method=ready.energy_method if energy else ready.time_method,
        )

    def run(self, view: ScheduleView) -> None:
        """Solve all, from the smallest budget on."""
        view.doing = "smallest budget"
        least = least_bytes(self._ready, self._request, view)
        budgets = budgets_between(least, self._keep.peak_bytes, _BUDGETS)
        limit_s = self._request.time_limit_s / (len(budgets) * len(self._ways))
        for number, budget in enumerate(budgets, 1):
            for name, request in self._ways.items():
                view.doing = f"budget {number} of {len(budgets)}, {name}"
                found = self._tried(replace(request, budget_bytes=budget, time_limit_s=limit_s), view)
                self._points[name].append((budget, None if found is None else self._cost(found)))
                if request is self._request and found is not None:
                    self._bounds.append((budget, max(0.0, share(found.bound, self._kept))))

    @property
    def _kept(self) -> float:
        return self._keep.energy_j if self._request.minimise == "energy" else self._keep.time_s

    def _cost(self, found: Solution) -> float:
        if self._request.minimise == "energy":
            return share(found.usage.energy_j, self._kept)
        return share(replay(self._ready.problem, found.blocking).time_s, self._kept)

    def _tried(self, request: Request, on_stage: OnStage) -> Solution | None:
        try:
            return solve(self._ready.problem, request, on_stage)
        except Infeasible:
            return None

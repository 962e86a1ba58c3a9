"""Results as points: what the search and the front rank by.

`runtime_s` ranks by its ratio to the base, which was timed window by window beside it: seconds of two
evaluations differ with the load of the machine, ratios much less. The other objectives rank by their value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fitness.result import Result

EXACT = ("peak_bytes", "error")  # a plan and a training with fixed seeds: a spread over seeds is no noise
WIDEST = 0.05  # a noisier base does not make the search blinder than this share of its value


def figure(result: Result, objective: str) -> float:
    """What a valid result ranks by in one objective."""
    return result.runtime_ratio if objective == "runtime_s" else float(result.objectives[objective].value)


def floors(base: Result, objectives: Sequence[str]) -> dict[str, float]:
    """The smallest difference of each figure that ranks: the base's spread, which is how far evaluations of one
    program lie apart (`fitness.pool.as_base`); 0 where a figure is exact."""
    found: dict[str, float] = {}
    for name in objectives:
        measure = base.objectives[name]
        if name in EXACT or measure.method.startswith("model:"):
            found[name] = 0.0
            continue
        share = min(measure.spread / measure.value, WIDEST)
        found[name] = share if name == "runtime_s" else share * measure.value
    return found


def bounds(base: Result, objectives: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Ideal and reference of each figure for hypervolume: from 0 to twice the base's."""
    least = {"error": 1e-3}  # a base without an error would leave no room
    return {
        name: (0.0, 2.0 if name == "runtime_s" else max(2.0 * figure(base, name), least.get(name, 0.0)))
        for name in objectives
    }


def figures(result: Result, objectives: Sequence[str]) -> tuple[float, ...]:
    """What a valid result ranks by, in order; `gevo.order` says which differences rank."""
    return tuple(figure(result, name) for name in objectives)


def point(result: Result, objectives: Sequence[str], floor: Mapping[str, float]) -> tuple[float, ...]:
    """The figures of a valid result for those who know nothing of floors, such as other libraries and a hypervolume:
    in whole floors from the base's, without the rest.

    So what is within the floor of the base's ratio is the base's. Of two others that are, one may be in the next cell:
    no grid puts all that are near each other into one, and gevo itself ranks by `gevo.order`.
    """
    origin = {"runtime_s": 1.0}
    return tuple(_on_grid(figure(result, n), floor.get(n, 0.0), origin.get(n, 0.0)) for n in objectives)


def not_finite(result: Result, objectives: Sequence[str]) -> str:
    """What keeps a result that claims to be valid from being ranked, as text; "" if nothing does."""
    for name in objectives:
        measure = result.objectives.get(name)
        if measure is None:
            return f"{name} is missing"
        if not all(map(math.isfinite, (measure.value, measure.spread, figure(result, name)))):
            return f"{name} is {measure}, ratio {result.runtime_ratio}"
        if name == "runtime_s" and result.runtime_ratio <= 0:
            return f"the ratio of {name} to the base is {result.runtime_ratio}"
    return ""


def _on_grid(value: float, step: float, origin: float) -> float:
    return origin + math.trunc((value - origin) / step) * step if step > 0 else value

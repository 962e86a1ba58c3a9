"""Results as points: what the search and the front rank by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fitness.result import Result


EXACT = ("peak_bytes", "error")  # a plan and a training with fixed seeds: a spread over seeds is no noise
WIDEST = 0.05  # a noisier base does not make the search blinder than this share of its value


def floors(base: Result, objectives: Sequence[str]) -> dict[str, float]:
    """The smallest difference of each objective that ranks: the base's own spread, 0 where a figure is exact."""
    found: dict[str, float] = {}
    for name in objectives:
        measure = base.objectives[name]
        exact = name in EXACT or measure.method.startswith("model:")
        found[name] = 0.0 if exact else min(max(0.0, measure.spread), WIDEST * measure.value)
    return found


def bounds(base: Result, objectives: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Ideal and reference of each objective for hypervolume: from 0 to twice the base's value."""
    return {name: (0.0, max(2.0 * base.objectives[name].value, 1e-3)) for name in objectives if name == "error"} | {
        name: (0.0, 2.0 * base.objectives[name].value) for name in objectives if name != "error"
    }


def point(result: Result, objectives: Sequence[str], floor: Mapping[str, float]) -> tuple[float, ...]:
    """The values of a valid result in order, in whole multiples of the floor where there is one.

    Rounding to a grid keeps the order transitive, which a tolerance in the comparison would not.
    """
    return tuple(_on_grid(result.objectives[name].value, floor.get(name, 0.0)) for name in objectives)


def _on_grid(value: float, step: float) -> float:
    return round(value / step) * step if step > 0 else float(value)

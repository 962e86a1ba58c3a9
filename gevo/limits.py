"""What a variant may cost at most: limits of a campaign, frozen beside its base, and how far a result is over them.

A limit is the largest figure of an objective that a user wants (`objectives.figure`: for `runtime_s` the ratio to the
base). Results over one are kept and guide the search, but stand behind all others and never on a front.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fitness.result import Result
from gevo.config import CampaignConfig
from gevo.objectives import figure
from gevo.units import size

SLOWEST = 20.0
HOPELESS = 3.0  # deadlines that the first steps may take
LEAST = 1e-3  # of the scale of a violation, where a limit is 0
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_deadline(text: str) -> tuple[float, str]:
    """The number and the unit of "1.1x" (times the base), "3ms", "250us" or "1.5s"; raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(x|us|ms|s)", text.strip().lower())
    if match is None or not float(match[1]):
        raise ValueError(f"expected a ratio to the base such as 1.1x, or a time such as 3ms, got {text!r}")
    return float(match[1]), match[2]


def slowest(config: CampaignConfig) -> float:
    """How many times slower than the base the first steps of a variant may be: a few steps are noisy, so several times
    the deadline; 20 without one."""
    number, unit = parse_deadline(config.deadline) if config.deadline else (0.0, "")
    return min(SLOWEST, HOPELESS * number) if unit == "x" else SLOWEST


def limits(base: Result, config: CampaignConfig) -> dict[str, float]:
    """The largest figure of each limited objective; `base` has those that `config` says to measure."""
    found: dict[str, float] = {}
    if config.deadline:
        number, unit = parse_deadline(config.deadline)
        found["runtime_s"] = number if unit == "x" else number * SECONDS[unit] / base.objectives["runtime_s"].value
    if config.memory_budget:
        found["peak_bytes"] = float(config.memory_budget)
    if config.max_error_increase is not None:
        found["error"] = base.objectives["error"].value + config.max_error_increase
    return found


def violation(result: Result, limit: Mapping[str, float], floors: Mapping[str, float]) -> float:
    """How far a valid result is over the limits, each as a share of the limit, summed; 0 where it meets them all.

    What is over by no more than the noise floor of the objective meets the limit.
    """
    total = 0.0
    for name, most in limit.items():
        if name in result.objectives:
            over = figure(result, name) - most
            total += over / max(most, LEAST) if over > max(floors.get(name, 0.0), 1e-12) else 0.0
    return total


def over_text(result: Result, limit: Mapping[str, float], floors: Mapping[str, float]) -> str:
    """Which limits a valid result is over, in words; "" if none."""
    over = [
        f"{name} {_text(name, figure(result, name))}, at most {_text(name, most)}"
        for name, most in limit.items()
        if violation(result, {name: most}, floors)
    ]
    return "; ".join(over)


def limits_text(limit: Mapping[str, float]) -> str:
    """The limits in words; "" if there is none."""
    return ", ".join(f"{name} at most {_text(name, most)}" for name, most in limit.items())


def _text(name: str, value: float) -> str:
    return f"{value:.3f}x" if name == "runtime_s" else size(value) if name == "peak_bytes" else f"{value:.4f}"

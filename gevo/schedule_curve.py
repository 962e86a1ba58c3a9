"""What less memory costs: energy or time over keeping everything against the budget, as a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevo.picture import BYTE_UNITS, fitting, write_picture
from gevo.units import size

if TYPE_CHECKING:
    from rich.table import Table

# Okabe and Ito's colours, told apart by all, and a mark each.
_LOOKS = (
    ("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"),
    ("#000000", "*"),
)  # fmt: skip
_STEEP = 50.0  # largest over smallest overhead from which the axis is logarithmic but near zero
_LEAST = 1e-5  # overhead that counts as more than none


@dataclass(frozen=True)
class Series:
    """One way to schedule: pairs of a budget in bytes and what it costs over keeping everything, 0.02 for 2 %;
    None where it found no schedule. bound: what no schedule can be below, drawn as a thin line."""

    name: str
    points: tuple[tuple[int, float | None], ...]
    bound: bool = False


@dataclass(frozen=True)
class Curve:
    """keep_bytes: the peak of keeping everything. what: energy or time. method: how that is known."""

    title: str
    keep_bytes: int
    series: tuple[Series, ...]
    what: str = "energy"
    method: str = ""

    @property
    def budgets(self) -> list[int]:
        """All budgets that were tried, ascending."""
        return sorted({at for series in self.series for at, _ in series.points})


def budgets_between(least_bytes: int, most_bytes: int, count: int) -> tuple[int, ...]:
    """`count` budgets from the least to the most, closer where memory is scarce: there the cost rises steeply."""
    if count < 2 or most_bytes <= least_bytes:
        return (most_bytes,) if most_bytes <= least_bytes else (least_bytes,)
    span = most_bytes - least_bytes
    found = [least_bytes + round(span * (i / (count - 1)) ** 1.5) for i in range(count)]
    return tuple(dict.fromkeys(found))


def table(curve: Curve) -> Table:
    """A line a budget, a column a series: how much more it costs than keeping everything."""
    from rich.table import Table

    shown = Table(title=curve.title, box=None, padding=(0, 2, 0, 0), pad_edge=False, title_justify="left")
    shown.add_column("budget", justify="right", no_wrap=True)
    shown.add_column("of all kept", justify="right", no_wrap=True)
    for series in curve.series:
        shown.add_column(series.name, justify="right")
    costs = [dict(series.points) for series in curve.series]
    for budget in curve.budgets:
        cells = [_cost(found[budget]) if budget in found else "" for found in costs]
        shown.add_row(size(budget), f"{budget / curve.keep_bytes:.1%}", *cells)
    return shown


def _cost(value: float | None) -> str:
    return "none" if value is None else f"{value:+.3%}"


def plot(curve: Curve, path: Path) -> None:
    """Write the picture, .svg, .png or .pdf; raises CampaignError, ExtraMissing, Unwritable."""
    write_picture(path, lambda: figure(curve), font_size=9)


def figure(curve: Curve) -> Any:
    """The picture as a matplotlib figure; the caller closes it. Crosses at the top: no schedule found there."""
    from matplotlib import pyplot

    made, panel = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    scale, unit = fitting(curve.keep_bytes, BYTE_UNITS)
    costs = [cost for series in curve.series for _, cost in series.points if cost is not None]
    _cost_axis(panel, costs)
    crossed = 0
    for number, series in enumerate(curve.series):
        color, mark = _LOOKS[number % len(_LOOKS)]
        found = [(at / scale, 100 * cost) for at, cost in sorted(series.points) if cost is not None]
        look: dict[str, Any] = {"marker": mark, "markersize": 5, "color": color, "zorder": 4 - 0.1 * number}
        if number:  # larger and hollow, so that it shows where it is the same as the first
            look |= {"markerfacecolor": "none", "markersize": 6 + 1.5 * number}
        if series.bound:
            look = {"linestyle": ":", "color": "#555555"}
        panel.plot(*(zip(*found, strict=True) if found else ([], [])), label=series.name, linewidth=1.4, **look)
        missing = [at / scale for at, cost in series.points if cost is None]
        if missing:
            panel.plot(missing, [0.97 - 0.04 * crossed] * len(missing), linestyle="", marker="x", color=color,
                       transform=panel.get_xaxis_transform(), label=f"{series.name}: none found")  # fmt: skip
            crossed += 1
    panel.axvline(curve.keep_bytes / scale, color="#777777", linewidth=1, linestyle=(0, (4, 2)))
    panel.annotate("all kept", (curve.keep_bytes / scale, 1), xycoords=("data", "axes fraction"), xytext=(-3, -3),
                   textcoords="offset points", ha="right", va="top", color="#777777", fontsize=8)  # fmt: skip
    panel.set_xlabel(f"memory budget, {unit}")
    panel.set_ylabel(f"{curve.what} over keeping everything, %" + (f"\n{curve.method}" if curve.method else ""))
    percent = 100 * scale / curve.keep_bytes
    share = panel.secondary_xaxis("top", functions=(_times(percent), _times(1 / percent)))
    share.set_xlabel("% of the peak of keeping everything")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, framealpha=0.9)
    made.suptitle(curve.title, fontsize=10, fontweight="bold", x=0.01, ha="left")
    return made


def _times(factor: float) -> Any:
    return lambda value: value * factor


def _cost_axis(panel: Any, costs: Sequence[float]) -> None:
    """In %, from zero; logarithmic but near zero where small and large costs would not show together."""
    from matplotlib.ticker import FuncFormatter

    some = sorted(100 * cost for cost in costs if cost > _LEAST)
    top = 1.2 * some[-1] if some else 1.0
    if some and some[-1] > _STEEP * some[0]:
        panel.set_yscale("symlog", linthresh=10 ** math.floor(math.log10(some[0])), linscale=0.5)
        top = 3.0 * some[-1]  # room for the crosses
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_ylim(min([0.0, *(100 * cost for cost in costs)]), top)

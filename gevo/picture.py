"""Writes a matplotlib figure as a file that is the same for the same content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gevo.kernels_plot import check_file

BYTE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def fitting(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of an axis that `value` is one of at least; units descend."""
    return next(((scale, name) for scale, name in units if value >= scale), units[-1])


def write_picture(path: Path, draw: Callable[[], Any], font_size: float) -> None:
    """Write what `draw` makes, .svg, .png or .pdf; raises CampaignError, ExtraMissing, Unwritable."""
    check_file(path)
    matplotlib: Any = import_module("matplotlib")
    pyplot: Any = import_module("matplotlib.pyplot")
    look = {"svg.fonttype": "none", "svg.hashsalt": "gevo", "font.size": font_size, "font.sans-serif": ["DejaVu Sans"]}
    with matplotlib.rc_context(look):
        figure = draw()
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        pyplot.close(figure)

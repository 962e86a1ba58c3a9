"""The kernels of a step as a picture: a box a call from top to bottom, a line a value from its maker to its readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from gevo.errors import CampaignError, ExtraMissing, Unwritable
from gevo.kernels import KINDS, Row, StepKernels, Value, time_text
from gevo.units import count, size

SUFFIXES = (".svg", ".png", ".pdf")
_FILLS = ("#f6c48f", "#c9b3dd", "#a8d1a0", "#f3e08b", "#c7d3de", "#e5e5e5")
COLOURS: dict[str, str] = dict(zip(KINDS, _FILLS, strict=True))
_KEPT, _PASSED, _OUTSIDE = "#c0392b", "#7f8c9a", "#2c5d8a"
# All lengths are inches.
_LEFT, _BOX, _GUTTER, _LANE, _MARGIN = 1.75, 3.3, 0.95, 0.17, 0.25
_HEAD, _SLOT, _LEAST_ROW, _GAP = 0.85, 0.155, 0.52, 0.1
_TITLE_CHARS, _LINE_CHARS = 47, 58
_MOST_LANES = 28  # side by side; the longest lines of a large step are left out, or it would be wider than legible
_MOST_NAMED = 3  # readers that a stub names


@dataclass(frozen=True)
class Lane:
    """Where the line of a value stands, from its maker's row to its last reader's; column -1: it has none, and stubs
    at both ends name each other."""

    value: int
    column: int
    readers: tuple[int, ...]
    kept: bool  # made for the metrics, and read again by what comes after them


def check_file(path: Path) -> None:
    """Raise where a picture cannot be drawn to `path`: before anything is measured for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise CampaignError(f"expected a file {', '.join(SUFFIXES)}, got {str(path)!r}", "--plot")
    if not path.absolute().parent.is_dir():
        raise Unwritable("no such folder", path.absolute().parent, "Make it first")
    _matplotlib()


def _matplotlib() -> Any:
    """matplotlib without a screen; raises ExtraMissing."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        todo = "Install it with: pip install 'gevo[report]'"
        raise ExtraMissing("matplotlib is not installed", "--plot", todo) from error
    matplotlib.use("Agg")
    return matplotlib


def forward(step: StepKernels) -> set[int]:
    """Numbers of the calls that a metric depends on; without metrics, all."""
    if not any(v.role == "metric" for v in step.values):
        return {row.number for row in step.rows}
    found: set[int] = set()
    pending = [v.maker for v in step.values if v.role == "metric"]
    while pending:
        number = pending.pop()
        if number and number not in found:
            found.add(number)
            pending += [step.values[v].maker for v in step.rows[number - 1].reads]
    return found


def lanes(step: StepKernels) -> list[Lane]:
    """A lane for each value that one call makes and others read; short ones stand near the boxes, none overlap.

    The longest, where there are too many, have no column.
    """
    first = forward(step)
    spans: list[tuple[int, int, tuple[int, ...]]] = []
    for number, value in enumerate(step.values):
        readers = tuple(row.number for row in step.rows if number in row.reads)
        if value.maker and readers:
            spans.append((number, value.maker, readers))
    taken: list[list[tuple[int, int]]] = []
    found: list[Lane] = []
    for number, maker, readers in sorted(spans, key=lambda s: (s[2][-1] - s[1], s[1])):
        free = (i for i, lane in enumerate(taken) if all(readers[-1] < a or b < maker for a, b in lane))
        column = next(free, len(taken))
        kept = maker in first and any(r not in first for r in readers)
        if column == _MOST_LANES:
            found.append(Lane(number, -1, readers, kept))
            continue
        if column == len(taken):
            taken.append([])
        taken[column].append((maker, readers[-1]))
        found.append(Lane(number, column, readers, kept))
    return found


def plot(step: StepKernels, path: Path) -> None:
    """Write the picture; raises as `check_file` does."""
    check_file(path)
    matplotlib = _matplotlib()
    from matplotlib import pyplot

    settings = {"svg.fonttype": "none", "svg.hashsalt": "gevo", "font.size": 7, "font.sans-serif": ["DejaVu Sans"]}
    with matplotlib.rc_context(settings):
        drawing = _Drawing(step)
        figure = pyplot.figure(figsize=(drawing.width, drawing.height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, drawing.width)
        axes.set_ylim(drawing.height, 0)
        axes.axis("off")
        drawing.draw(axes)
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        pyplot.close(figure)


class _Drawing:
    """Places of everything, then lines and boxes on a pair of axes whose unit is an inch, downwards."""

    def __init__(self, step: StepKernels) -> None:
        self._step = step
        self._lanes = {lane.value: lane for lane in lanes(step)}
        self._first = forward(step)
        columns = max((lane.column + 1 for lane in self._lanes.values()), default=0)
        self._box = _MARGIN + _LEFT
        self._lane = self._box + _BOX + _GUTTER
        self.width = max(self._lane + columns * _LANE + _MARGIN, 8.0)
        self._tops: list[float] = []
        at = _HEAD
        for row in step.rows:
            self._tops.append(at)
            at += self._height(row) + _GAP
        self.height = at + _MARGIN

    def draw(self, axes: Any) -> None:
        self._axes = axes
        self._legend()
        ends: dict[int, list[float]] = {number: [] for number in self._lanes}
        for row, top in zip(self._step.rows, self._tops, strict=True):
            self._boxed(row, top)
            self._outside(row, top)
            for (value, out), y in self._slots(self._inside(row), top, self._height(row)):
                ends[value].append(y)
                self._tick(value, out, y)
        for number, lane in self._lanes.items():
            if lane.column < 0:
                continue
            x = self._lane + (lane.column + 0.5) * _LANE
            axes.plot([x, x], [min(ends[number]), max(ends[number])], **self._style(number), solid_capstyle="butt")

    # what stands at a row

    def _inside(self, row: Row) -> list[tuple[int, bool]]:
        """Values at the right of the box: those read from other calls, then those written for them."""
        return [(v, False) for v in row.reads if v in self._lanes] + [(v, True) for v in row.writes if v in self._lanes]

    def _ports(self, row: Row) -> list[tuple[int, bool]]:
        """Values at the left: what the step is given, and what it gives back."""
        given = [(v, False) for v in row.reads if not self._step.values[v].maker]
        return given + [(v, True) for v in row.writes if self._step.values[v].role in ("state", "metric")]

    def _height(self, row: Row) -> float:
        return max(_LEAST_ROW, _SLOT * max(len(self._inside(row)), len(self._ports(row))))

    @staticmethod
    def _slots(found: Sequence[tuple[int, bool]], top: float, height: float) -> list[tuple[tuple[int, bool], float]]:
        return [(one, top + height * (i + 0.5) / len(found)) for i, one in enumerate(found)]

    # drawing

    def _boxed(self, row: Row, top: float) -> None:
        from matplotlib.patches import Rectangle

        height = self._height(row)
        axes, x = self._axes, self._box
        axes.add_patch(Rectangle((x, top), _BOX, height, facecolor=COLOURS[row.kind], edgecolor="#444", linewidth=0.7))
        if row.number not in self._first:
            axes.add_patch(Rectangle((x, top), 0.05, height, facecolor="#444", linewidth=0))
        middle = top + height / 2
        cost = f"{row.loops}, {count(row.flops)} flop, {row.shards} slice{'s' * (row.shards > 1)}"
        last = row.made + (f" | {time_text(row)}, {self._step.share(row):.1%}" if self._step.timed else "")
        self._text(x + 0.1, middle - 0.14, f"{row.number}  {shorten(row.title, _TITLE_CHARS, placeholder=' ...')}",
                   weight="bold")  # fmt: skip
        self._text(x + 0.1, middle + 0.01, shorten(cost, _LINE_CHARS, placeholder=" ..."))
        self._text(x + 0.1, middle + 0.15, shorten(last, _LINE_CHARS, placeholder=" ..."), color="#444")

    def _outside(self, row: Row, top: float) -> None:
        """Arrows from what the step is given, and to what it gives back."""
        for (number, out), y in self._slots(self._ports(row), top, self._height(row)):
            value, x = self._step.values[number], self._box
            inplace = any(new == number for _, new in row.inplace)
            note = "in place" if inplace else size(value.bytes)
            self._arrow((x, y) if out else (x - 0.3, y), (x - 0.3, y) if out else (x, y), _OUTSIDE, _width(value))
            self._text(x - 0.35, y, f"{_name(value)}  {note}", ha="right", color=_OUTSIDE)

    def _tick(self, number: int, out: bool, y: float) -> None:
        """From the box to the lane of a value, or back."""
        lane, value = self._lanes[number], self._step.values[number]
        edge, x = self._box + _BOX, self._lane + (lane.column + 0.5) * _LANE
        style = self._style(number)
        stub = lane.column < 0
        if stub:
            x = edge + 0.35
        if out:
            self._axes.plot([edge, x], [y, y], **style)
            self._axes.plot([x], [y], ">" if stub else "o", color=style["color"], markersize=2.5)
        else:
            self._arrow((x, y), (edge, y), style["color"], style["linewidth"])
        label = self._step.label(value)
        text = f"{label}  {size(value.bytes)}" if out else label
        if stub and out:
            more = ", ..." if len(lane.readers) > _MOST_NAMED else ""
            text += f"  to {', '.join(map(str, lane.readers[:_MOST_NAMED]))}{more}"
        self._text(edge + (0.05 if out else 0.12), y - 0.05, text, color=style["color"], size=5.5)

    def _arrow(self, start: tuple[float, float], end: tuple[float, float], color: str, width: float) -> None:
        look = {"arrowstyle": "-|>,head_width=0.12,head_length=0.25", "color": color, "linewidth": width}
        self._axes.annotate("", xy=end, xytext=start, arrowprops={**look, "shrinkA": 0, "shrinkB": 0})

    def _style(self, number: int) -> dict[str, Any]:
        lane, value = self._lanes[number], self._step.values[number]
        return {"color": _KEPT if lane.kept else _PASSED, "linewidth": _width(value)}

    def _legend(self) -> None:
        from matplotlib.patches import Rectangle

        step, y = self._step, 0.2
        about = f"{step.workload}: one training step, {len(step.rows)} calls, arena {size(step.peak_bytes)}"
        self._text(_MARGIN, y, about, weight="bold", size=9)
        x = _MARGIN
        for kind in KINDS:
            if any(row.kind == kind for row in step.rows):
                self._axes.add_patch(Rectangle((x, y + 0.17), 0.12, 0.1, facecolor=COLOURS[kind], edgecolor="#444",
                                               linewidth=0.5))  # fmt: skip
                self._text(x + 0.17, y + 0.22, kind)
                x += 0.3 + 0.065 * len(kind)
        self._axes.add_patch(Rectangle((x, y + 0.15), 0.05, 0.14, facecolor="#444", linewidth=0))
        self._text(x + 0.1, y + 0.22, "backward and update: no metric needs it")
        x = _MARGIN
        notes = (
            (_OUTSIDE, "state, batch, metrics"),
            (_PASSED, "from call to call"),
            (_KEPT, "kept for the backward pass"),
        )
        for color, note in notes:
            self._axes.plot([x, x + 0.25], [y + 0.42, y + 0.42], color=color, linewidth=1.8)
            self._text(x + 0.3, y + 0.42, note)
            x += 0.55 + 0.06 * len(note)
        self._text(x, y + 0.42, "wider: more bytes", color="#444")

    def _text(self, x: float, y: float, text: str, **look: Any) -> None:
        self._axes.text(x, y, text.replace("$", r"\$"), va="center", **look)


def _name(value: Value) -> str:
    return shorten(value.name, 22, placeholder="...") if value.name else "?"


def _width(value: Value) -> float:
    """Of a line, in points: 0.6 for a few bytes, 3 for a GiB."""
    return 0.6 + 0.08 * math.log2(max(1, value.bytes))

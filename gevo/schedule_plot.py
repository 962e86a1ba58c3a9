"""A schedule as a picture over time: what computes and moves, memory against the budget, where tensors are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gevo.picture import BYTE_UNITS, fitting, write_picture
from gevo.schedule_trace import Lane, Span, Trace, trace
from gevo.units import seconds, size
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Step, keep_all

# Okabe and Ito's colours, told apart by all; each lane has a place of its own too.
COLOURS = {Lane.COMPUTE: "#0072B2", Lane.AGAIN: "#E69F00", Lane.OUT: "#CC79A7", Lane.IN: "#009E73"}
_STORE, _KEPT, _BUDGET = "#BBBBBB", "#777777", "#D55E00"
_LANES = (Lane.COMPUTE, Lane.AGAIN, Lane.OUT, Lane.IN)
_MOST_ROWS = 36  # tensors drawn; more would not be legible
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_LEAST = 1 / 700  # of the width: what is shorter is drawn as long as that, or nobody would see it


@dataclass(frozen=True)
class Drawn:
    """What a picture shows. method: of times and energy. budget_bytes: 0 for none. names: what tensors are called
    there, where it is not their own name."""

    title: str
    method: str
    problem: Problem
    steps: tuple[Step, ...]
    budget_bytes: int = 0
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def plot(drawn: Drawn, path: Path) -> None:
    """Write the picture, .svg, .png or .pdf; raises CampaignError, ExtraMissing, Unwritable."""
    write_picture(path, lambda: figure(drawn), font_size=8)


def figure(drawn: Drawn) -> Any:
    """The picture as a matplotlib figure of two or three panels over one time axis; the caller closes it."""
    from matplotlib import pyplot

    planned = trace(drawn.problem, drawn.steps)
    kept = trace(drawn.problem, keep_all(drawn.problem))
    moved = _moved(drawn.problem, planned)
    rows = min(len(moved), _MOST_ROWS)
    heights = [1.15, 2.6, *([0.14 * max(rows, 4)] if rows else [])]
    made, panels = pyplot.subplots(
        len(heights), 1, sharex=True, squeeze=False, figsize=(10, sum(heights) + 1.5), layout="constrained",
        height_ratios=heights,
    )  # fmt: skip
    scale, unit = fitting(max(planned.makespan_s, kept.makespan_s), _TIMES)
    span = max(planned.makespan_s, kept.makespan_s) / scale
    made.suptitle(drawn.title, fontsize=9.5, fontweight="bold", x=0.01, ha="left")
    _engines(panels[0][0], planned, scale, span * _LEAST)
    _memory(panels[1][0], drawn, planned, kept, scale)
    if rows:
        _tensors(panels[2][0], drawn, planned, moved, scale, span * _LEAST)
    panels[-1][0].set_xlabel(f"time in the step, {unit}; {drawn.method}")
    panels[0][0].set_xlim(0, span * 1.005)
    return made


def _engines(panel: Any, planned: Trace, scale: float, least: float) -> None:
    spans: defaultdict[Lane, list[Span]] = defaultdict(list)
    for span in planned.spans:
        spans[span.lane].append(span)
    labels: list[str] = []
    for row, lane in enumerate(_LANES):
        bars = [(s.begin_s / scale, max((s.end_s - s.begin_s) / scale, least)) for s in spans[lane]]
        panel.broken_barh(bars, (row - 0.38, 0.76), facecolors=COLOURS[lane], linewidth=0)
        labels.append(f"{lane} ({len(bars)})")
    panel.set_yticks(range(len(_LANES)), labels)
    panel.set_ylim(len(_LANES) - 0.5, -0.5)
    waits = f", of which computing waits {seconds(planned.stall_s)}" if planned.stall_s > 1e-12 else ""
    panel.set_title(f"The step takes {seconds(planned.makespan_s)}{waits}", loc="left", fontsize=8)
    panel.tick_params(axis="y", length=0)


def _memory(panel: Any, drawn: Drawn, planned: Trace, kept: Trace, scale: float) -> None:
    most = max(kept.peak_bytes, planned.peak_bytes, drawn.budget_bytes)
    unit_bytes, unit = fitting(most, BYTE_UNITS)
    for line, color, name in ((kept, _KEPT, "everything kept"), (planned, COLOURS[Lane.COMPUTE], "this schedule")):
        times = [at / scale for at, _ in line.memory]
        taken = [held / unit_bytes for _, held in line.memory]
        dashes = {"linestyle": (0, (4, 2))} if line is kept else {}
        label = f"{name}, peak {size(line.peak_bytes)}"
        panel.step(times, taken, where="post", color=color, linewidth=1.1, label=label, **dashes)
        if line is planned:
            panel.fill_between(times, taken, step="post", color=color, alpha=0.18, linewidth=0)
    if drawn.budget_bytes:
        level = drawn.budget_bytes / unit_bytes
        panel.axhline(level, color=_BUDGET, linewidth=1.4, label=f"budget {size(drawn.budget_bytes)}")
    panel.set_ylabel(f"memory in use, {unit}")
    panel.set_ylim(0, 1.08 * most / unit_bytes)
    panel.grid(alpha=0.3)
    panel.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, fontsize=8, ncols=3, frameon=False)


def _moved(problem: Problem, planned: Trace) -> list[int]:
    """The tensors that leave memory and come back, the largest first."""
    stays: defaultdict[int, int] = defaultdict(int)
    for stay in planned.stays:
        stays[stay.tensor] += 1
    found = [t for t, count in stays.items() if count > 1 or t in planned.stored]
    return sorted(found, key=lambda t: (-problem.tensors[t].bytes, t))


def _tensors(panel: Any, drawn: Drawn, planned: Trace, moved: Sequence[int], scale: float, least: float) -> None:
    """A row a tensor: coloured while it is in memory, by what brought it; a thin line while the store has it."""
    problem = drawn.problem
    rows = sorted(moved[:_MOST_ROWS], key=lambda t: (problem.tensors[t].maker, t))
    place = {tensor: row for row, tensor in enumerate(rows)}
    last = dict[int, float]()
    for stay in planned.stays:
        last[stay.tensor] = max(last.get(stay.tensor, 0.0), stay.end_s)
    for tensor, row in place.items():
        begin, home = planned.stored.get(tensor), problem.tensors[tensor].maker == START
        end = planned.makespan_s if home else last[tensor]
        if begin is not None:
            panel.broken_barh([(begin / scale, (end - begin) / scale)], (row - 0.12, 0.24), facecolors=_STORE)
    for lane in _LANES:
        for stay in planned.stays:
            if stay.lane == lane and stay.tensor in place:
                bar = stay.begin_s / scale, max((stay.end_s - stay.begin_s) / scale, least)
                panel.broken_barh([bar], (place[stay.tensor] - 0.4, 0.8), facecolors=COLOURS[lane])
    names = [problem.tensors[t].name for t in rows]
    labels = [f"{drawn.names.get(n, n)}  {size(problem.tensors[t].bytes)}" for n, t in zip(names, rows, strict=True)]
    panel.set_yticks(range(len(rows)), labels, fontsize=6)
    which = f"The largest {len(rows)} of {len(moved)}" if len(moved) > len(rows) else f"The {len(rows)}"
    title = f"{which} tensors that leave memory; grey: only on the store, nothing: to be computed again"
    panel.set_title(title, loc="left", fontsize=8)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="x", alpha=0.3)

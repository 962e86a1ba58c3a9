"""Confirmed records as a table: what was measured again beside what the search found, and why some do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gevo.confirmed import Confirmed
from gevo.front import Front
from gevo.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 150  # columns of a terminal in which the front and what was measured again fit side by side
TITLES = {"runtime_s": "timed again", "error": "error on test"}


def print_confirmed(front: Front, run: str, console: Console) -> None:
    """Print what the front's table does not say yet: figures measured again, records that left, what is missing."""
    waiting = [r for r in front.members if r is not front.base and _pending(front, r)]
    todo = f"gevo confirm {run}"
    if front.confirmation is None:
        text = f"Not confirmed: measured by the search alone. To time it again and score it on held-out data: {todo}"
        return console.print(text, highlight=False, soft_wrap=True)
    if console.width < WIDE:
        console.print(table(front, [r for r in front.members if r.id in front.confirmed], "Measured again"))
    if front.left:
        console.print(table(front, front.left, "Left the front: what the search found does not hold"))
    for name, method in front.confirmation.methods.items():
        console.print(f"{TITLES[name]}: {method}", highlight=False, style="dim")
    if waiting:
        text = f"{len(waiting)} of these variants are not confirmed yet: {todo}"
        console.print(text, highlight=False, soft_wrap=True)


def table(front: Front, records: Sequence[Record], title: str) -> Table:
    """A line a record: ratio and error with their intervals, the verdict, and why."""
    from rich.table import Table

    shown = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    shown.add_column("id", no_wrap=True)
    names = titles(front)
    for name in names:
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", overflow="fold")
    for record in records:
        shown.add_row(record.id, *cells(front, record), reason(front.confirmed.get(record.id)))
    return shown


def titles(front: Front) -> list[str]:
    """Of the columns with what was measured again."""
    return [TITLES[name] for name in _measured(front)]


def cells(front: Front, record: Record) -> list[str]:
    """The record's figures under `titles`."""
    row, of_base = front.confirmed.get(record.id), front.confirmation.base_errors if front.confirmation else ()
    texts = {"runtime_s": ratio_text(row), "error": error_text(row)}
    if record is front.base and of_base:
        texts["error"] = f"{sum(of_base) / len(of_base):.4f}"
    return [texts[name] for name in _measured(front)]


def _measured(front: Front) -> list[str]:
    """Objectives, and the runtime where it was asked for."""
    also = front.confirmation.methods if front.confirmation else ()
    return [name for name in TITLES if name in front.objectives or name in also]


def reason(row: Confirmed | None) -> str:
    """The verdict with its reason: "holds: faster; less memory"."""
    if row is None or row.verdict is None:
        return "not yet"
    return f"{row.verdict}: {row.words}"


def ratio_text(row: Confirmed | None) -> str:
    """The ratio to the base and its interval: "0.873x (0.865-0.881)"."""
    if row is None or row.ratio is None:
        return "-"
    return f"{row.ratio.value:.3f}x ({row.ratio.low:.3f}-{row.ratio.high:.3f})"


def error_text(row: Confirmed | None) -> str:
    """The error, and its difference to the base's with half the width of the interval: "0.1021 -0.0010+-0.0012"."""
    if row is None or row.error is None or row.difference is None:
        return "-"
    half = f"+-{row.difference.half:.4f}" if row.difference.level else ""
    return f"{row.error:.4f} {row.difference.value:+.4f}{half}"


def sentence(row: Confirmed) -> str:
    """The row in one line."""
    figures = [("timed again", ratio_text(row)), ("error on test", error_text(row))]
    told = [f"{name} {text}" for name, text in figures if text != "-"]
    return "; ".join([reason(row), *told])


def _pending(front: Front, record: Record) -> bool:
    row = front.confirmed.get(record.id)
    return row is None or row.verdict is None

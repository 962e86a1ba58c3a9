"""What confirming shows: a bar with the time that is left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from gevo.confirm import Progress
from gevo.ticker import Ticker
from gevo.units import span


class ConfirmView(Ticker):
    """Shows progress when it is called, and often enough; entered around the measuring."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._start = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if not self.due:
            return
        text = line(progress, time.monotonic() - self._start)
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=progress.planned, completed=progress.done, width=30), text)
        self.show(text, row)


def line(progress: Progress, elapsed_s: float) -> str:
    """Progress in one line of text."""
    left = elapsed_s * (progress.planned - progress.done) / max(1, progress.done)
    return f"{progress.done} of {progress.planned} measured | {progress.record} | about {span(left)} left"

"""What confirming shows: a bar with the time that is left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from gevo.confirm import Progress
from gevo.units import span

LIVE_EVERY_S = 0.25
LINE_EVERY_S = 10.0


class ConfirmView:
    """Shows progress when it is called, and often enough; entered around the measuring.

    No thread of its own draws: children are forked meanwhile.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._start = console, time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._every_s = LIVE_EVERY_S if self._live else LINE_EVERY_S
        self._next = self._start + self._every_s

    def __enter__(self) -> ConfirmView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        text = line(progress, time.monotonic() - self._start)
        if not self._live:
            return self._console.print(text, highlight=False, soft_wrap=True)
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=progress.planned, completed=progress.done, width=30), text)
        self._live.update(row, refresh=True)


def line(progress: Progress, elapsed_s: float) -> str:
    """Progress in one line of text."""
    left = elapsed_s * (progress.planned - progress.done) / max(1, progress.done)
    return f"{progress.done} of {progress.planned} measured | {progress.record} | about {span(left)} left"

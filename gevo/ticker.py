"""Progress shown now and then: a line that changes in place on a terminal, lines one below the other elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

LIVE_EVERY_S = 0.25
LINE_EVERY_S = 10.0


class Ticker:
    """To be entered around the work. No thread of its own draws: children are forked meanwhile."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._console = console
        self._every_s = LIVE_EVERY_S if self._live else LINE_EVERY_S
        self._next = time.monotonic() + self._every_s

    @property
    def due(self) -> bool:
        """Whether enough time has passed to show something again; if so, the next time is set."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._every_s
        return True

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, text: str, drawn: RenderableType | None = None) -> None:
        """Show `text`, on a terminal `drawn` in its place if it is given."""
        if self._live:
            self._live.update(Text(text) if drawn is None else drawn, refresh=True)
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        console = self._live.console if self._live else self._console
        console.print(text, highlight=False, soft_wrap=True, markup=False)

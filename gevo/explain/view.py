"""What explaining shows while it measures: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gevo.explain.lab import Lab
from gevo.units import span

LIVE_EVERY_S = 0.25
LINE_EVERY_S = 10.0
_BAR = 24


class ExplainView:
    """Entered around the measuring; called with the lab after every evaluation. No thread of its own draws: children
    are forked meanwhile."""

    def __init__(self, console: Console, deadline: float = math.inf) -> None:
        self._console, self._deadline = console, deadline
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._every_s = LIVE_EVERY_S if self._live else LINE_EVERY_S
        self._begun = time.monotonic()
        self._next = self._begun + self._every_s
        self._stage = ""

    def __enter__(self) -> ExplainView:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def stage(self, text: str) -> None:
        """Say what is measured from now on."""
        self._stage = text

    def __call__(self, lab: Lab) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        text = line(self._stage, lab.evaluated, lab.left, time.monotonic() - self._begun, self._deadline)
        if self._live:
            self._live.update(Text(text), refresh=True)
        else:
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)


def line(stage: str, done: int, left: int, spent_s: float, deadline: float = math.inf) -> str:
    """Where it stands: a bar, evaluations done and about left, and the time that those take."""
    whole = max(1, done + left)
    filled = round(_BAR * done / whole)
    pace = spent_s / done if done else math.nan
    wait = min(left * pace if done else math.inf, deadline - time.monotonic())
    ending = f"about {span(wait)}" if math.isfinite(wait) else "time unknown"
    return f"{'#' * filled}{'.' * (_BAR - filled)} {done} evaluated, about {left} left, {ending} | {stage}"

"""What explaining shows while it measures: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time

from rich.console import Console

from gevo.explain.lab import Lab
from gevo.ticker import Ticker
from gevo.units import span

_BAR = 24


class ExplainView(Ticker):
    """Entered around the measuring; called with the lab after every evaluation."""

    def __init__(self, console: Console, deadline: float = math.inf) -> None:
        super().__init__(console)
        self._deadline, self._begun = deadline, time.monotonic()
        self._stage = ""

    def stage(self, text: str) -> None:
        """Say what is measured from now on."""
        self._stage = text

    def __call__(self, lab: Lab) -> None:
        if not self.due:
            return
        self.show(line(self._stage, lab.evaluated, lab.left, time.monotonic() - self._begun, self._deadline))


def line(stage: str, done: int, left: int, spent_s: float, deadline: float = math.inf) -> str:
    """Where it stands: a bar, evaluations done and about left, and the time that those take."""
    whole = max(1, done + left)
    filled = round(_BAR * done / whole)
    pace = spent_s / done if done else math.nan
    wait = min(left * pace if done else math.inf, deadline - time.monotonic())
    ending = f"about {span(wait)}" if math.isfinite(wait) else "time unknown"
    return f"{'#' * filled}{'.' * (_BAR - filled)} {done} evaluated, about {left} left, {ending} | {stage}"

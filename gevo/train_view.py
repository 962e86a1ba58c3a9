"""What a training shows: how far it is, its loss, and how long it will take."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gevo.units import span

LIVE_EVERY_S = 0.25
LINE_EVERY_S = 10.0
SMOOTH = 0.98  # of the loss shown: a running mean over some 50 steps


class TrainView:
    """A bar that moves on a terminal, a line now and then elsewhere; entered around the training."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console, self._steps = console, steps
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TextColumn("{task.fields[loss]}"))
        self._bar = Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, auto_refresh=False, transient=True
        )
        self._task = self._bar.add_task("", total=steps, loss="")
        self._every_s = LIVE_EVERY_S if console.is_terminal else LINE_EVERY_S
        self._begun = 0.0  # when the first step was done: what comes before it is compiling
        self._next = time.monotonic() + self._every_s
        self._loss = 0.0
        self.done = 0

    def __enter__(self) -> TrainView:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, done: int, loss: float) -> None:
        self.done = done
        self._begun = self._begun or time.monotonic()
        weight = min(SMOOTH, (done - 1) / done)
        self._loss = weight * self._loss + (1 - weight) * loss
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, loss=f"loss {self._loss:.4f}", refresh=True)
            return
        left = (time.monotonic() - self._begun) / max(1, done - 1) * (self._steps - done)
        line = f"step {done} of {self._steps} | loss {self._loss:.4f} | {span(left)} left"
        self._console.print(line, highlight=False, soft_wrap=True)

"""What a running search shows: a live panel on a terminal, plain lines every few seconds elsewhere."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from gevo.record import versus
from gevo.tally import Tally
from gevo.units import OBJECTIVE_TEXT, span

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LIVE_EVERY_S = 0.25
LINE_EVERY_S = 5.0


class View(ABC):
    """Shows a tally whenever it is told to and enough time has passed; entered around a search."""

    every_s: float

    def __init__(self, console: Console) -> None:
        self.console = console
        self._next = -math.inf

    def __call__(self, tally: Tally) -> None:
        if time.monotonic() < self._next:
            return
        self.show(tally)
        self._next = time.monotonic() + self.every_s

    @abstractmethod
    def __enter__(self) -> View: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def show(self, tally: Tally) -> None:
        """Show `tally` now."""


class PlainView(View):
    """One line every few seconds: for logs, pipes and batch systems."""

    every_s = LINE_EVERY_S

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        return None

    def show(self, tally: Tally) -> None:
        self.console.print(line(tally), highlight=False, soft_wrap=True, markup=False)


class LiveView(View):
    """A panel that is drawn again in place; no thread of its own, so that workers may be forked meanwhile."""

    every_s = LIVE_EVERY_S

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._live.stop()

    def show(self, tally: Tally) -> None:
        self._live.update(panel(tally), refresh=True)


def view_for(console: Console) -> View:
    return LiveView(console) if console.is_terminal else PlainView(console)


def line(tally: Tally) -> str:
    """The tally in one line of text."""
    parts = [
        f"generation {tally.generation}",
        f"{tally.records} evaluated",
        f"{_number(tally.rate, '.2f')}/s",
        outcomes_text(tally),
        *(f"{name} {best_text(tally, name)}" for name in tally.objectives),
        f"cache {_number(100 * tally.hit_rate, '.0f')}%",
        f"{span(tally.elapsed_s)} run",
        left_text(tally),
    ]
    return " | ".join(parts)


def panel(tally: Tally) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Text(
        f"generation {tally.generation}   {tally.records} evaluated   {_number(tally.rate, '.2f')} a second   "
        f"{span(tally.elapsed_s)} run   {left_text(tally)}"
    )
    best = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("objective", "base", "best", "record"):
        best.add_column(title)
    for name in tally.objectives:
        base = OBJECTIVE_TEXT[name](tally.base.value(name)) if tally.base is not None else "-"
        best.add_row(name, base, best_text(tally, name), tally.best[name].id if name in tally.best else "-")
    foot = Text(
        f"{outcomes_text(tally)}\nobject cache: {_number(100 * tally.hit_rate, '.1f')}% of kernels found; "
        f"{tally.answered} variants were known programs",
        style="dim",
    )
    return Group(head, best, foot)


def outcomes_text(tally: Tally) -> str:
    """Outcomes by kind, the most frequent first."""
    parts = [f"{count} {outcome}" for outcome, count in tally.outcomes.most_common()]
    parts += [f"{tally.over} of the ok over a limit"] if tally.over else []
    return ", ".join(parts) or "nothing yet"


def best_text(tally: Tally, objective: str) -> str:
    """The best value so far with its ratio to the base, or its difference for the error."""
    if objective not in tally.best:
        return "-"
    return versus(tally.best[objective], tally.base, objective)


def left_text(tally: Tally) -> str:
    left = tally.left_s
    return f"{span(left)} left" if math.isfinite(left) else "no end set" if not _bounded(tally) else "time left unknown"


def _bounded(tally: Tally) -> bool:
    budget = tally.budget
    return bool(budget.seconds or budget.evaluations or budget.generations)


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"

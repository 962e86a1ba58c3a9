"""What tuning shows: the kernel under way, and the table of what was found."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from fitness.tuning import Target, Try
from gevo.ticker import Ticker
from gevo.tuning_store import TuningRow
from gevo.units import seconds, span
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice


class TuneView(Ticker):
    """One line that changes in place on a terminal, a line now and then elsewhere; entered around the tuning."""

    def __init__(self, console: Console, kernels: Sequence[Target], budget_s: float) -> None:
        super().__init__(console)
        self._kernels, self._end = kernels, time.monotonic() + budget_s if budget_s else math.inf

    def __call__(self, done: Try) -> None:
        if self.due:
            self.show(self._line(done))

    def row(self, row: TuningRow) -> None:
        """Say what was found for a kernel."""
        text = "stays as it is" if row.choice == DEFAULT else f"{row.ratio:.2f} of its time"
        if row.failed:
            text += f", {row.failed} failed"
        more = "" if row.finished else "; not all was tried"
        self.say(f"{row.family} {row.loops}: {text}, {row.tried} tried{more}")

    def _line(self, done: Try) -> str:
        number = next(i for i, target in enumerate(self._kernels, 1) if target.hash == done.target.hash)
        left = self._end - time.monotonic()
        parts = [
            f"kernel {number} of {len(self._kernels)}: {done.target.family} {done.target.loops}",
            f"{done.target.share:.1%} of the step",
            f"{done.number} tried, best {done.best:.2f} of the default's time",
            *([f"{span(left)} left"] if math.isfinite(left) else []),
        ]
        return " | ".join(parts)


def table(kernels: Sequence[Target], rows: dict[str, TuningRow]) -> Table:
    """A line a kernel, the largest share of the step first."""
    shown = Table("kernel", "loops", "of step", "default", "tuned", "ratio", "tile", box=None)
    for column in shown.columns[2:6]:
        column.justify = "right"
    for target in kernels:
        row = rows.get(target.hash)
        share = f"{target.share:.1%}"
        if row is None:
            shown.add_row(target.family, target.loops, share, "-", "-", "-", "not tuned yet")
            continue
        times = seconds(row.default_s), seconds(row.default_s * row.ratio)
        shown.add_row(row.family, row.loops, share, *times, f"{row.ratio:.2f}", choice_text(row.choice))
    return shown


def choice_text(choice: Choice) -> str:
    """A choice in a few words: the largest tile of its phases, vectors by lanes, then what is unrolled beside them."""
    if choice in (DEFAULT, BLAS):
        return "default" if choice == DEFAULT else "OpenBLAS"
    largest = max(choice.schedules, key=lambda s: s.columns * math.prod(n for _, n in s.unroll))
    unrolled = "x".join(str(n) for _, n in largest.unroll)
    vectors = f"{largest.columns}x{largest.lanes}" if largest.vector >= 0 else "scalar"
    return f"{vectors}{f' by {unrolled}' if unrolled else ''}{', packed' if largest.pack else ''}"

"""What scheduling shows: the stage under way, and the schedule in figures beside everything kept."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.table import Table

from gevo.scheduled import Scheduled
from gevo.ticker import Ticker
from gevo.units import joules, seconds, size, span


class ScheduleView(Ticker):
    """One line that changes in place on a terminal, a line a stage elsewhere; entered around the solving."""

    def __init__(self, console: Console, limit_s: float = math.inf) -> None:
        super().__init__(console)
        self._limit_s, self._begun = limit_s, time.monotonic()
        self._stage = ""
        self.doing = ""  # what all stages are for, such as a budget of a curve

    def __call__(self, stage: str) -> None:
        """Show a stage: when it begins, and now and then while it goes on. Its name ends at a colon."""
        name = f"{self.doing} {stage.partition(':')[0]}"
        if name != self._stage or self.due:
            self._stage = name
            limit = f" of at most {span(self._limit_s)}" if math.isfinite(self._limit_s) else ""
            doing = f"{self.doing} | " if self.doing else ""
            self.show(f"{doing}{stage} | {span(time.monotonic() - self._begun)}{limit}")


def table(found: Scheduled) -> Table:
    """The schedule's figures, those of everything kept, and what the difference is."""
    usage, keep = found.solution.usage, found.keep
    shown = Table(
        title=f"{found.workload} for {found.target} within {exactly(found.request.budget_bytes)}",
        box=None, padding=(0, 2, 0, 0), pad_edge=False, title_justify="left",
    )  # fmt: skip
    shown.add_column("")
    for name in ("this schedule", "all kept", "difference"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("")
    memory = f"{found.peak_bytes / found.keep_bytes - 1:+.1%}" if found.keep_bytes else ""
    shown.add_row("memory", size(found.peak_bytes), size(found.keep_bytes), memory, "planned peak")
    energy = joules(usage.energy_j), joules(keep.energy_j), percent(found.energy_overhead)
    shown.add_row("energy", *energy, found.energy_method)
    times = seconds(found.solution.makespan_s), seconds(keep.time_s), percent(found.time_overhead)
    shown.add_row("time", *times, found.time_method)
    if usage.pages_in:
        shown.add_row("of it waiting", seconds(found.stall_s), "", "", "for the store")
    ops = len(found.problem.ops)
    shown.add_row("computed", str(ops + usage.remats), str(ops), f"{usage.remats:+d}", "calls of kernels")
    for name, number, moved in zip(
        ("written out", "read in"), (usage.pages_out, usage.pages_in), found.moved_bytes, strict=True
    ):
        shown.add_row(name, str(number), "0", f"{number:+d}", size(moved) if number else "")
    return shown


def lines(found: Scheduled) -> dict[str, str]:
    """What else there is to say: deadline, bound and gap with who proved it, how it is stored, how long it took."""
    solution, request = found.solution, found.request
    unit = joules if request.minimise == "energy" else seconds
    told = {"deadline": f"{seconds(request.deadline_s)}, met"} if math.isfinite(request.deadline_s) else {}
    if found.moves:
        told["order"] = f"{len(found.moves)} calls moved, so that less is in memory; the bound is of this order"
    told |= {
        "minimised": "energy" if request.minimise == "energy" else "time of the steps one after the other",
        "bound": f"{unit(found.bound)} at least; gap {percent(found.gap)[1:]} of all kept; {solution.proven}",
        "found by": solution.found_by,
        "stored as": f"{len(found.genes)} genes, {len(found.stored):,} bytes",
    }
    if found.paged_bytes:
        told["page file"] = exactly(found.paged_bytes)
    took = sum(solution.seconds.values())
    stages = ", ".join(f"{name} {spent:.1f} s" for name, spent in solution.seconds.items())
    told["solved in"] = f"{took:.1f} s: {stages}" if stages else f"{took:.1f} s"
    return told


def title(found: Scheduled) -> str:
    """What a picture of it is called."""
    energy = f"{joules(found.solution.usage.energy_j)} ({percent(found.energy_overhead)}) by {found.energy_method}"
    return f"{found.workload} for {found.target}: budget {size(found.request.budget_bytes)}, {energy}"


def percent(value: float) -> str:
    """A signed share: "+1.25 %", with as many digits as tell small ones from none."""
    digits = 1 if abs(value) >= 0.1 else 2 if abs(value) >= 0.001 else 4
    return f"{100 * value:+.{0 if not value else digits}f} %"


def exactly(bytes_: int) -> str:
    """Bytes with a unit and to the byte."""
    return f"{size(bytes_)} ({bytes_:,} bytes)" if bytes_ >= 1024 else size(bytes_)

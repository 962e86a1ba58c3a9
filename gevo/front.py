"""The front of a run: the records that no other dominates, as figures beside the base, a table, a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevo.confirmed import Confirmation, Confirmed
from gevo.errors import ExtraMissing, RunDamaged
from gevo.limits import over_text, violation
from gevo.objectives import figure, figures
from gevo.order import in_order
from gevo.record import Record, versus

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Front:
    """Non-dominated records by the first objective, the base, and how each objective was measured.

    base_on_front: whether nothing found so far dominates the base. base_over: the limits that the base is over, in
        words.
    confirmation: of the run, None if nothing of it was confirmed. confirmed: the members' rows of it, by id.
    left: records that were on the front of the search and do not hold.
    """

    objectives: tuple[str, ...]
    base: Record
    members: tuple[Record, ...]
    methods: dict[str, str]
    base_on_front: bool
    base_over: str = ""
    confirmation: Confirmation | None = None
    confirmed: Mapping[str, Confirmed] = field(default_factory=dict[str, Confirmed])
    left: tuple[Record, ...] = ()

    @property
    def rows(self) -> tuple[Record, ...]:
        """Members with the base among them, even where it is dominated."""
        return self.members if self.base_on_front else (*self.members, self.base)

    def ratio(self, record: Record, objective: str) -> float:
        """The record's figure over the base's; nan where the base's is 0."""
        base = figure(self.base.result, objective)
        return figure(record.result, objective) / base if base else float("nan")

    def to_json(self) -> dict[str, Any]:
        return {
            "objectives": list(self.objectives),
            "methods": self.methods,
            "base": self.base.id,
            "base_on_front": self.base_on_front,
            "confirmation": None if self.confirmation is None else self.confirmation.about(),
            "records": [self._row(r) for r in self.rows],
            "left": [self._row(r) for r in self.left],
        }

    def _row(self, record: Record) -> dict[str, Any]:
        measures = {name: asdict(record.result.objectives[name]) for name in self.objectives}
        for name, measure in measures.items():
            del measure["each"], measure["right"]  # a record keeps the mean only
            ratio = self.ratio(record, name)
            measure["ratio"] = ratio if ratio == ratio else None
        return {
            "id": record.id,
            "base": record is self.base,
            "edits": record.genome.size,
            "objectives": measures,
            "confirmed": self.confirmed[record.id].to_json() if record.id in self.confirmed else None,
            "genome": record.genome.to_json(),
        }


def front(
    records: Sequence[Record],
    objectives: Sequence[str],
    floors: Mapping[str, float],
    confirmation: Confirmation | None = None,
    everything: bool = False,
    limits: Mapping[str, float] | None = None,
) -> Front | None:
    """The front of all valid records within the limits; None while there is no base record.

    What `confirmation` says does not hold leaves the front, with all records of the same program; `everything` keeps
    it. Members stand as the search measured them: confirmed and other records are compared by the same figures.

    Of records that differ by no more than the floors, the one with the fewest edits stays, then the oldest; so a
    neutral edit never stands beside the base. Raises RunDamaged if the records measure energy in more than one way.
    """
    from gevo.leaders import layers  # on use: `gevo --help` must not load NumPy

    valid = [r for r in records if r.result.ok and all(name in r.result.objectives for name in objectives)]
    base = next((r for r in valid if r.is_base), None)
    if base is None:
        return None
    _refuse_mixed_energy(valid, objectives)
    rows = {r.id: row for r in valid if confirmation is not None and (row := confirmation.of(r)) is not None}
    left = () if everything else tuple(r for r in valid if r.id in rows and rows[r.id].bad and not r.is_base)
    gone = {r.id for r in left}
    fit = [r for r in valid if r.id not in gone and not violation(r.result, limits or {}, floors)]
    points, sizes = [figures(r.result, objectives) for r in fit], [r.genome.size for r in fit]
    leaders, _ = next(layers(points, in_order(floors, objectives), sizes), ([], []))
    members = [fit[i] for i in leaders]
    members.sort(key=lambda r: (figure(r.result, objectives[0]), r.id))
    methods = {name: base.result.objectives[name].method for name in objectives}
    return Front(
        objectives=tuple(objectives),
        base=base,
        members=tuple(members),
        methods=methods,
        base_on_front=base in members,
        base_over=over_text(base.result, limits or {}, floors),
        confirmation=confirmation,
        confirmed=rows,
        left=tuple(r for r in left if confirmation is not None and r.id in confirmation.rows),
    )


def table(front: Front, name: str, wide: bool = False) -> Table:
    """The front as a rich table: each value with its ratio to the base, or its difference for the error.

    wide: with what was measured again beside it.
    """
    from rich.table import Table

    from gevo.confirm_table import cells as again
    from gevo.confirm_table import reason, titles

    count = len(front.members)
    title = f"Front of {name}: {count} variant{'s' if count != 1 else ''} that no other dominates"
    why = f"is over a limit ({front.base_over})" if front.base_over else "is dominated"
    caption = "" if front.base_on_front else f"The base {why}; it is shown for comparison."
    table = Table(
        title=title,
        caption=caption,
        box=None,
        padding=(0, 1, 0, 0),  # four objectives in 80 columns
        pad_edge=False,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("id", no_wrap=True)
    table.add_column("edits", justify="right", no_wrap=True)
    for objective in front.objectives:
        table.add_column(objective, justify="right", no_wrap=True)
    beside = titles(front) if wide and front.confirmation is not None else []
    for title in beside:
        table.add_column(title, justify="right", no_wrap=True)
    if beside:
        table.add_column("verdict", overflow="fold", min_width=8)
    for record in front.rows:
        is_base = record is front.base
        cells = [versus(record, front.base, objective) for objective in front.objectives]
        if beside:
            cells += [*again(front, record), "" if is_base else reason(front.confirmed.get(record.id))]
        label = f"{record.id} base" if is_base else record.id
        genome = record.genome
        beside_edits = f"{'' if genome.storage == 'f32' else f' {genome.storage}'}{' sched' if genome.schedule else ''}"
        table.add_row(label, f"{len(genome.edits)}{beside_edits}", *cells, style="bold" if is_base else "")
    return table


def methods_text(front: Front) -> str:
    """How each figure was obtained, one line."""
    return "; ".join(f"{name}: {method}" for name, method in front.methods.items())


def plot(front: Front, path: Path, title: str) -> None:
    """Write a PNG, PDF or SVG: each further objective against the first, base marked."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            "matplotlib is not installed", "--plot", "Install it with: pip install 'gevo[report]'"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    first, others = front.objectives[0], front.objectives[1:] or front.objectives[:1]
    drawing, panels = pyplot.subplots(1, len(others), figsize=(4.2 * len(others), 3.8), squeeze=False)
    for panel, other in zip(panels[0], others, strict=True):
        spots = [(_height(front, r, first), _height(front, r, other)) for r in front.members if r is not front.base]
        panel.scatter(*(zip(*spots, strict=True) if spots else ([], [])), s=18, color="#1f77b4", label="front")
        _plot_confirmed(panel, front, first, other)
        gone = [(_height(front, r, first), _height(front, r, other)) for r in front.left]
        if gone:
            panel.scatter(*zip(*gone, strict=True), s=24, marker="x", color="#999999", label="does not hold")
        panel.scatter(_height(front, front.base, first), _height(front, front.base, other), marker="*", s=110,
                      color="#d62728", label="base")  # fmt: skip
        panel.set_xlabel(_axis(first))
        panel.set_ylabel(_axis(other))
        panel.grid(alpha=0.3)
    panels[0][0].legend()
    drawing.suptitle(title)
    drawing.tight_layout()
    drawing.savefig(path, dpi=120)
    pyplot.close(drawing)


def _plot_confirmed(panel: Any, front: Front, first: str, other: str) -> None:
    """Confirmed members where they were measured again: the ratio of runtime, and the base's error with the difference
    to it on test data, so that it compares with the base as drawn."""
    rows = [(r, front.confirmed[r.id]) for r in front.members if r.id in front.confirmed and r is not front.base]
    spots = [(_again(front, r, row, first), _again(front, r, row, other)) for r, row in rows if row.verdict]
    if not spots:
        return
    (x, x_low, x_high), (y, y_low, y_high) = (zip(*side, strict=True) for side in zip(*spots, strict=True))
    panel.errorbar(x, y, xerr=(x_low, x_high), yerr=(y_low, y_high), fmt="o", ms=4, lw=1, capsize=2,
                   color="#2ca02c", label="confirmed")  # fmt: skip


def _again(front: Front, record: Record, row: Confirmed, objective: str) -> tuple[float, float, float]:
    """Where a confirmed record is drawn, and the parts of its error bar below and above."""
    if objective == "runtime_s" and row.ratio is not None:
        return row.ratio.value, row.ratio.value - row.ratio.low, row.ratio.high - row.ratio.value
    if objective == "error" and row.difference is not None:
        return front.base.value("error") + row.difference.value, row.difference.half, row.difference.half
    return _height(front, record, objective), 0.0, 0.0


def _height(front: Front, record: Record, objective: str) -> float:
    return record.value(objective) if objective == "error" else front.ratio(record, objective)


def _axis(objective: str) -> str:
    return "error" if objective == "error" else f"{objective}, ratio to base"


def _refuse_mixed_energy(records: Sequence[Record], objectives: Sequence[str]) -> None:
    if "energy_j" not in objectives:
        return
    first: dict[str, str] = {}
    for record in records:
        first.setdefault(record.result.objectives["energy_j"].method, record.id)
    if len(first) > 1:
        ways = ", ".join(f"{method} ({identifier})" for method, identifier in first.items())
        raise RunDamaged(
            f"energy was measured in several ways, which do not compare: {ways}",
            "front",
            "Start a new run with one method, or leave energy_j out with --objectives",
        )

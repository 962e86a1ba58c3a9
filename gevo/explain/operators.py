"""Which kinds of edits, and which moves of the search, paid in a run: counted from its records alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gevo.objectives import figure, figures
from gevo.order import change, covers, in_order
from gevo.record import Record

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "other"  # a child of no recorded parent, or one in which more than one thing changed


@dataclass(frozen=True)
class Operator:
    """What one operator came to.

    tried: records that it made. valid: of those, with a result. neutral: of those, the same program as a parent or as
    another record. improved: better than its first valid parent in some objective by more than the run's noise.
    front: no record before it was as good, up to the run's noise. evaluated: not answered by a fingerprint.
    median, best: by objective, of valid ones: the ratio to the first valid parent, for the error the difference.
    """

    name: str
    tried: int
    valid: int
    neutral: int
    improved: int
    front: int
    evaluated: int
    median: Mapping[str, float] = field(default_factory=dict[str, float])
    best: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Child:
    """One record with what it is compared with. dominated: whether an earlier record was as good or better."""

    record: Record
    parents: tuple[Record, ...]
    entered: bool


def operators(records: Sequence[Record], objectives: Sequence[str], floors: Mapping[str, float]) -> list[Operator]:
    """Operators with those that were tried most first. Records without the name of their operator have it from a
    comparison of their edits with their parents'. A record that two made, one after the other, counts for both."""
    return _grouped(records, objectives, floors, lambda name: name)


def kinds(records: Sequence[Record], objectives: Sequence[str], floors: Mapping[str, float]) -> list[Operator]:
    """The same by kind of edit, whatever move brought it in; what no kind of edit made is not there."""
    return _grouped(records, objectives, floors, lambda name: name.partition(":")[2])


def _grouped(
    records: Sequence[Record], objectives: Sequence[str], floors: Mapping[str, float], group: Callable[[str], str]
) -> list[Operator]:
    by_id = {record.id: record for record in records}
    groups: dict[str, list[_Child]] = {}
    for record, entered in _entries(records, objectives, floors):
        if record.is_base:
            continue
        parents = tuple(by_id[name] for name in record.parents if name in by_id)
        for name in dict.fromkeys(map(group, operator_of(record, parents).split("+"))):
            if name:
                groups.setdefault(name, []).append(_Child(record, parents, entered))
    found = [_counted(name, children, objectives, floors) for name, children in groups.items()]
    return sorted(found, key=lambda row: (-row.tried, row.name))


def operator_of(record: Record, parents: Sequence[Record]) -> str:
    """What made a record: as it says itself, else by what differs from its parents: "add:delete", "crossover"."""
    if record.operator:
        return record.operator
    if len(parents) != 1:
        return "crossover" if parents else "seed"
    child, parent = record.genome, parents[0].genome
    new = list((Counter(child.edits) - Counter(parent.edits)).elements())
    gone = list((Counter(parent.edits) - Counter(child.edits)).elements())
    if child.storage != parent.storage and not new and not gone:
        return "storage"
    if len(new) == 1 and not gone:
        return f"add:{new[0].kind}"
    if gone and not new:
        return f"remove:{gone[0].kind}"
    if len(new) == 1 and len(gone) == 1:
        return f"{'perturb' if new[0].kind == gone[0].kind else 'redraw'}:{new[0].kind}"
    return UNKNOWN


def _entries(
    records: Sequence[Record], objectives: Sequence[str], floors: Mapping[str, float]
) -> Iterable[tuple[Record, bool]]:
    """Each record with whether it entered the front of the records before it."""
    floor, exact = in_order(floors, objectives), (0.0,) * len(objectives)
    front: list[tuple[float, ...]] = []
    for record in records:
        if not _measured(record, objectives):
            yield record, False
            continue
        here = figures(record.result, objectives)
        entered = not any(covers(other, here, floor) for other in front)
        if entered:
            front = [other for other in front if not covers(here, other, exact)] + [here]
        yield record, entered


def _measured(record: Record, objectives: Sequence[str]) -> bool:
    return record.result.ok and all(name in record.result.objectives for name in objectives)


def _counted(name: str, children: Sequence[_Child], objectives: Sequence[str], floors: Mapping[str, float]) -> Operator:
    valid = [c for c in children if _measured(c.record, objectives)]
    compared = [(c.record, p) for c in valid if (p := _first_valid(c.parents, objectives)) is not None]
    gains = {o: [_gain(child, parent, o) for child, parent in compared] for o in objectives}
    finite = {o: [g for g in found if math.isfinite(g)] for o, found in gains.items()}
    return Operator(
        name=name,
        tried=len(children),
        valid=len(valid),
        neutral=sum(_is_neutral(c) for c in valid),
        improved=sum(_is_better(child, parent, objectives, floors) for child, parent in compared),
        front=sum(c.entered for c in children),
        evaluated=sum(not c.record.result.answered_by for c in children),
        median={o: statistics.median(found) for o, found in finite.items() if found},
        best={o: min(found) for o, found in finite.items() if found},
    )


def _first_valid(parents: Sequence[Record], objectives: Sequence[str]) -> Record | None:
    return next((p for p in parents if _measured(p, objectives)), None)


def _is_neutral(child: _Child) -> bool:
    same = child.record.result.fingerprint
    return bool(child.record.result.answered_by) or any(p.result.fingerprint == same for p in child.parents)


def _is_better(child: Record, parent: Record, objectives: Sequence[str], floors: Mapping[str, float]) -> bool:
    one, two = figures(child.result, objectives), figures(parent.result, objectives)
    return any(more < 0 for more in change(two, one, in_order(floors, objectives)))


def _gain(child: Record, parent: Record, objective: str) -> float:
    one, two = figure(child.result, objective), figure(parent.result, objective)
    if objective == "error":
        return one - two
    return one / two if two else math.nan


def table(found: Sequence[Operator], title: str) -> Table:
    """Two lines an operator, so that it fits 80 columns."""
    from rich.table import Table

    shown = Table(
        title=title,
        caption="better: than the parent in an objective, beyond noise. front: entered it at the time. Objectives: "
        "median and best ratio to the parent, for the error difference.",
        title_justify="left",
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    shown.add_column("operator\n", no_wrap=True)
    for column in ("tried\nvalid", "neutral\nbetter", "front\nevaluated"):
        shown.add_column(column, justify="right", no_wrap=True)
    objectives = list(dict.fromkeys(o for row in found for o in row.median))
    for objective in objectives:
        shown.add_column(f"{objective}\n", justify="right", no_wrap=True)
    for row in found:
        counts = [
            f"{row.tried}\n{_share(row.valid, row.tried)}",
            f"{_share(row.neutral, row.valid)}\n{_share(row.improved, row.valid)}",
            f"{row.front}\n{row.evaluated}",
        ]
        shown.add_row(row.name, *counts, *(_gains(row, objective) for objective in objectives))
    return shown


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _gains(row: Operator, objective: str) -> str:
    if objective not in row.median:
        return "-"
    form = "+.4f" if objective == "error" else ".3f"
    return f"{row.median[objective]:{form}}\n{row.best[objective]:{form}}"

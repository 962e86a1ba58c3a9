"""A schedule over time and as a picture, and the curve of what less memory costs."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gevo.errors import CampaignError, Unwritable
from gevo.schedule_curve import Curve, Series, budgets_between
from gevo.schedule_curve import figure as curve_figure
from gevo.schedule_curve import plot as plot_curve
from gevo.schedule_curve import table as curve_table
from gevo.schedule_plot import Drawn, figure, plot
from gevo.schedule_trace import Lane, trace
from mlir_passes.schedule.problem import START, Op, Problem, Tensor
from mlir_passes.schedule.steps import Kind, Step, keep_all, replay

pyplot = pytest.importorskip("matplotlib.pyplot")


def problem() -> Problem:
    """w and x are there; a and b are made of them, c reads b, d reads a and c, u updates w with d."""
    page: dict[str, Any] = {"out_s": 2.0, "out_j": 0.5, "in_s": 1.0, "in_j": 0.25}
    tensors = (
        Tensor("w", 100, START, (0, 4), updater=4, final=True, **page),
        Tensor("x", 50, START, (0, 1), final=True, pageable=False),
        Tensor("a", 400, 0, (3,), **page),
        Tensor("b", 300, 1, (2,), **page),
        Tensor("c", 200, 2, (3,), **page),
        Tensor("d", 100, 3, (4,), **page),
    )
    ops = (
        Op("opa", (0, 1), (2,), 4.0, 1.0),
        Op("opb", (1,), (3,), 3.0, 1.0, workspace=70),
        Op("opc", (3,), (4,), 2.0, 1.0),
        Op("opd", (2, 4), (5,), 1.0, 1.0),
        Op("update", (0, 5), (), 1.0, 1.0),
    )
    return Problem(ops, tensors)


def line(*text: str) -> tuple[Step, ...]:
    """Steps from words such as "compute opa", "out a", "out_done a"."""
    found, names = problem(), dict[str, int]()
    names |= {op.name: i for i, op in enumerate(found.ops)} | {t.name: i for i, t in enumerate(found.tensors)}
    pairs = (one.split() for one in text)
    return tuple(Step(Kind(kind), names[name]) for kind, name in pairs)


def paged() -> tuple[Step, ...]:
    """a is written out while b is computed, and read in while c is; b is kept."""
    return line(
        "compute opa", "out a", "compute opb", "out_done a", "free a", "compute opc", "free b", "in a", "in_done a",
        "compute opd", "free a", "free c", "compute update", "free d",
    )  # fmt: skip


def again() -> tuple[Step, ...]:
    """a is dropped, and computed again where it is read."""
    return line(
        "compute opa", "free a", "compute opb", "compute opc", "free b", "compute opa", "compute opd", "free a",
        "free c", "compute update", "free d",
    )  # fmt: skip


def drawn(steps: tuple[Step, ...]) -> Drawn:
    return Drawn("toy for model:m4f, budget 700 B", "model:m4f", problem(), steps, 700)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.mark.parametrize("steps", [keep_all(problem()), paged(), again()], ids=["kept", "paged", "again"])
def test_a_trace_has_the_peak_of_the_replay(steps: tuple[Step, ...]) -> None:
    assert trace(problem(), steps).peak_bytes == replay(problem(), steps).peak_bytes


def test_transfers_run_beside_the_computing_and_are_waited_for() -> None:
    found = trace(problem(), paged())
    spans = [(s.lane, s.index, s.begin_s, s.end_s) for s in found.spans]
    assert spans == [
        (Lane.COMPUTE, 0, 0.0, 4.0), (Lane.OUT, 2, 4.0, 6.0), (Lane.COMPUTE, 1, 4.0, 7.0), (Lane.COMPUTE, 2, 7.0, 9.0),
        (Lane.IN, 2, 9.0, 10.0), (Lane.COMPUTE, 3, 10.0, 11.0), (Lane.COMPUTE, 4, 11.0, 12.0),
    ]  # fmt: skip
    assert (found.makespan_s, found.stall_s) == (12.0, 1.0)


def test_a_blocking_line_takes_one_thing_after_the_other() -> None:
    steps = tuple(s for s in paged() if s.kind not in (Kind.OUT_DONE, Kind.IN_DONE))
    assert trace(problem(), steps).makespan_s == replay(problem(), steps).time_s


def test_stays_say_what_brought_a_tensor_and_for_how_long() -> None:
    stays = [(s.lane, s.begin_s, s.end_s) for s in trace(problem(), paged()).stays if s.tensor == 2]
    assert stays == [(Lane.COMPUTE, 0.0, 7.0), (Lane.IN, 9.0, 11.0)]
    stays = [(s.lane, s.begin_s, s.end_s) for s in trace(problem(), again()).stays if s.tensor == 2]
    assert stays == [(Lane.COMPUTE, 0.0, 4.0), (Lane.AGAIN, 9.0, 14.0)]


def test_state_whose_home_is_the_store_is_in_memory_from_when_it_is_read_in() -> None:
    steps = line(
        "in w", "compute opa", "free w", "compute opb", "compute opc", "free b", "compute opd", "free a", "free c",
        "in w", "compute update", "free d", "out w", "free w",
    )  # fmt: skip
    found = trace(problem(), steps)
    assert found.peak_bytes == replay(problem(), steps).peak_bytes and found.stored == {0: 0.0}
    assert [(s.lane, s.begin_s, s.end_s) for s in found.stays if s.tensor == 0] == [
        (Lane.IN, 0.0, 5.0), (Lane.IN, 11.0, 15.0),
    ]  # fmt: skip


def test_the_picture_has_a_lane_for_each_thing_memory_and_the_tensors_that_leave() -> None:
    engines, memory, tensors = figure(drawn(paged())).axes
    lanes = [label.get_text() for label in engines.get_yticklabels()]
    assert lanes == ["computed (5)", "computed again (0)", "written out (1)", "read in (1)"]
    assert "computing waits 1.00 s" in engines.get_title(loc="left")
    assert [text.get_text() for text in memory.get_legend().get_texts()] == [
        "everything kept, peak 1.03 KiB", "this schedule, peak 920 B", "budget 700 B",
    ]  # fmt: skip
    assert [label.get_text() for label in tensors.get_yticklabels()] == ["a  400 B"]
    assert "model:m4f" in tensors.get_xlabel()


def test_the_memory_curve_is_that_of_the_trace() -> None:
    memory = figure(drawn(again())).axes[1]
    planned = next(curve for curve in memory.lines if "this schedule" in curve.get_label())
    assert 1024 * max(planned.get_ydata()) == replay(problem(), again()).peak_bytes
    assert max(planned.get_xdata()) == replay(problem(), again()).time_s


def test_a_schedule_that_keeps_everything_has_no_rows_of_tensors() -> None:
    assert len(figure(drawn(keep_all(problem()))).axes) == 2


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures_are_written(tmp_path: Path, suffix: str) -> None:
    for number, write in enumerate((lambda at: plot(drawn(paged()), at), lambda at: plot_curve(curve(), at))):
        path: Any = tmp_path / f"{number}{suffix}"
        write(path)
        assert path.stat().st_size > 5000


def test_a_picture_of_unknown_kind_or_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="expected a file"):
        plot(drawn(paged()), tmp_path / "a.gif")
    with pytest.raises(Unwritable, match="no such folder"):
        plot_curve(curve(), tmp_path / "none" / "a.png")


def curve() -> Curve:
    budgets = (1 << 20, 2 << 20, 4 << 20)
    both = Series("both", tuple(zip(budgets, (0.4, 0.001, 0.0), strict=True)))
    paging = Series("paging only", tuple(zip(budgets, (None, 0.3, 0.0), strict=True)))
    bound = Series("proven bound", tuple(zip(budgets, (0.3, 0.001, 0.0), strict=True)), bound=True)
    return Curve("toy", 4 << 20, (both, paging, bound), method="model:m4f")


def test_a_curve_names_its_series_and_marks_where_nothing_was_found() -> None:
    panel = curve_figure(curve()).axes[0]
    lines = {shown.get_label(): shown for shown in panel.lines}
    assert list(lines["both"].get_xdata()) == [1.0, 2.0, 4.0]
    assert list(lines["both"].get_ydata()) == pytest.approx([40.0, 0.1, 0.0])
    assert list(lines["paging only"].get_xdata()) == [2.0, 4.0]
    assert list(lines["paging only: none found"].get_xdata()) == [1.0]
    assert panel.get_xlabel() == "memory budget, MiB" and "model:m4f" in panel.get_ylabel()


def test_the_table_of_a_curve_has_a_line_a_budget() -> None:
    console = Console(width=100, file=StringIO(), record=True)
    console.print(curve_table(curve()))
    rows = console.export_text().splitlines()
    assert rows[2].split() == ["1.00", "MiB", "25.0%", "+40.000%", "none", "+30.000%"]
    assert len(rows) == 5


def test_budgets_run_from_the_least_to_the_most_and_are_closer_below() -> None:
    found = budgets_between(1000, 9000, 5)
    assert (found[0], found[-1], len(found)) == (1000, 9000, 5)
    gaps = [b - a for a, b in pairwise(found)]
    assert gaps == sorted(gaps)
    assert budgets_between(9000, 9000, 5) == (9000,)

"""What operators paid, counted from records whose truth is known."""

from dataclasses import replace

import pytest
from synthetic import fake_result

from fitness.result import Measure, Outcome, Result
from gevo.explain.operators import kinds, operator_of, operators, table
from gevo.genome import IDENTITY, Genome
from gevo.record import Record, base_record, record_id
from mlir_passes.edits import Use
from mlir_passes.edits.delete import Delete
from mlir_passes.edits.rewire import Rewire

OBJECTIVES = ("runtime_s", "error")
FLOORS = {"runtime_s": 0.02, "error": 0.0}
BASE = base_record(fake_result(IDENTITY))
A, B, C = Rewire("op1", 1, Use("arg0")), Rewire("op1", 1, Use("arg1")), Delete("op2", (Use("arg1"),))


def record(number: int, genome: Genome, parents: tuple[str, ...], ratio: float, error: float, **more: str) -> Record:
    """A valid record; with outcome="diverged" one that failed, with answered_by one that a fingerprint answered."""
    base = BASE.result
    objectives = {
        "runtime_s": Measure(1e-3 * ratio, "clock"),
        "error": Measure(error, "accuracy"),
    }
    result = replace(
        base,
        fingerprint=more.get("fingerprint", f"f{number}"),
        objectives=objectives,
        runtime_ratio=ratio,
        answered_by=more.get("answered_by", ""),
    )
    if "outcome" in more:
        result = Result(Outcome(more["outcome"]), "quality", "not finite")
    made = Record(record_id(number), 1, genome.key, genome.text, parents, 0.0, result)
    return replace(made, operator=more.get("operator", ""))


def test_an_operator_is_known_from_what_differs_from_the_parent() -> None:
    one = record(2, Genome((A,)), ("r0001",), 1.0, 0.1)
    both = record(3, Genome((A, C)), ("r0002",), 1.0, 0.1)
    assert operator_of(one, (BASE,)) == "add:rewire"
    assert operator_of(both, (one,)) == "add:delete" and operator_of(one, (both,)) == "remove:delete"
    assert operator_of(record(4, Genome((B,)), ("r0002",), 1.0, 0.1), (one,)) == "perturb:rewire"
    assert operator_of(record(4, Genome((C,)), ("r0002",), 1.0, 0.1), (one,)) == "redraw:delete"
    assert operator_of(record(4, Genome((A,), storage="f16"), ("r0002",), 1.0, 0.1), (one,)) == "storage"
    assert operator_of(both, (one, BASE)) == "crossover"
    assert operator_of(record(4, Genome((B, C)), ("r0002",), 1.0, 0.1), (one,)) == "other"
    assert operator_of(record(4, Genome((A,)), (), 1.0, 0.1), ()) == "seed"
    assert operator_of(replace(one, operator="seed:hand"), (BASE,)) == "seed:hand"


def test_counts_and_gains_are_those_of_the_records() -> None:
    records = [
        BASE,  # ratio 1, error 0.10
        record(2, Genome((A,)), ("r0001",), 0.5, 0.10),  # better, enters
        record(3, Genome((B,)), ("r0001",), 0.8, 0.10),  # better than its parent, but r0002 dominates it
        record(4, Genome((A, B)), ("r0002",), 0.505, 0.10),  # within noise of its parent
        record(5, Genome((A, A)), ("r0002",), 0.5, 0.10, fingerprint="f2", answered_by="fingerprint"),
        record(6, Genome((A, B, B)), ("r0002",), 0.0, 0.0, outcome="diverged"),
        record(7, Genome((C,)), ("r0001",), 1.2, 0.04),  # slower, more accurate: enters
        record(8, Genome((A, C)), ("r0002", "r0007"), 0.45, 0.05),
    ]
    found = {row.name: row for row in operators(records, OBJECTIVES, FLOORS)}
    rewire = found["add:rewire"]
    assert (rewire.tried, rewire.valid, rewire.neutral, rewire.improved, rewire.front, rewire.evaluated) == (
        4, 4, 1, 2, 1, 3,
    )  # fmt: skip
    assert rewire.best == pytest.approx({"runtime_s": 0.5, "error": 0.0})
    assert rewire.median["runtime_s"] == pytest.approx((0.8 + 1.0) / 2, abs=0.006)  # of 0.5, 0.8, 1.0 and 1.01
    delete = found["add:delete"]
    assert (delete.tried, delete.improved, delete.front) == (1, 1, 1)
    assert delete.best == pytest.approx({"runtime_s": 1.2, "error": -0.06})
    cross = found["crossover"]
    assert cross.front == 1 and cross.best["runtime_s"] == pytest.approx(0.9)  # of its first valid parent
    assert found["other"].tried == 1 and found["other"].valid == 0 and found["other"].best == {}
    assert sum(row.tried for row in found.values()) == len(records) - 1


def test_kinds_gather_all_moves_and_a_record_of_two_operators_counts_for_both() -> None:
    records = [
        BASE,
        record(2, Genome((A,)), ("r0001",), 0.5, 0.10),
        record(3, Genome((B,)), ("r0002",), 0.8, 0.10),
        record(4, Genome((A, C)), ("r0001", "r0002"), 0.4, 0.10, operator="crossover+add:delete"),
    ]
    assert {row.name: row.tried for row in kinds(records, OBJECTIVES, FLOORS)} == {"rewire": 2, "delete": 1}
    made = {row.name: row.tried for row in operators(records, OBJECTIVES, FLOORS)}
    assert made == {"add:rewire": 1, "perturb:rewire": 1, "crossover": 1, "add:delete": 1}


def test_a_table_fits_eighty_columns() -> None:
    from rich.console import Console

    records = [BASE, record(2, Genome((A,)), ("r0001",), 0.5, 0.10, operator="perturb:body_replace")]
    console = Console(width=80, record=True)
    console.print(table(operators(records, OBJECTIVES, FLOORS), "night"))
    text = console.export_text()
    assert "perturb:body_replace" in text and "0.500" in text and all(len(line) <= 80 for line in text.splitlines())

"""`gevo explain` on a real training: a record made by hand, of which one edit matters."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gevo as package
from fitness.result import Outcome
from gevo.explain.operators import operators
from gevo.genome import Genome
from gevo.store import Run, RunWriter
from mlir_passes.edits import Use
from mlir_passes.edits.delete import Delete
from mlir_passes.edits.scale import Scale
from mlir_passes.space import Space
from mlir_passes.structure import structure

ROOT = Path(package.__file__).parent.parent
EXACT = "peak_bytes,energy_j,error"


def gevo(folder: Path, *arguments: str) -> tuple[int, str, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    command = [sys.executable, "-m", "gevo", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of digits with a record r0900 of three edits: the maximum with -inf left out and the loss times 1, which
    change nothing that is learned, and the gradient of w2 left uncomputed; r0901, which failed; and r0902 of the
    first of them, and two that undo each other."""
    pytest.importorskip("jax")
    pytest.importorskip("sklearn")
    where = tmp_path_factory.mktemp("explain")
    code, _, error = gevo(
        where, "search", "digits", "--objectives", EXACT, "--evaluations", "6", "--population", "4", "--name", "run",
        "--no-confirm",
    )  # fmt: skip
    assert code == 0, error
    run = Run(where / "runs" / "run")
    base, space = run.records()[0], Space.load(run.folder / "space.json")
    lines = structure((run.folder / "base.mlir").read_text(), ()).lines
    no_max = next(line for line in lines if line.text.startswith("max(-inf"))
    gradient = next(line for line in lines if line.text.startswith("transposition") and line.shape == (128, 10))
    loss = next(line for line in lines if line.text.startswith("op") and line.shape == () and " / 32" in line.text)
    edits = (
        Delete(no_max.site, (Use(no_max.reads[-1]),)),
        Delete(gradient.site, (Use("arg7"),)),
        Scale(loss.results[0], 1.0),
    )
    assert all(edit.applies(space) for edit in edits)
    genome, other = Genome(edits), Genome(edits[1:])
    swapped = Genome((edits[0], Scale(gradient.results[0], -64.0), Scale(gradient.results[0], -1 / 64)))
    bad = replace(base.result, outcome=Outcome.DIVERGED, stage="quality", detail="not finite", objectives={})
    with RunWriter(run.folder) as writer:
        writer.append(replace(base, id="r0900", key=genome.key, text=genome.text, parents=("r0001",)))
        writer.append(replace(base, id="r0902", key=swapped.key, text=swapped.text, parents=("r0001",)))
        writer.append(replace(base, id="r0901", key=other.key, text=other.text, parents=("r0001",), result=bad))
    return where


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, object]:
    code, out, error = gevo(folder, "explain", "run", "r0900", "--json", "--rounds", "3", "--html", "why.html")
    assert code == 0, error
    return json.loads(out)


def test_of_three_edits_the_one_that_matters_is_found(told: dict) -> None:
    assert told["kept"] == [2] and told["minimal"] and told["left"] == 0
    (effect,) = told["effects"]
    assert effect["within"] == effect["alone"] and effect["alone"]["energy_j"]["mean"] < -0.02
    assert told["sums"]["energy_j"]["joint"] == told["sums"]["energy_j"]["alone"]


def test_words_name_the_parameter_and_the_users_line_and_the_diff_shows_it(told: dict) -> None:
    (said,) = [edit for edit in told["edits"] if edit["kept"]]
    found = re.match(r"the gradient of w2 \((op\d+), digits\.py:\d+\) is deleted; w2 takes its place", said["words"])
    assert found is not None and said["meaning"] == "w2 learns from something else than its gradient"
    changed = [line for line in told["diff"] if line["sign"] == "-"]
    assert found[1] in {line["site"] for line in changed} and all(line["where"] for line in changed)
    assert any(line["sign"] == "+" and "* w2" in line["text"] for line in told["diff"])


def test_an_edit_that_repairs_another_is_not_said_to_do_nothing(folder: Path) -> None:
    """Of r0902, the second edit makes a gradient -64 times as great, and the third takes that back."""
    code, out, error = gevo(folder, "explain", "run", "r0902", "--rounds", "3", "--html", "swapped.html")
    assert code == 0, error
    assert "its 3 edits together change no objective beyond noise" in out
    assert "No effect beyond noise together, but not without the other: 2, 3" in out
    assert "without the other: 2, 3" in (folder / "swapped.html").read_text()
    _, out, _ = gevo(folder, "explain", "run", "r0902", "--rounds", "3", "--json")
    assert json.loads(out)["left_out"] == {"neutral": [1], "together": [[2, 3]], "harmful": [], "unknown": []}


def test_a_second_call_evaluates_nothing(folder: Path, told: dict) -> None:
    code, out, _ = gevo(folder, "explain", "run", "r0900", "--json", "--rounds", "3")
    assert code == 0 and json.loads(out) == {**told, "evaluated": 0}
    code, out, _ = gevo(folder, "explain", "run", "r0900", "--rounds", "3")
    assert code == 0 and "1 of 3 edits matter" in out and "No effect beyond noise: 1, 3" in out


def test_the_page_stands_alone_and_marks_changed_kernels(folder: Path, told: dict) -> None:
    page = (folder / "why.html").read_text()
    assert "<script" not in page and "src=" not in page and "@import" not in page and "url(" not in page
    assert re.findall(r"https?://[^\"']+", page) == ["http://www.w3.org/2000/svg"]
    pictures = re.findall(r"<svg.*?</svg>", page, re.S)
    graph = ElementTree.fromstring(next(p for p in pictures if "kernels of base" in p))
    marked = [g.attrib["class"] for g in graph.iter("{http://www.w3.org/2000/svg}g") if "class" in g.attrib]
    boxes = len(list(graph.iter("{http://www.w3.org/2000/svg}rect")))
    assert {"gone", "changed"} == set(marked) and len(marked) < boxes / 2
    assert "the gradient of w2" in page and 'class="del"' in page and 'class="add"' in page


@pytest.mark.parametrize(
    ("record", "code", "message"),
    [
        ("r0001", 2, "nothing to explain"),
        ("base", 2, "nothing to explain"),
        ("r0901", 2, "this record failed (diverged in quality)"),
        ("r0777", 10, "no record 'r0777'"),
    ],
)
def test_what_cannot_be_explained_is_said(folder: Path, record: str, code: int, message: str) -> None:
    got, _, error = gevo(folder, "explain", "run", record)
    assert got == code and message in error and len(error.splitlines()) == 1


def test_operators_are_told_from_the_records(folder: Path) -> None:
    code, out, _ = gevo(folder, "explain", "run", "--operators", "--json")
    run = Run(folder / "runs" / "run")
    rows = json.loads(out)["operators"]
    made = [set((r.operator or "one").split("+")) for r in run.records() if not r.is_base]
    assert code == 0 and sum(row["tried"] for row in rows) == sum(map(len, made))
    assert json.loads(out)["kinds"]
    found = operators(run.records(), run.manifest["config"]["objectives"], run.manifest["floors"])
    assert [row.to_json() for row in found] == rows

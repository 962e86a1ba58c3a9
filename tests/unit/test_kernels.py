"""`gevo kernels`: calls and values of a made-up program as rows, words and a picture."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from gevo.errors import CampaignError, ExtraMissing, Unwritable
from gevo.kernels import Row, StepKernels, Value, caption, collect, table
from gevo.kernels_plot import check_file, forward, lanes, plot
from mlir_passes.program import Buffer, Kernel, KernelCall, Plan, Program
from workloads.workload import ArraySpec, Signature


def program() -> Program:
    """h = x w; loss of h; w changed by h, in place; a last copy of it to v."""
    shapes = [
        ("arg0", "state", (4, 3)),
        ("arg1", "state", (4, 3)),
        ("arg2", "batch", (8, 4)),
        ("v3", "activation", (8, 3)),
        ("v4", "metric", ()),
        ("workspace0", "workspace", (64,)),
    ]
    buffers, offset = list[Buffer](), 0
    for name, role, shape in shapes:
        count = 1
        for size in shape:
            count *= size
        buffers.append(Buffer(name, role, offset, 4 * count, shape, "float32"))
        offset += 256
    calls = (("product", (2, 0, 3)), ("loss", (3, 4, 5)), ("update", (3, 0, 0)), ("copy", (0, 1)))
    kinds = {"product": ("contraction", 2), "loss": ("reduction", 1), "update": ("elementwise", 2), "copy": ("move", 1)}
    kernels = {
        key: Kernel(key, f"k_{key}", kind, "", 2_000_000, 300, 100, 8, inputs) for key, (kind, inputs) in kinds.items()
    }
    plan = Plan(tuple(buffers), tuple(KernelCall(k, a) for k, a in calls), (0, 1), (2,), (4,), offset)
    return Program(plan, kernels, {}, "cpu", "test")


def step(times: tuple[float, ...] = ()) -> StepKernels:
    leaf = ArraySpec("w", (4, 3), "float32")
    signature = Signature(
        "toy", "none", (leaf, replace(leaf, name="v")), (ArraySpec("x", (8, 4), "float32"),),
        (ArraySpec("loss", (), "float32"),),
    )  # fmt: skip
    words = {
        key: {"work": (key,), "loops": "8x3", "made_by": "emitter", "phases": ("elementwise 1x8",), "why": "",
              "tuned": False}
        for key in ("product", "loss", "update")
    }  # fmt: skip
    words["copy"] = {**words["loss"], "work": ("copy",), "made_by": "plain loops", "phases": (), "why": "memref.copy"}
    return collect(program(), signature, words, times)


def labels(found: StepKernels, numbers: tuple[int, ...]) -> list[str]:
    return [found.label(found.values[n]) for n in numbers]


def test_values_have_the_names_of_the_signature_or_the_number_of_their_maker() -> None:
    found = step()
    assert labels(found, found.rows[0].reads) == ["x", "w"] and labels(found, found.rows[0].writes) == ["#1"]
    assert labels(found, found.rows[1].writes) == ["loss"]  # and no workspace
    assert labels(found, found.rows[2].reads) == ["#1", "w"]


def test_a_state_leaf_written_in_place_is_a_new_value_that_later_calls_read() -> None:
    found = step()
    old, new = found.rows[2].inplace[0]
    assert found.rows[2].reads[1] == old and found.rows[2].writes == (new,)
    assert (found.values[old].maker, found.values[new].maker) == (0, 3)
    assert found.rows[3].reads == (new,) and found.rows[3].inplace == ()


def test_rows_survive_json() -> None:
    found = step((1e-6, 2e-6, 3e-6, 0.0))
    assert StepKernels.from_json(json.loads(json.dumps(found.to_json()))) == found


def printed(found: StepKernels) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(table(found))
    console.print(caption(found))
    return re.sub(r"\s+", " ", console.export_text())


def test_the_table_says_what_is_read_and_written_and_how_it_is_made() -> None:
    text = printed(step())
    assert "toy: 4 calls of 4 kernels" in text and "contraction: product" in text
    assert "#1, w -> w in place" in text and "elementwise 1x8" in text and "plain loops" in text
    assert "move, memref.copy" in text and "measured" not in text


def test_times_come_with_their_share_rate_and_method() -> None:
    found = replace(step((1e-4, 2e-4, 1e-4, 1e-9)), step_s=3.9e-4, method="by a clock")
    text = printed(found)
    assert "50.0%" in text and "20.0" in text and "< 100 ns" in text
    assert "Times are measured: by a clock." in text and "390 us" in text


def test_forward_is_what_a_metric_depends_on() -> None:
    assert forward(step()) == {1, 2}
    quiet = tuple(replace(v, role="activation") if v.role == "metric" else v for v in step().values)
    assert forward(replace(step(), values=quiet)) == {1, 2, 3, 4}


def test_lanes_run_from_maker_to_last_reader_and_say_what_is_kept() -> None:
    found = {lane.value: lane for lane in lanes(step())}
    assert [(lane.readers, lane.kept) for lane in found.values()] == [((4,), False), ((2, 3), True)]


@pytest.mark.parametrize("seed", range(20))
def test_no_two_lanes_overlap(seed: int) -> None:
    found = random_step(random.Random(seed), 60)
    places: dict[int, list[tuple[int, int]]] = {}
    drawn = [lane for lane in lanes(found) if lane.column >= 0]
    assert len({lane.column for lane in drawn}) <= 28
    for lane in drawn:
        places.setdefault(lane.column, []).append((found.values[lane.value].maker, lane.readers[-1]))
    for spans in places.values():
        ordered = sorted(spans)
        assert all(end < start for (_, end), (start, _) in pairwise(ordered))


def random_step(rng: random.Random, count: int) -> StepKernels:
    values = [Value("x", "batch", (4,), "float32", 16, 0)]
    rows: list[Row] = []
    for number in range(1, count + 1):
        reads = tuple(rng.sample(range(len(values)), min(len(values), rng.randint(1, 3))))
        values.append(Value(f"v{number}", "activation", (4,), "float32", 1 << rng.randint(2, 24), number))
        rows.append(Row(number, "k", rng.choice(("contraction", "move")), ("product",), "4", reads,
                        (len(values) - 1,), (), 8, 32, 1, "emitter", ("elementwise 1x8",), "", False))  # fmt: skip
    return StepKernels("random", tuple(values), tuple(rows), 1 << 20)


def test_the_picture_names_every_call_and_is_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(step(), tmp_path / "a.svg")
    plot(step(), tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    for title in ("1  contraction: product", "4  move: copy", "#1  96 B", "loss  4 B", "w  in place"):
        assert re.search(f">{re.escape(title)}<", text), title


def test_a_picture_of_300_calls_is_a_long_strip(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(random_step(random.Random(1), 300), tmp_path / "long.svg")
    found = re.search(
        r'width="([\d.]+)pt" height="([\d.]+)pt"|height="([\d.]+)pt"', (tmp_path / "long.svg").read_text()
    )
    assert found and float(found[2] or found[3]) > 300 * 0.5 * 72


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [("a.jpg", CampaignError, "expected a file .svg"), ("none/a.svg", Unwritable, "no such folder")],
)
def test_a_file_that_cannot_be_drawn_is_said_first(
    tmp_path: Path, name: str, error: type[CampaignError], text: str
) -> None:
    with pytest.raises(error, match=text):
        check_file(tmp_path / name)


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ExtraMissing, match="matplotlib is not installed"):
        check_file(tmp_path / "a.svg")

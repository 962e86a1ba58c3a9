"""What changed in a step is what an edit changed, and nothing else; and words name what is in the diff."""

import random
import re
from collections.abc import Iterable

import numpy as np
import pytest
from small_steps import MLP, floats, numbered, run

from gevo.explain.difference import changed_sites, diff, plain, short
from gevo.explain.names import GRADIENT, NEW, PARAMETER, UPDATE, Names
from gevo.explain.words import sentences
from mlir_passes.edits import KINDS, Edit, Use, edit_class
from mlir_passes.edits.body_scale import BodyScale
from mlir_passes.edits.delete import Delete
from mlir_passes.edits.rewire import Rewire
from mlir_passes.edits.scale import Scale
from mlir_passes.edits.shrink import Shrink
from mlir_passes.edits.skip import Skip
from mlir_passes.errors import PassError
from mlir_passes.pipeline import apply_genome
from mlir_passes.structure import Structure, structure
from workloads.workload import ArraySpec, Signature

TEXT, SPACE = numbered(MLP, 2)
BASE = structure(TEXT, ())
SIGNATURE = Signature(
    "mlp",
    "mlir",
    (ArraySpec("w1", (3, 4), "float32"), ArraySpec("w2", (4, 2), "float32")),
    (ArraySpec("x", (5, 3), "float32"), ArraySpec("t", (5, 2), "float32")),
    (ArraySpec("loss", (), "float32"),),
)
NAMES = Names(BASE, SIGNATURE, {"op17": "model.py:7"})


def signed(*edits: Edit) -> list[str]:
    """The lines of the diff that are not the same on both sides."""
    found = diff(BASE, structure(TEXT, edits), {}, {**NAMES.leaves, **NAMES.results})
    return [f"{s.sign} {s.site} {s.text}" for s in found if s.sign in "+-"]


def test_the_step_reads_as_it_was_written() -> None:
    texts = [line.text.partition(" :")[0] for line in BASE.lines]
    assert texts[:5] == ["product(arg2, arg0)", "max(op15#0, 0)", "product(op16#0, arg1)", "op17#0 - arg3",
                         "acc + (op18#0 * op18#0), acc from 0"]  # fmt: skip
    assert texts[9] == "where((op15#0 > 0), op23#0, 0)" and texts[-2:] == ["op21#0 * 0.01", "arg1 - op29#0"]
    assert [line.kind for line in BASE.lines][:3] == ["product", "relu", "product"]


def test_a_planted_change_is_all_that_shows() -> None:
    assert signed(Rewire("op18", 1, Use("op17#0"))) == [
        "- op18 op17 - the batch's t : 5x2xf32",
        "+ op18 op17 - op17 : 5x2xf32",
    ]
    assert signed(Scale("op26#0", 1.9)) == [
        "- op27 op26 * 0.01 : 3x4xf32",
        "+ new1 op26 * 1.9 : 3x4xf32",
        "+ op27 new1 * 0.01 : 3x4xf32",
    ]
    assert signed(Delete("op29", (Use("op21#0"),))) == [
        "- op29 op21 * 0.01 : 4x2xf32",
        "- op30 w2 - op29 : 4x2xf32",
        "+ op30 w2 - op21 : 4x2xf32",
    ]


def test_what_is_returned_is_part_of_the_diff() -> None:
    assert signed(Delete("op30", (Use("arg1"),)))[-2:] == ["- return the new w2 = op30", "+ return the new w2 = w2"]


def test_values_that_the_printer_numbers_anew_are_no_change() -> None:
    """Deleting the first op of the update of w1 gives nearly all later values other numbers in MLIR's text."""
    edit = Delete("op16", (Use("op15#0"),))
    before, after = (apply_genome(TEXT, e).text.splitlines() for e in ((), (edit,)))
    assert len(set(before) & set(after)) < len(before) - 4  # so much that a diff of the texts would show
    assert changed_sites(BASE, structure(TEXT, (edit,))) == {"op16", "op17", "op20"}


def cases(count: int) -> Iterable[tuple[Edit, Structure, str]]:
    """Random edits of each kind that make a valid step, with its lines and fingerprint."""
    for kind in KINDS:
        rng, found = random.Random(7), 0
        for _ in range(20 * count):
            edit = edit_class(kind).draw(SPACE, rng)
            if edit is None or found == count:
                continue
            try:
                yield edit, structure(TEXT, (edit,)), apply_genome(TEXT, (edit,)).fingerprint
            except PassError:
                continue
            found += 1


def test_a_diff_is_empty_just_where_the_program_is_the_same() -> None:
    """Where the text differs but no line does, as when a constant is made twice, results are the same bit for bit."""
    same = apply_genome(TEXT, ())
    state, batch = (floats(3, 4), floats(4, 2, seed=1)), (floats(5, 3), floats(5, 2, seed=1))
    expected, found = run(same.text, *batch, state=state), 0
    for edit, variant, fingerprint in cases(6):
        empty = not diff(BASE, variant, {}, {})
        assert empty or fingerprint != same.fingerprint, edit
        if empty and fingerprint != same.fingerprint:
            got = run(apply_genome(TEXT, (edit,)).text, *batch, state=state)
            assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True)), edit
        found += 1
    assert found > 4 * len(KINDS)


def test_sites_named_in_words_are_those_of_the_diff() -> None:
    """Each op that a sentence names is changed, or is read by a changed line of either side, or was read."""
    readings = set[str]()
    for edit, variant, _ in cases(6):
        if not diff(BASE, variant, {}, {}):
            continue
        words, meaning = sentences(edit, NAMES, SPACE)
        readings.add(meaning)
        shown = [s for s in diff(BASE, variant, {}, {}) if s.sign in "+-"]
        touched = {short(s.site) for s in shown} | {n for s in shown for n in re.findall(r"op\d+'?|arg\d+", s.text)}
        for site in edit.sites:
            origin = site.partition("'")[0]
            readers = {*BASE.readers.get(origin, ()), *variant.readers.get(site, ())}
            constant = BASE.helpers.get(origin)  # equal ones are one op, under the site of the first
            said = constant is not None and any(constant in s.text for s in shown)
            assert said or {short(site), origin, *readers} & touched, (edit, words, plain(shown))
            assert origin in words or NAMES.name(origin) in words, words
    assert len(readings) > 8


def test_parameters_updates_and_gradients_are_known_by_name() -> None:
    assert NAMES.name("arg0") == "w1" and NAMES.name("arg2") == "the batch's x"
    assert NAMES.name("op26#0") == "the gradient of w1 (op26)" and NAMES.role("op21") == (GRADIENT, "w2")
    assert NAMES.role("op27#0") == (UPDATE, "w1") and NAMES.role("op28") == (NEW, "w1")
    assert NAMES.role("arg1") == (PARAMETER, "w2") and NAMES.role("arg2") == ("", "")
    assert NAMES.name("op17") == "the product with w2 (op17, model.py:7)"
    assert NAMES.name("op16") == "the relu after the product with w1 (op16)"
    assert (
        NAMES.name("op23") == "the product with w2 on the way back (op23)" and NAMES.name("op19") == "the loss (op19)"
    )
    assert not NAMES.normalised("w1")


@pytest.mark.parametrize(
    ("edit", "meaning"),
    [
        (Scale("op26#0", 1.9), "a larger learning rate for w1"),
        (Scale("op29#0", 0.5), "a smaller learning rate for w2"),
        (BodyScale("op29", "op1#0", 1.5), "a larger learning rate for w2"),
        (Scale("op30#0", 0.99), "w2 shrinks (weight decay) with every step"),
        (Delete("op16", (Use("op15#0"),)), "no nonlinearity there"),
        (Delete("op16", (Use("arg2"),)), "left out for all that follows: the product with the batch's x and w1"),
        (Delete("op17", (Use("op16#0"),)), "a layer is left out"),
        (Delete("op27", (Use("op26#0"),)), "w1 learns from something else than its gradient"),
        (Shrink("op17", 2, 0, 2, 2, False), "less work: every 2nd channel or tap is used"),
        (Shrink("op26", 2, 0, 3, 1, True), "a gradient from a part of its terms"),
        (
            Skip("op17#0", Use("arg2")),
            "left out for all that follows: the product with the batch's x and w1, the product with w2",
        ),
        (Skip("op28#0", Use("arg0")), "w1 gets something else than its update"),
    ],
)
def test_known_cases_are_read(edit: Edit, meaning: str) -> None:
    assert edit.applies(SPACE) and sentences(edit, NAMES, SPACE)[1] == meaning


def test_words_say_resizing_only_where_shapes_differ() -> None:
    assert "where shapes differ" not in sentences(Delete("op16", (Use("op15#0"),)), NAMES, SPACE)[0]
    assert "where shapes differ" in sentences(Delete("op16", (Use("op18#0"),)), NAMES, SPACE)[0]


def test_lines_survive_json() -> None:
    assert Structure.from_json(BASE.to_json()) == BASE

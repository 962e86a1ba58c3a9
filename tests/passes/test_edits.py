"""The three edits on a small step: golden text, chains, refusals, and agreement of the space with the IR."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

import pytest
from small_steps import MLP, drawn, numbered

from mlir_passes.edits import KINDS, Edit, Use, edit_class, edit_from_json
from mlir_passes.edits.copy import Copy
from mlir_passes.edits.delete import Delete
from mlir_passes.edits.rewire import Rewire
from mlir_passes.errors import EditDoesNotApply, PassError
from mlir_passes.pipeline import apply_genome
from mlir_passes.space import GONE, dangling

# op0 is the storage; op1 = exp x, op2 = op1 + y, op3 = tanh op2, op4 = op3 * x
CHAIN = """func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.add ins(%a, %y : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %c = linalg.tanh ins(%b : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %d = linalg.mul ins(%c, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %d : tensor<4xf32>
}"""
BASE, SPACE = numbered(CHAIN)
X, Y = Use("arg0"), Use("arg1")


def essence(text: str) -> list[str]:
    """Each linalg op and the return with its operands, outputs renamed a, b, ... in order of appearance."""
    names: dict[str, str] = {"%arg0": "x", "%arg1": "y"}
    lines: list[str] = []
    for line in text.splitlines():
        made = re.match(r"\s*(%\w+) = (linalg\.\w+) ins\((.*?) :", line)
        if made:
            operands = [names[v] for v in made[3].split(", ")]
            names[made[1]] = "abcdefgh"[len(lines)]
            lines.append(f"{names[made[1]]} = {made[2].removeprefix('linalg.')} {' '.join(operands)}")
        elif returned := re.match(r"\s*return (.*?) :", line):
            lines.append(f"return {' '.join(names[v] for v in returned[1].split(', '))}")
    return lines


def edited(*edits: Edit) -> list[str]:
    return essence(apply_genome(BASE, edits).text)


def test_no_edit_keeps_the_program():
    assert edited() == ["a = exp x", "b = add a y", "c = tanh b", "d = mul c x", "return d"]


def test_deletion_gives_uses_the_replacement():
    assert edited(Delete("op2", (Y,))) == ["a = tanh y", "b = mul a x", "return b"]


def test_rewiring_changes_one_operand_only():
    assert edited(Rewire("op4", 1, Use("op1#0"))) == [
        "a = exp x",
        "b = add a y",
        "c = tanh b",
        "d = mul c a",
        "return d",
    ]


def test_copy_goes_to_its_place_with_its_operands_and_feeds_one_use():
    copy = Copy("op1", 7, "op3", (Use("op2#0"),), "op4", 0)
    assert edited(copy) == ["a = exp x", "b = add a y", "c = exp b", "d = mul c x", "return d"]


def test_copy_placed_before_its_storage_brings_storage_with_it():
    text = """func.func @step(%x: tensor<4xf32>, %y: tensor<5xf32>) -> (tensor<4xf32>, tensor<5xf32>) {
  %e4 = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e4 : tensor<4xf32>) -> tensor<4xf32>
  %e5 = tensor.empty() : tensor<5xf32>
  %b = linalg.tanh ins(%y : tensor<5xf32>) outs(%e5 : tensor<5xf32>) -> tensor<5xf32>
  %c = linalg.log ins(%b : tensor<5xf32>) outs(%e5 : tensor<5xf32>) -> tensor<5xf32>
  return %a, %c : tensor<4xf32>, tensor<5xf32>
}"""
    base, space = numbered(text)
    exp, tanh, log = (op.site for op in space.ops if op.name.startswith("linalg."))
    copy = Copy(log, 1, exp, (Y,), tanh, 0)
    assert copy.applies(space)
    lines = essence(apply_genome(base, [copy]).text)
    assert lines == ["a = log y", "b = exp x", "c = tanh a", "d = log c", "return b d"]


def test_slot_of_a_copy_keeps_its_type_where_the_value_was_resized():
    text = """func.func @step(%x: tensor<4xf32>, %y: tensor<5xf32>) -> (tensor<4xf32>, tensor<5xf32>) {
  %e4 = tensor.empty() : tensor<4xf32>
  %e5 = tensor.empty() : tensor<5xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e4 : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.tanh ins(%y : tensor<5xf32>) outs(%e5 : tensor<5xf32>) -> tensor<5xf32>
  %c = linalg.log ins(%a : tensor<4xf32>) outs(%e4 : tensor<4xf32>) -> tensor<4xf32>
  return %c, %b : tensor<4xf32>, tensor<5xf32>
}"""
    base, space = numbered(text)
    exp, tanh, log = (op.site for op in space.ops if op.name.startswith("linalg."))
    copy = Copy(exp, 1, tanh, (Y,), log, 0)  # reads the first 4 of y's 5 elements
    bad = Copy(tanh, 2, f"{exp}'1", (Y,), f"{exp}'1", 0)  # 5 elements for a slot of 4
    assert dangling(space, [copy, bad]) == [1]
    with pytest.raises(EditDoesNotApply, match="has not the type of operand 0"):
        apply_genome(base, [copy, bad])
    good = Copy(exp, 2, f"{exp}'1", (X,), f"{exp}'1", 0)
    assert dangling(space, [copy, good]) == []
    assert essence(apply_genome(base, [copy, good]).text) == [
        "a = exp x",
        "b = exp a",
        "c = tanh y",
        "d = log b",
        "return d c",
    ]


def test_edit_of_a_copy():
    copy = Copy("op1", 7, "op3", (X,), "op4", 1)
    assert edited(copy, Rewire("op1'7", 0, Y)) == edited(Copy("op1", 7, "op3", (Y,), "op4", 1))


def test_name_of_a_deleted_value_means_its_replacement():
    assert edited(Delete("op1", (Y,)), Rewire("op4", 1, Use("op1#0"))) == [
        "a = add y y", "b = tanh a", "c = mul b y", "return c",
    ]  # fmt: skip


def test_name_follows_a_chain_of_deletions_in_any_order():
    forward = edited(Delete("op1", (X,)), Delete("op2", (Use("op1#0"),)), Rewire("op4", 1, Use("op2#0")))
    assert forward == ["a = tanh x", "b = mul a x", "return b"]
    # op2's name means op1's value; when op1 goes too, both names mean y
    backward = edited(Delete("op2", (Use("op1#0"),)), Delete("op1", (Y,)), Rewire("op4", 1, Use("op2#0")))
    assert backward == ["a = tanh y", "b = mul a y", "return b"]


def test_deleting_every_op_returns_the_argument():
    every = [Delete(f"op{i}", (X,)) for i in (4, 3, 2, 1)]
    assert edited(*every) == ["return x"]
    assert dangling(SPACE, every) == []


REFUSED: list[tuple[Sequence[Edit], str]] = [
    ([Delete("op9", (X,))], "no op at op9"),
    ([Delete("op1", (X,)), Delete("op1", (Y,))], "no op at op1"),
    ([Delete("op1", (X,)), Rewire("op1", 0, Y)], "no op at op1"),
    ([Delete("op2", (Use("op3#0"),))], "op3#0 does not dominate"),
    ([Delete("op2", (Use("op2#0"),))], "op2#0 does not dominate"),
    ([Delete("op2", ())], "op2 is still used"),
    ([Rewire("op2", 0, Use("op1'7#0"))], "no value op1'7#0"),
    ([Copy("op1", 7, "op3", (Use("op3#0"),), "op4", 0)], "op3#0 does not dominate"),
    ([Copy("op1", 7, "op9", (X,), "op4", 0)], "no op at op9"),
    ([Copy("op1", 7, "op3", (X,), "op9", 0)], "no op at op9"),
    ([Rewire("op1'7", 0, Y), Copy("op1", 7, "op3", (X,), "op4", 0)], "no op at op1'7"),
]


@pytest.mark.parametrize(("edits", "message"), REFUSED)
def test_edit_that_does_not_apply_says_why_and_is_known_to_the_space(edits: Sequence[Edit], message: str):
    with pytest.raises(EditDoesNotApply, match=re.escape(message)) as raised:
        apply_genome(BASE, edits)
    assert raised.value.stage == "edit"
    assert dangling(SPACE, edits)


def test_copy_wired_into_an_earlier_op_is_refused():
    """The IR may take it as an edit; then the verifier refuses the variant, and the space knows before."""
    edits = [Copy("op1", 7, "op4", (X,), "op2", 0)]
    with pytest.raises(PassError, match="dominate"):
        apply_genome(BASE, edits)
    assert dangling(SPACE, edits) == [0]


def test_dangling_finds_every_edit_that_hangs_on_a_missing_copy():
    copy = Copy("op1", 7, "op3", (X,), "op4", 0)
    needs = [Rewire("op1'7", 0, Y), Rewire("op4", 1, Use("op1'7#0"))]
    assert dangling(SPACE, [copy, *needs]) == []
    assert dangling(SPACE, needs) == [0, 1]
    assert dangling(SPACE, [copy, copy]) == [1]


def test_space_after_edits_is_what_the_search_may_draw_from():
    space = SPACE.after([Copy("op1", 7, "op3", (Y,), "op4", 0), Delete("op2", (X,))])
    assert [op.site for op in space.ops] == ["op0", "op1", "op2", "op1'7", "op3", "op4"]
    assert space.by_site["op1'7"].operands[0] == "arg1"
    assert space.by_site["op2"].name == GONE and not space.present("op2")
    assert "op1'7#0" in space.values_before("op3") and "op1'7#0" not in space.values_before("op1'7")


def test_json_round_trip():
    edits: list[Edit] = [
        Delete("op2", (Use("arg1", "broadcast", 1.0),)),
        Copy("op1", 7, "op3", (X,), "op4", 0),
        Rewire("op4", 1, Use("op1'7#0", "reshape")),
    ]
    assert {e.kind for e in edits} <= set(KINDS)
    for edit in edits:
        assert edit_from_json(json.loads(json.dumps(edit.to_json()))) == edit


def test_unknown_kind_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown edit kind 'fuse'; known: delete, copy, rewire, "):
        edit_class("fuse")


@pytest.mark.parametrize("part", range(3))
def test_edits_that_the_space_allows_apply_to_the_ir(part: int):
    """Also in other orders and subsets, as crossover makes them, once the dangling ones are out."""
    base, space = numbered(MLP, 2)
    for seed in range(part, 75, 3):
        rng = random.Random(seed)
        edits = drawn(space, rng, rng.randint(1, 12))
        assert dangling(space, edits) == [], seed
        apply_genome(base, edits)
        other = drawn(space, rng, rng.randint(1, 6))
        mixed = rng.sample([*edits, *other], rng.randint(1, len(edits) + len(other)))
        while bad := dangling(space, mixed):
            mixed = [e for i, e in enumerate(mixed) if i not in bad]
        apply_genome(base, mixed)


def test_edits_that_the_space_refuses_do_not_apply_to_the_ir():
    base, space = numbered(MLP, 2)
    refused = 0
    for seed in range(60):
        rng = random.Random(seed)
        edits = drawn(space, rng, 5, ("delete", "copy", "rewire"))  # of the others the space refuses more
        mixed = rng.sample(edits, len(edits))
        bad = dangling(space, mixed)
        if not bad:
            continue
        refused += 1
        with pytest.raises(PassError):
            apply_genome(base, mixed[: bad[0] + 1])
    assert refused >= 5

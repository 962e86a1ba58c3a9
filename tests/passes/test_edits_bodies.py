"""Edits inside bodies of linalg.generic, compiled and run, against NumPy's computation of what their words say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from small_steps import floats, numbered, run

from mlir_passes.edits import Edit, Use, edit_class
from mlir_passes.edits.body_drop import BodyDrop
from mlir_passes.edits.body_replace import BodyReplace
from mlir_passes.edits.body_scale import BodyScale
from mlir_passes.edits.body_swap import BodySwap
from mlir_passes.edits.copy import Copy
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.pipeline import apply_genome
from mlir_passes.space import Space, dangling

# inner ops: b0 = x - y, b1 = b0 * 3, b2 = exp x, b3 = b1 > b2, b4 = b3 ? b1 : b2, b5 = b4 / b2
BODY = """#id = affine_map<(d0) -> (d0)>
func.func @step(%x: tensor<9xf32>, %y: tensor<9xf32>) -> (tensor<9xf32>, tensor<9xf32>) {
  %three = arith.constant 3.0 : f32
  %e = tensor.empty() : tensor<9xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<9xf32>, tensor<9xf32>) outs(%e : tensor<9xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %a = arith.subf %p, %q : f32
    %b = arith.mulf %a, %three : f32
    %c = math.exp %p : f32
    %d = arith.cmpf ogt, %b, %c : f32
    %s = arith.select %d, %b, %c : f32
    %t = arith.divf %s, %c : f32
    linalg.yield %t : f32
  } -> tensor<9xf32>
  %k = linalg.add ins(%r, %y : tensor<9xf32>, tensor<9xf32>) outs(%e : tensor<9xf32>) -> tensor<9xf32>
  return %r, %k : tensor<9xf32>, tensor<9xf32>
}"""
BASE, SPACE = numbered(BODY)
OP = next(op for op in SPACE.ops if len(op.body) == 7)
SITE = OP.site
THREE = OP.body[1].operands[1]
X, Y = floats(9), floats(9, seed=1) - 1


def edited(*edits: Edit, base: str = BASE, space: Space = SPACE, given: Sequence[Any] = (X, Y)) -> list[np.ndarray]:
    """The results of a variant that the space allows; applied twice, it is the same program."""
    assert dangling(space, edits) == []
    variant = apply_genome(base, edits)
    assert apply_genome(base, edits).fingerprint == variant.fingerprint
    return run(variant.text, *given)


def close(got: np.ndarray, wanted: Any) -> None:
    np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-6)


def test_space_spells_the_body():
    assert [(i.name, i.operands) for i in OP.body] == [
        ("arith.subf", ("a0", "a1")),
        ("arith.mulf", ("b0", THREE)),
        ("math.exp", ("a0",)),
        ("arith.cmpf ogt", ("b1", "b2")),
        ("arith.select", ("b3", "b1", "b2")),
        ("arith.divf", ("b4", "b2")),
        ("linalg.yield", ("b5",)),
    ]


def test_unedited_body():
    close(edited()[0], np.maximum(3 * (X - Y), np.exp(X)) / np.exp(X))


def test_dropped_op_is_one_of_its_operands_or_an_argument():
    close(edited(BodyDrop(SITE, 1, "b0"))[0], np.maximum(X - Y, np.exp(X)) / np.exp(X))
    close(edited(BodyDrop(SITE, 0, "a1"))[0], np.maximum(3 * Y, np.exp(X)) / np.exp(X))
    close(edited(BodyDrop(SITE, 5, "a0"))[0], X)
    close(edited(BodyDrop(SITE, 1, THREE))[0], np.maximum(3, np.exp(X)) / np.exp(X))


def test_op_is_not_dropped_for_what_is_not_there():
    assert not BodyDrop(SITE, 0, "a2").applies(SPACE)  # storage that holds nothing
    assert not BodyDrop(SITE, 3, "b1").applies(SPACE)  # another type
    assert not BodyDrop(SITE, 0, "b1").applies(SPACE)  # made later
    drop = BodyDrop(SITE, 1, "b0")
    assert dangling(SPACE, [drop, drop]) == [1]
    assert dangling(SPACE, [drop, BodyReplace(SITE, 1, "arith.addf")]) == [1]
    with pytest.raises(EditDoesNotApply, match="no op 9 in this body"):
        apply_genome(BASE, [BodyDrop(SITE, 9, "a0")])
    with pytest.raises(EditDoesNotApply, match=f"{SPACE.ops[-1].site} is a linalg.add, which has no body"):
        apply_genome(BASE, [BodyDrop(SPACE.ops[-1].site, 3, "a0")])


def test_swapped_operands():
    close(edited(BodySwap(SITE, 0))[0], np.maximum(3 * (Y - X), np.exp(X)) / np.exp(X))
    close(edited(BodySwap(SITE, 4))[0], np.minimum(3 * (X - Y), np.exp(X)) / np.exp(X))
    assert not BodySwap(SITE, 1).applies(SPACE)  # a product is the same both ways


def test_exchanged_inner_values():
    # b1 and b2 for the comparison, the selection and the division
    b1, b2 = 3 * (X - Y), np.exp(X)
    close(edited(BodySwap(SITE, 1, 2))[0], np.maximum(b1, b2) / b1)
    close(edited(BodySwap(SITE, 1, 2), BodySwap(SITE, 1, 2))[0], np.maximum(b1, b2) / b2)
    assert not BodySwap(SITE, 3, 4).applies(SPACE)  # another type


def test_perturbed_swap_is_another_of_the_body():
    swap = BodySwap(SITE, 0)
    found = {swap.perturb(SPACE, random.Random(seed)) for seed in range(20)}
    assert swap not in found and BodySwap(SITE, 1, 2) in found and BodySwap(SITE, 4) in found


def test_replaced_op_is_another_of_its_signature():
    close(edited(BodyReplace(SITE, 0, "arith.addf"))[0], np.maximum(3 * (X + Y), np.exp(X)) / np.exp(X))
    close(edited(BodyReplace(SITE, 2, "math.tanh"))[0], np.maximum(3 * (X - Y), np.tanh(X)) / np.tanh(X))
    close(edited(BodyReplace(SITE, 3, "arith.cmpf olt"))[0], np.minimum(3 * (X - Y), np.exp(X)) / np.exp(X))
    assert not BodyReplace(SITE, 0, "math.exp").applies(SPACE)


UNARY = {
    "arith.negf": np.negative, "math.absf": np.abs, "math.tanh": np.tanh, "math.sin": np.sin,
    "math.log": np.log, "math.sqrt": np.sqrt, "math.rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
BINARY = {
    "arith.addf": np.add, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_every_op_that_may_be_put_in_is_compiled(name: str):
    x = np.abs(X) + 0.1
    if name in UNARY:
        wanted = np.maximum(3 * (x - Y), UNARY[name](x)) / UNARY[name](x)
        close(edited(BodyReplace(SITE, 2, name), given=[x, Y])[0], wanted)
    else:
        close(
            edited(BodyReplace(SITE, 0, name), given=[x, Y])[0],
            np.maximum(3 * BINARY[name](x, Y), np.exp(x)) / np.exp(x),
        )


def test_scaled_inner_values_arguments_and_constants():
    close(edited(BodyScale(SITE, "b1", 0.5))[0], np.maximum(1.5 * (X - Y), np.exp(X)) / np.exp(X))
    close(edited(BodyScale(SITE, "a0", 2.0))[0], np.maximum(3 * (2 * X - Y), np.exp(2 * X)) / np.exp(2 * X))
    close(edited(BodyScale(SITE, THREE, 2.0))[0], np.maximum(6 * (X - Y), np.exp(X)) / np.exp(X))
    twice = edited(BodyScale(SITE, THREE, 2.0), BodyScale(SITE, THREE, 0.25), BodyScale(SITE, "a0", -1.0))
    close(twice[0], np.maximum(1.5 * (-X - Y), np.exp(-X)) / np.exp(-X))
    assert not BodyScale(SITE, "b3", 2.0).applies(SPACE)  # a truth value


def test_edits_of_one_body_follow_each_other():
    edits = [BodyReplace(SITE, 0, "arith.addf"), BodyScale(SITE, "b0", 2.0), BodyDrop(SITE, 1, "b0")]
    close(edited(*edits)[0], np.maximum(2 * (X + Y), np.exp(X)) / np.exp(X))
    close(edited(BodyScale(SITE, "b0", 2.0), BodyReplace(SITE, 0, "arith.addf"))[0],
          np.maximum(6 * (X + Y), np.exp(X)) / np.exp(X))  # fmt: skip


def test_copy_has_the_body_as_it_was_edited_and_one_of_its_own():
    last = SPACE.ops[-1].site
    edits = [
        BodyScale(SITE, "b1", 2.0),
        Copy(SITE, 3, last, (Use("arg1"), Use("arg0")), last, 0),
        BodyReplace(f"{SITE}'3", 0, "arith.addf"),
        BodyScale(f"{SITE}'3", THREE, 2.0),
        BodySwap(SITE, 0),
    ]
    first, second = edited(*edits)
    close(first, np.maximum(6 * (Y - X), np.exp(X)) / np.exp(X))
    close(second, np.maximum(12 * (X + Y), np.exp(Y)) / np.exp(Y) + Y)


# c[i] = sum_j (x[i, j] * y[i, j]); m[i] = max_j x[i, j]
REDUCTIONS = """#in = affine_map<(d0, d1) -> (d0, d1)>
#out = affine_map<(d0, d1) -> (d0)>
func.func @step(%x: tensor<4x37xf32>, %y: tensor<4x37xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#in, #in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x, %y : tensor<4x37xf32>, tensor<4x37xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %a = arith.mulf %p, %q : f32
    %b = arith.addf %o, %a : f32
    linalg.yield %b : f32
  } -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x37xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %b = arith.maximumf %o, %p : f32
    linalg.yield %b : f32
  } -> tensor<4xf32>
  return %r, %m : tensor<4xf32>, tensor<4xf32>
}"""


def test_bodies_of_reductions():
    base, space = numbered(REDUCTIONS)
    x, y = floats(4, 37), floats(4, 37, seed=2)
    sum_, most = (op.site for op in space.ops if op.body)

    def got(*edits: Edit) -> list[np.ndarray]:
        return edited(*edits, base=base, space=space, given=[x, y])

    close(got(BodyReplace(sum_, 0, "arith.addf"))[0], 1 + (x + y).sum(1))
    close(got(BodyReplace(sum_, 1, "arith.maximumf"))[0], np.maximum(1, (x * y).max(1)))
    close(got(BodyReplace(most, 0, "arith.minimumf"))[1], np.minimum(1, x.min(1)))
    close(got(BodyReplace(most, 0, "arith.addf"))[1], 1 + x.sum(1))
    close(got(BodyDrop(sum_, 0, "a1"))[0], 1 + y.sum(1))
    close(got(BodyDrop(sum_, 1, "a2"))[0], np.ones(4))
    close(got(BodyScale(sum_, "a0", 3.0))[0], 1 + (3 * x * y).sum(1))
    small = edited(BodyReplace(sum_, 1, "arith.mulf"), base=base, space=space, given=[1 + x / 50, 1 + y / 50])
    close(small[0], ((1 + x / 50) * (1 + y / 50)).prod(1))


def test_accumulators_are_left_alone():
    """What would make a sum depend on its order is refused."""
    _, space = numbered(REDUCTIONS)
    sum_, most = (op.site for op in space.ops if op.body)
    assert not BodyReplace(sum_, 1, "arith.subf").applies(space)
    assert not BodyScale(sum_, "a2", 2.0).applies(space) and not BodyScale(sum_, "b1", 2.0).applies(space)
    assert not BodyDrop(sum_, 0, "a2").applies(space) and not BodyDrop(sum_, 1, "b0").applies(space)
    assert not BodySwap(sum_, 0, 1).applies(space) and not BodySwap(most, 0).applies(space)


def test_body_that_looks_values_up_is_left_alone():
    """What keeps an index within bounds may not be edited away."""
    _, space = numbered("""#id = affine_map<(d0) -> (d0)>
func.func @step(%table: tensor<5xf32>, %i: tensor<4xi32>) -> tensor<4xf32> {
  %most = arith.constant 4 : i32
  %least = arith.constant 0 : i32
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%i : tensor<4xi32>) outs(%e : tensor<4xf32>) {
  ^bb0(%p: i32, %o: f32):
    %a = arith.minsi %p, %most : i32
    %b = arith.maxsi %a, %least : i32
    %c = arith.index_cast %b : i32 to index
    %v = tensor.extract %table[%c] : tensor<5xf32>
    %n = arith.negf %v : f32
    linalg.yield %n : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}""")
    site = space.ops[-1].site
    assert len(space.by_site[site].body) == 6
    for edit in (BodyDrop(site, 0, "a0"), BodyReplace(site, 1, "arith.addi"), BodyScale(site, "b3", 2.0)):
        assert not edit.applies(space)
    for kind in ("body_drop", "body_swap", "body_replace", "body_scale"):
        assert edit_class(kind).draw(space, random.Random(0)) is None

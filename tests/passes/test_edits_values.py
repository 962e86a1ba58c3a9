"""Edits of values on small steps, compiled and run, against NumPy's computation of what their words say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_steps import MLP, compiled, floats, mlp_reference, numbered, run

from mlir_passes.edits import Edit, Use
from mlir_passes.edits.cast import Cast
from mlir_passes.edits.delete import Delete
from mlir_passes.edits.move import Move
from mlir_passes.edits.replace import Replace
from mlir_passes.edits.rewire import Rewire
from mlir_passes.edits.scale import Scale
from mlir_passes.edits.shrink import Shrink
from mlir_passes.edits.skip import Skip
from mlir_passes.edits.swap import Swap
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.pipeline import apply_genome
from mlir_passes.space import Space, dangling

# op0 is the storage; op1 = exp x, op2 = op1 + y, op3 = tanh op2, op4 = op3 * op1, op5 = op4 - x
CHAIN = """func.func @step(%x: tensor<6xf32>, %y: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %e = tensor.empty() : tensor<6xf32>
  %a = linalg.exp ins(%x : tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %b = linalg.add ins(%a, %y : tensor<6xf32>, tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %c = linalg.tanh ins(%b : tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %d = linalg.mul ins(%c, %a : tensor<6xf32>, tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %f = linalg.sub ins(%d, %x : tensor<6xf32>, tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  return %f, %b : tensor<6xf32>, tensor<6xf32>
}"""
BASE, SPACE = numbered(CHAIN)
X, Y = floats(6), floats(6, seed=1)
A = np.exp(X)


def edited(*edits: Edit, base: str = BASE, space: Space = SPACE, given: Sequence[Any] = (X, Y)) -> list[np.ndarray]:
    """The results of a variant that the space allows; applied twice, it is the same program."""
    assert dangling(space, edits) == []
    variant = apply_genome(base, edits)
    assert apply_genome(base, edits).fingerprint == variant.fingerprint
    return run(variant.text, *given)


def close(got: Sequence[np.ndarray], *wanted: Any) -> None:
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)


def after(a: Any, b: Any, c: Any) -> list[Any]:
    """What the step gives where op1, op2 and op3 gave a, b and c."""
    return [c * a - X, b]


def test_scaled_value_reaches_all_readers():
    a = 2.5 * A
    close(edited(Scale("op1#0", 2.5)), *after(a, a + Y, np.tanh(a + Y)))


def test_scaled_argument_reaches_all_readers():
    a = np.exp(-0.5 * X)
    close(edited(Scale("arg0", -0.5)), np.tanh(a + Y) * a + 0.5 * X, a + Y)


def test_value_scaled_for_one_reader_is_as_it_was_for_the_others():
    close(edited(Scale("op1#0", 0.25, "op4", 1)), *after(0.25 * A, A + Y, np.tanh(A + Y)))


def test_scale_by_zero_leaves_nothing():
    close(edited(Scale("op4#0", 0.0)), -X, A + Y)


def test_factors_of_one_value_multiply():
    a = 3 * A
    close(edited(Scale("op1#0", 2.0), Scale("op1#0", 1.5)), *after(a, a + Y, np.tanh(a + Y)))


def test_factor_is_gone_with_its_op():
    close(edited(Scale("op1#0", 2.0), Delete("op1", (Use("arg1"),))), *after(Y, 2 * Y, np.tanh(2 * Y)))
    with pytest.raises(EditDoesNotApply, match="no op at op1"):
        apply_genome(BASE, [Delete("op1", (Use("arg1"),)), Scale("op1#0", 2.0)])
    assert dangling(SPACE, [Delete("op1", (Use("arg1"),)), Scale("op1#0", 2.0)]) == [1]


def test_rounded_value_is_nearest_number_of_the_type():
    space = numbered_with(CHAIN, ("f32", "f16"))
    a = A.astype(np.float16).astype(np.float32)
    got = edited(Cast("op1#0", "f16"), space=space)
    close(got, *after(a, a + Y, np.tanh(a + Y)))
    assert np.any(np.abs(got[1] - (A + Y)) > 1e-5)  # so rounding can be told from none
    # bf16 is f32 without its lower half; ties do not occur in these numbers
    bits = A.view(np.uint32)
    b = ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    close(edited(Cast("op1#0", "bf16"), space=numbered_with(CHAIN, ("f32", "bf16"))), *after(b, b + Y, np.tanh(b + Y)))


def test_value_is_rounded_only_as_the_numerics_rule_permits():
    assert not Cast("op1#0", "f16").applies(SPACE)
    assert not Cast("arg0", "f16").applies(numbered_with(CHAIN, ("f32", "f16")))


def test_rounded_activation_takes_half_the_memory():
    """A value of 16 KiB that is read by a sum and by an elementwise op."""
    text = """func.func @step(%x: tensor<64x64xf32>) -> (tensor<f32>, tensor<64x64xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %s = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%z : f32) outs(%s : tensor<f32>) -> tensor<f32>
  %t = linalg.fill ins(%z : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %a = linalg.matmul ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>)
      outs(%t : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
      iterator_types = ["reduction", "reduction"]} ins(%a : tensor<64x64xf32>) outs(%f : tensor<f32>) {
  ^bb0(%p: f32, %acc: f32):
    %m = arith.addf %acc, %p : f32
    linalg.yield %m : f32
  } -> tensor<f32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%r, %a : tensor<f32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    linalg.yield %m : f32
  } -> tensor<64x64xf32>
  return %r, %b : tensor<f32>, tensor<64x64xf32>
}"""
    base, space = numbered(text)
    product = next(op for op in space.ops if op.name == "linalg.matmul").results[0]
    x = floats(64, 64)
    space = numbered_with(text, ("f32", "f16"))
    edit = Cast(product, "f16")
    peaks = [compiled(apply_genome(base, e).text, 0, 1).plan.peak_bytes for e in ([], [edit])]
    assert peaks[0] - peaks[1] == 64 * 64 * 2
    got = edited(edit, base=base, space=space, given=[x])
    exact = (x.astype(np.float64) @ x).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(got[0], exact.sum(), rtol=2e-3)
    np.testing.assert_allclose(got[1], got[0] * exact, rtol=2e-3, atol=1e-3)


def numbered_with(text: str, storage: tuple[str, ...]) -> Space:
    return replace(numbered(text)[1], storage=storage)


def test_skipped_value_is_its_ancestor_for_all_readers():
    close(edited(Skip("op3#0", Use("arg0"))), *after(A, A + Y, X))
    close(edited(Skip("op4#0", Use("op1#0"))), A - X, A + Y)


def test_skip_needs_an_ancestor_that_is_far_enough():
    assert not Skip("op2#0", Use("op1#0")).applies(SPACE)  # one addition: that is a deletion
    assert not Skip("op1#0", Use("arg1")).applies(SPACE)  # not computed from it
    assert not Skip("op1#0", Use("op4#0")).applies(SPACE)  # computed from op1


def test_frozen_parameter_is_its_argument():
    base, space = numbered(MLP, 2)
    w1, w2, x, t = floats(3, 4), floats(4, 2), floats(5, 3), floats(5, 2)
    new = space.returns[0]
    got = edited(Skip(new, Use("arg0")), base=base, space=space, given=[w1, w2, x, t])
    _, exact, loss = mlp_reference(w1, w2, x, t)
    close(got, w1, exact, loss)


def test_learning_rate_is_scaled_by_its_gradient():
    base, space = numbered(MLP, 2)
    w1, w2, x, t = floats(3, 4), floats(4, 2), floats(5, 3), floats(5, 2)
    gradient = next(op.results[0] for op in space.ops if op.name == "linalg.matmul" and op.results[0] in updates(space))
    assert space.types[gradient] in (space.types["arg0"], space.types["arg1"])
    got = edited(Scale(gradient, 4.0), base=base, space=space, given=[w1, w2, x, t])
    exact1, exact2, loss = mlp_reference(w1, w2, x, t)
    if space.types[gradient] == space.types["arg0"]:
        exact1 = w1 + 4 * (exact1 - w1)
    else:
        exact2 = w2 + 4 * (exact2 - w2)
    close(got, exact1, exact2, loss)


def updates(space: Space) -> set[str]:
    return {r for p in space.parameters for site in p.update for r in space.by_site[site].results}


def test_swapped_values_change_readers_behind_both():
    # op3 and op4 come behind op2; op2 itself still reads op1
    close(edited(Swap("op1#0", "op2#0")), np.tanh(A) * (A + Y) - X, A)
    close(edited(Swap("arg0", "op4#0")), X - np.tanh(A + Y) * A, A + Y)


def test_swapping_twice_changes_nothing():
    base = apply_genome(BASE, []).fingerprint
    assert apply_genome(BASE, [Swap("op1#0", "op2#0")] * 2).fingerprint == base


def test_op_moved_to_the_back_leaves_another_value_where_it_was():
    # op3 is done before op5: op4 reads y instead
    close(edited(Move("op3", "op5", (), Use("arg1"))), Y * A - X, A + Y)
    # op2's reader op3 is in front of the new place, the result of the step behind it
    close(edited(Move("op2", "op4", (), Use("op1#0"))), np.tanh(A) * A - X, A + Y)


def test_op_moved_to_the_front_reads_other_values():
    close(edited(Move("op3", "op2", ((0, Use("arg1")),))), *after(A, A + Y, np.tanh(Y)))
    close(edited(Move("op4", "op1", ((0, Use("arg0")), (1, Use("arg1"))))), X * Y - X, A + Y)


def test_moved_op_takes_its_factor_along():
    moved = Move("op3", "op2", ((0, Use("arg1")),))
    close(edited(Scale("op3#0", 2.0), moved), *after(A, A + Y, 2 * np.tanh(Y)))
    close(edited(Scale("op2#0", 2.0), Move("op2", "op4", (), Use("arg1"))), np.tanh(Y) * A - X, 2 * (A + Y))


def test_move_without_what_it_needs_is_refused():
    assert not Move("op3", "op2").applies(SPACE)  # op2 is not there yet
    assert not Move("op3", "op5").applies(SPACE)  # and op4 would read nothing
    assert not Move("op3", "op3", (), Use("arg1")).applies(SPACE)
    with pytest.raises(EditDoesNotApply, match="op4#0 does not dominate"):
        apply_genome(BASE, [Move("op3", "op2", ((0, Use("op4#0")),))])


def test_replaced_op_is_computed_as_another():
    close(edited(Replace("op3", "op1", 5, (Use("op2#0"),))), *after(A, A + Y, np.exp(A + Y)))
    close(edited(Replace("op1", "op4", 5, (Use("arg0"), Use("arg1")))), *after(X * Y, X * Y + Y, np.tanh(X * Y + Y)))


def test_edits_of_the_replacing_op():
    edits = [Replace("op3", "op1", 5, (Use("op2#0"),)), Rewire("op1'5", 0, Use("arg1")), Scale("op1'5#0", 2.0)]
    close(edited(*edits), *after(A, A + Y, 2 * np.exp(Y)))
    assert dangling(SPACE, edits[1:]) == [0, 1]
    assert dangling(SPACE, [edits[0], edits[0]]) == [1]


def test_replacing_op_of_another_shape_is_made_to_fit():
    text = """func.func @step(%x: tensor<4xf32>, %y: tensor<2xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %h = tensor.empty() : tensor<2xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.tanh ins(%y : tensor<2xf32>) outs(%h : tensor<2xf32>) -> tensor<2xf32>
  return %a, %b : tensor<4xf32>, tensor<2xf32>
}"""
    base, space = numbered(text)
    exp, tanh = (op.site for op in space.ops if op.name.startswith("linalg."))
    x, y = floats(4), floats(2)
    edit = Replace(exp, tanh, 1, (Use("arg1"),), "pad", 1.0)
    got = edited(edit, base=base, space=space, given=[x, y])
    close(got, [1, *np.tanh(y), 1], np.tanh(y))


SUMS = """#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @step(%x: tensor<3x7xf32>, %w: tensor<7x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>, tensor<3xf32>) {
  %z = arith.constant 0.0 : f32
  %low = arith.constant -1.0e+30 : f32
  %e = tensor.empty() : tensor<3x5xf32>
  %e3 = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %m = linalg.matmul ins(%x, %w : tensor<3x7xf32>, tensor<7x5xf32>) outs(%f : tensor<3x5xf32>) -> tensor<3x5xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<3x7xf32>, tensor<7x5xf32>) outs(%f : tensor<3x5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.subf %p, %q : f32
    %t = arith.mulf %s, %s : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<3x5xf32>
  %f3 = linalg.fill ins(%low : f32) outs(%e3 : tensor<3xf32>) -> tensor<3xf32>
  %most = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%m : tensor<3x5xf32>) outs(%f3 : tensor<3xf32>) {
  ^bb0(%p: f32, %o: f32):
    %s = arith.maximumf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<3xf32>
  return %m, %g, %most : tensor<3x5xf32>, tensor<3x5xf32>, tensor<3xf32>
}"""


@pytest.mark.parametrize("part", [slice(0, 7, 2), slice(1, 7, 2), slice(2, 5), slice(6, 7), slice(1, 7, 3)])
@pytest.mark.parametrize("rescaled", [False, True])
def test_shrunk_contraction_sums_over_a_part(part: slice, rescaled: bool):
    base, space = numbered(SUMS)
    x, w = floats(3, 7), floats(7, 5)
    count = len(range(*part.indices(7)))
    run_over = 2, part.start, count, part.step or 1, rescaled
    named = next(op.site for op in space.ops if op.name == "linalg.matmul")
    generic = next(op.site for op in space.ops if len(op.body) == 4)
    got = edited(Shrink(named, *run_over), Shrink(generic, *run_over), base=base, space=space, given=[x, w])
    factor = 7 / count if rescaled else 1
    product = factor * (x[:, part] @ w[part])
    squares = factor * ((x[:, part, None] - w[None, part]) ** 2).sum(1)
    close(got, product, squares, product.max(1))


def test_shrunk_maximum_looks_at_a_part():
    base, space = numbered(SUMS)
    x, w = floats(3, 7), floats(7, 5)
    site = space.by_site[space.returns[2].partition("#")[0]].site
    got = edited(Shrink(site, 1, 1, 2, 2, False), base=base, space=space, given=[x, w])
    np.testing.assert_allclose(got[2], (x @ w)[:, 1:5:2].max(1), rtol=1e-5)


def test_shrunk_twice_is_a_part_of_a_part():
    base, space = numbered(SUMS)
    x, w = floats(3, 7), floats(7, 5)
    named = next(op.site for op in space.ops if op.name == "linalg.matmul")
    edits = [Shrink(named, 2, 1, 3, 2, False), Shrink(named, 2, 0, 2, 2, False)]  # 1 3 5, of these the 1st and 3rd
    close(edited(*edits, base=base, space=space, given=[x, w])[:1], x[:, [1, 5]] @ w[[1, 5]])
    assert dangling(space, [edits[0], Shrink(named, 2, 0, 3, 1, False)]) == [1]  # 3 loops are all there are


CONVOLUTIONS = """func.func @step(%x: tensor<2x9x8x3xf32>, %w: tensor<3x3x3x4xf32>, %v: tensor<3x3x3xf32>)
    -> (tensor<2x4x3x4xf32>, tensor<2x4x3x3xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4x3x4xf32>
  %d = tensor.empty() : tensor<2x4x3x3xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x4x3x4xf32>) -> tensor<2x4x3x4xf32>
  %g = linalg.fill ins(%z : f32) outs(%d : tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %a = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
      ins(%x, %w : tensor<2x9x8x3xf32>, tensor<3x3x3x4xf32>) outs(%f : tensor<2x4x3x4xf32>) -> tensor<2x4x3x4xf32>
  %b = linalg.depthwise_conv_2d_nhwc_hwc {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
      ins(%x, %v : tensor<2x9x8x3xf32>, tensor<3x3x3xf32>) outs(%g : tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  return %a, %b : tensor<2x4x3x4xf32>, tensor<2x4x3x3xf32>
}"""


def windows(x: np.ndarray) -> np.ndarray:
    """(image, row, column, row in window, column in window, channel) of 3x3 windows two apart."""
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2].transpose(0, 1, 2, 4, 5, 3)


@pytest.mark.parametrize(
    ("loop", "rows", "columns", "channels"),
    [
        (4, slice(0, 2), slice(None), slice(None)),
        (4, slice(2, 3), slice(None), slice(None)),
        (5, slice(None), slice(1, 3), slice(None)),
        (6, slice(None), slice(None), slice(0, 3, 2)),
        (6, slice(None), slice(None), slice(1, 2)),
    ],
)
def test_shrunk_convolution_runs_over_a_part_of_window_or_channels(
    loop: int, rows: slice, columns: slice, channels: slice
):
    base, space = numbered(CONVOLUTIONS)
    x, w, v = floats(2, 9, 8, 3), floats(3, 3, 3, 4), floats(3, 3, 3, seed=3)
    part = [rows, columns, channels][loop - 4]
    run_over = part.start, len(range(*part.indices(3))), part.step or 1, False
    conv, depthwise = (op for op in space.ops if "conv" in op.name)
    edits: list[Edit] = [Shrink(conv.site, loop, *run_over)]
    weights, small = np.zeros_like(w), np.zeros_like(v)
    weights[rows, columns, channels] = w[rows, columns, channels]
    small[rows, columns] = v[rows, columns]
    if loop < 6:
        edits.append(Shrink(depthwise.site, loop, *run_over))
    got = edited(*edits, base=base, space=space, given=[x, w, v])
    close(got[:1], np.einsum("nyxhwc,hwcf->nyxf", windows(x), weights))
    if loop < 6:
        close(got[1:], np.einsum("nyxhwc,hwc->nyxc", windows(x), small))


def test_window_of_a_convolution_may_not_have_gaps():
    base, space = numbered(CONVOLUTIONS)
    conv = next(op.site for op in space.ops if "conv" in op.name)
    edit = Shrink(conv, 4, 0, 2, 2, False)
    assert not edit.applies(space)
    with pytest.raises(EditDoesNotApply, match=f"loop 4 of {conv} cannot run over"):
        apply_genome(base, [edit])
    assert not Shrink(conv, 3, 0, 2, 1, False).applies(space)  # a parallel loop


def test_generic_convolution_that_reads_backwards_is_shrunk_by_its_map():
    """out[i] = sum_k x[i - k + 3] w[k], shrunk to k = 1, 2."""
    text = """#x = affine_map<(d0, d1) -> (d0 - d1 + 3)>
func.func @step(%x: tensor<8xf32>, %w: tensor<4xf32>) -> tensor<5xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %g = linalg.generic {indexing_maps = [#x, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<8xf32>, tensor<4xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.mulf %p, %q : f32
    %t = arith.addf %o, %s : f32
    linalg.yield %t : f32
  } -> tensor<5xf32>
  return %g : tensor<5xf32>
}"""
    base, space = numbered(text)
    x, w = floats(8), floats(4)
    site = next(op.site for op in space.ops if op.body)
    got = edited(Shrink(site, 1, 1, 2, 1, False), base=base, space=space, given=[x, w])
    close(got, [sum(x[i - k + 3] * w[k] for k in (1, 2)) for i in range(5)])


def test_later_edit_of_a_shrunk_op_sees_its_new_operands():
    base, space = numbered(SUMS)
    x, w = floats(3, 7), floats(7, 5)
    named = next(op.site for op in space.ops if op.name == "linalg.matmul")
    edits = [Shrink(named, 2, 0, 3, 1, False), Rewire(named, 0, Use("arg0"))]  # the middle 3 of 7 columns
    got = edited(*edits, base=base, space=space, given=[x, w])
    close(got[:1], x[:, 2:5] @ w[:3])

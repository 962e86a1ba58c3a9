"""Any value fits any place: the resizing of `Use` against a NumPy model of what its docstring says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_steps import numbered, run

from mlir_passes.edits import Use
from mlir_passes.edits.base import FILLS, RESIZE
from mlir_passes.edits.rewire import Rewire
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.pipeline import apply_genome

SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)
BY_NAME = {"f32": np.float32, "i32": np.int32}


def model(value: np.ndarray, shape: tuple[int, ...], how: str, fill: float) -> np.ndarray:
    """Centred crop and pad; missing leading dims repeat; extra leading dims keep their middle element."""
    if how == "reshape" and value.size == math.prod(shape):
        return value.reshape(shape)
    while value.ndim > len(shape):  # from the front, as the ranks are aligned at the back
        value = value[(value.shape[0] - 1) // 2]
    if value.ndim < len(shape):
        value = np.broadcast_to(value, (*shape[: len(shape) - value.ndim], *value.shape))
    for axis, want in enumerate(shape):
        have = value.shape[axis]
        if have == 1 and how == "broadcast":
            value = np.repeat(value, want, axis)
        elif have > want:
            value = np.take(value, range((have - want) // 2, (have - want) // 2 + want), axis)
        elif have < want:
            before = (want - have) // 2
            widths = [(0, 0)] * value.ndim
            widths[axis] = (before, want - have - before)
            value = np.pad(value, widths, constant_values=fill)
    return value


def spelled(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


def resized(value: np.ndarray, shape: tuple[int, ...], element: str, how: str, fill: float) -> np.ndarray:
    """`value` put where a tensor of `shape` was read, by an edit, compiled and run."""
    wanted, given_type = spelled(shape, element), spelled(value.shape, element)
    loops = ", ".join(f"d{i}" for i in range(len(shape)))
    identity = f"affine_map<({loops}) -> ({loops})>"
    add = "arith.addf" if element == "f32" else "arith.addi"
    text = f"""func.func @step(%x: {given_type}, %y: {wanted}) -> {wanted} {{
  %e = tensor.empty() : {wanted}
  %r = linalg.generic {{indexing_maps = [{identity}, {identity}],
      iterator_types = [{", ".join(['"parallel"'] * len(shape))}]}} ins(%y : {wanted}) outs(%e : {wanted}) {{
  ^bb0(%p: {element}, %o: {element}):
    %s = {add} %p, %p : {element}
    linalg.yield %s : {element}
  }} -> {wanted}
  return %r : {wanted}
}}"""
    base, space = numbered(text)
    readers = [(op.site, slot) for op in space.ops for slot in op.slots if op.operands[slot] == "arg1"]
    assert len(readers) == 1
    site, slot = readers[0]
    reads = space.types["arg1"].shape
    assert reads == shape
    variant = apply_genome(base, [Rewire(site, slot, Use("arg0", how, fill))])
    (got,) = run(variant.text, value, np.zeros(shape, BY_NAME[element]))
    return got


@settings(max_examples=40, deadline=None, derandomize=True)
@given(SHAPES, SHAPES, st.sampled_from(["f32", "i32"]), st.sampled_from(RESIZE), st.sampled_from(FILLS))
@example((5, 4), (2, 2), "f32", "pad", 0.0)
@example((3,), (4, 5), "f32", "pad", 1.0)
@example((), (2, 3), "i32", "pad", 1.0)
@example((2, 3, 4, 5), (), "f32", "reshape", 0.0)
@example((1, 5, 1), (4, 2, 3), "f32", "broadcast", 1.0)
@example((4, 3), (2, 6), "i32", "reshape", 0.0)
@example((5, 1, 4, 3), (2, 5), "i32", "broadcast", 1.0)
def test_resizing_is_what_the_use_says(
    have: tuple[int, ...], want: tuple[int, ...], element: str, how: str, fill: float
):
    value = (np.arange(math.prod(have)) + 2).reshape(have).astype(BY_NAME[element])
    got = resized(value, want, element, how, fill)
    np.testing.assert_array_equal(got, 2 * model(value, want, how, fill))


def test_element_types_are_never_converted():
    text = """func.func @step(%x: tensor<3xi32>, %y: tensor<3xf32>, %z: tensor<3xf32>) -> tensor<3xf32> {
  %e = tensor.empty() : tensor<3xf32>
  %r = linalg.add ins(%y, %z : tensor<3xf32>, tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""
    base, space = numbered(text)
    site = next(op.site for op in space.ops if op.name == "linalg.add")
    edit = Rewire(site, 0, Use("arg0"))
    with pytest.raises(EditDoesNotApply, match="arg0 of type tensor<3xi32> cannot become tensor<3xf32>"):
        apply_genome(base, [edit])
    assert not edit.applies(space)


def test_value_that_does_not_dominate_is_refused():
    text = """func.func @step(%x: tensor<3xf32>) -> tensor<3xf32> {
  %e = tensor.empty() : tensor<3xf32>
  %a = linalg.exp ins(%x : tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %b = linalg.log ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  return %b : tensor<3xf32>
}"""
    base, space = numbered(text)
    first, second = (op.site for op in space.ops if op.name in ("linalg.exp", "linalg.log"))
    with pytest.raises(EditDoesNotApply, match=f"{second}#0 does not dominate the place of its new use"):
        apply_genome(base, [Rewire(first, 0, Use(f"{second}#0"))])
    with pytest.raises(EditDoesNotApply, match="no value op99#0"):
        apply_genome(base, [Rewire(first, 0, Use("op99#0"))])

"""How a step is cut: what is one kernel, what costs none, and costs by hand."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from small_steps import MLP, compiled, cut, floats, kinds, run, run_program, step_of

from mlir_passes.graph import KernelText
from mlir_passes.ir_tools import new_context, parse

ID = "affine_map<(i, j) -> (i, j)>"
EMPTY = "%e = tensor.empty() : tensor<3x5xf32>"


def generics(kernel: KernelText) -> int:
    return kernel.text.count("linalg.generic")


def product(result: str, a: str, b: str, m: int = 3, k: int = 4, n: int = 5) -> str:
    """%result = a b, of (m, k) and (k, n)."""
    out = f"tensor<{m}x{n}xf32>"
    return f"""%zero{result} = arith.constant 0.0 : f32
  %e{result} = tensor.empty() : {out}
  %f{result} = linalg.fill ins(%zero{result} : f32) outs(%e{result} : {out}) -> {out}
  %{result} = linalg.matmul ins({a}, {b} : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) outs(%f{result} : {out}) -> {out}
"""


def bias_relu(result: str, value: str) -> str:
    """%result = relu(value + bias) on (3, 5)."""
    return f"""%bz{result} = arith.constant 0.0 : f32
  %be{result} = tensor.empty() : tensor<3x5xf32>
  %{result} = linalg.generic {{indexing_maps = [{ID}, affine_map<(i, j) -> (j)>, {ID}],
      iterator_types = ["parallel", "parallel"]}} ins({value}, %bias : tensor<3x5xf32>, tensor<5xf32>)
      outs(%be{result} : tensor<3x5xf32>) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    %r = arith.maximumf %s, %bz{result} : f32
    linalg.yield %r : f32
  }} -> tensor<3x5xf32>
"""


AB = "%a: tensor<3x4xf32>, %b: tensor<4x5xf32>"


def test_contraction_with_bias_and_relu_is_one_kernel():
    graph = cut(step_of(product("c", "%a", "%b") + bias_relu("r", "%c"), f"{AB}, %bias: tensor<5xf32>", "%r"))
    assert kinds(graph) == ["contraction"]
    (kernel,) = graph.kernels
    assert (kernel.inputs, kernel.outputs) == (3, 1)
    assert kernel.flops == 2 * 3 * 4 * 5 + 2 * 3 * 5
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * (12 + 20 + 5), 4 * 15)


def test_matmul_costs_two_flops_a_term_and_each_operand_once():
    (kernel,) = cut(step_of(product("c", "%a", "%b"), AB, "%c")).kernels
    assert kernel.kind == "contraction"
    assert kernel.flops == 2 * 3 * 4 * 5
    assert (kernel.bytes_read, kernel.bytes_written) == (4 * (12 + 20), 4 * 15)


def test_contraction_whose_result_is_read_twice_writes_it_beside_its_epilogue():
    code = product("c", "%a", "%b") + bias_relu("r", "%c")
    text = step_of(code, f"{AB}, %bias: tensor<5xf32>", "%c, %r", "tensor<3x5xf32>, tensor<3x5xf32>")
    (kernel,) = cut(text).kernels
    assert (kernel.kind, kernel.inputs, kernel.outputs) == ("contraction", 3, 2)
    a, b, bias = floats(3, 4), floats(4, 5), floats(5)
    plain, epilogue = run(text, a, b, bias)
    np.testing.assert_allclose(plain, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(epilogue, np.maximum(plain + bias, 0))


def test_elementwise_producer_stays_out_of_the_contractions_loop():
    code = f"""%ea = tensor.empty() : tensor<3x4xf32>
  %x = linalg.exp ins(%a : tensor<3x4xf32>) outs(%ea : tensor<3x4xf32>) -> tensor<3x4xf32>
  {product("c", "%x", "%b")}"""
    text = step_of(code, AB, "%c")
    graph = cut(text)
    assert kinds(graph) == ["elementwise", "contraction"]
    assert "math.exp" not in graph.kernels[graph.calls[1].kernel].text
    a, b = floats(3, 4), floats(4, 5)
    np.testing.assert_allclose(run(text, a, b)[0], np.exp(a.astype(np.float64)) @ b, rtol=1e-5, atol=1e-5)


def test_elementwise_chain_is_one_kernel_with_costs_by_hand():
    code = f"""{EMPTY}
  %1 = linalg.exp ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %2 = linalg.mul ins(%1, %y : tensor<3x5xf32>, tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %3 = linalg.sub ins(%2, %x : tensor<3x5xf32>, tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>"""
    graph = cut(step_of(code, "%x: tensor<3x5xf32>, %y: tensor<3x5xf32>", "%3"))
    (kernel,) = graph.kernels
    assert kernel.kind == "elementwise" and generics(kernel) == 1
    assert kernel.flops == 3 * 15
    assert (kernel.bytes_read, kernel.bytes_written) == (2 * 60, 60)
    assert set(kernel.inplace) == {(0, 2), (1, 2)}


def test_transposed_operand_may_not_share_its_storage_with_the_result():
    code = """%e = tensor.empty() : tensor<4x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) permutation = [1, 0]
  %s = linalg.add ins(%t, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>"""
    text = step_of(code, "%x: tensor<4x4xf32>", "%s", "tensor<4x4xf32>")
    (kernel,) = cut(text).kernels
    assert kernel.inplace == ()
    x = floats(4, 4)
    program = compiled(text, 1, 0)
    np.testing.assert_array_equal(run_program(program, [x], [])[0], x.T + x)


def test_transposed_result_is_written_by_the_contraction_itself():
    code = f"""{product("c", "%a", "%b")}
  %et = tensor.empty() : tensor<5x3xf32>
  %t = linalg.transpose ins(%c : tensor<3x5xf32>) outs(%et : tensor<5x3xf32>) permutation = [1, 0]"""
    text = step_of(code, AB, "%t", "tensor<5x3xf32>")
    graph = cut(text)
    assert kinds(graph) == ["contraction"]
    a, b = floats(3, 4), floats(4, 5)
    np.testing.assert_allclose(run(text, a, b)[0], (a.astype(np.float64) @ b).T, rtol=1e-5, atol=1e-6)


def test_result_that_is_also_read_untransposed_keeps_its_layout():
    code = f"""{product("c", "%a", "%b")}
  %et = tensor.empty() : tensor<5x3xf32>
  %t = linalg.transpose ins(%c : tensor<3x5xf32>) outs(%et : tensor<5x3xf32>) permutation = [1, 0]"""
    text = step_of(code, AB, "%c, %t", "tensor<3x5xf32>, tensor<5x3xf32>")
    assert kinds(cut(text)) == ["contraction", "elementwise"]
    a, b = floats(3, 4), floats(4, 5)
    plain, transposed = run(text, a, b)
    np.testing.assert_allclose(plain, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(transposed, plain.T)


def test_transposed_result_of_rank_3_goes_to_the_right_places():
    """A permutation that is not its own inverse."""
    text = """func.func @step(%a: tensor<2x3x4xf32>, %b: tensor<2x4x5xf32>) -> tensor<5x2x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %c = linalg.batch_matmul ins(%a, %b : tensor<2x3x4xf32>, tensor<2x4x5xf32>)
      outs(%f : tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %et = tensor.empty() : tensor<5x2x3xf32>
  %t = linalg.transpose ins(%c : tensor<2x3x5xf32>) outs(%et : tensor<5x2x3xf32>) permutation = [2, 0, 1]
  return %t : tensor<5x2x3xf32>
}"""
    assert kinds(cut(text)) == ["contraction"]
    a, b = floats(2, 3, 4), floats(2, 4, 5)
    np.testing.assert_allclose(run(text, a, b)[0], (a.astype(np.float64) @ b).transpose(2, 0, 1), rtol=1e-5, atol=1e-6)


def test_equal_kernels_appear_once():
    text = step_of(
        product("c", "%a", "%b") + product("d", "%p", "%b"),
        f"{AB}, %p: tensor<3x4xf32>", "%c, %d", "tensor<3x5xf32>, tensor<3x5xf32>",
    )  # fmt: skip
    graph = cut(text)
    assert len(graph.calls) == 2 and len(graph.kernels) == 1
    assert len(compiled(text, 0, 3).objects) == 1
    a, b, p = floats(3, 4), floats(4, 5), floats(3, 4, seed=1)
    for got, left in zip(run(text, a, b, p), (a, p), strict=True):
        np.testing.assert_allclose(got, left.astype(np.float64) @ b, rtol=1e-5, atol=1e-6)


def test_reshapes_cost_no_kernel_and_keep_their_shape():
    code = f"""{EMPTY}
  %1 = linalg.exp ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %2 = tensor.collapse_shape %1 [[0, 1]] : tensor<3x5xf32> into tensor<15xf32>
  %3 = tensor.expand_shape %2 [[0, 1]] output_shape [5, 3] : tensor<15xf32> into tensor<5x3xf32>"""
    text = step_of(code, "%x: tensor<3x5xf32>", "%3", "tensor<5x3xf32>")
    assert kinds(cut(text)) == ["elementwise"]
    x = floats(3, 5)
    (got,) = run(text, x)
    assert got.shape == (5, 3)
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)).reshape(5, 3), rtol=1e-6)


def test_scalars_are_computed_where_they_are_used():
    code = f"""{EMPTY}
  %s = tensor.extract %n[] : tensor<f32>
  %t = arith.mulf %s, %s : f32
  %1 = linalg.generic {{indexing_maps = [{ID}, {ID}], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) {{
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %t : f32
    linalg.yield %m : f32
  }} -> tensor<3x5xf32>"""
    text = step_of(code, "%x: tensor<3x5xf32>, %n: tensor<f32>", "%1")
    assert kinds(cut(text)) == ["elementwise"]
    x = floats(3, 5)
    np.testing.assert_allclose(run(text, x, np.float32(3))[0], 9 * x, rtol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_scalar_of_a_value_is_read_after_the_kernel_that_makes_the_value(sign: int):
    scalar = "indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []"
    code = f"""%zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<f32>
  %eb = tensor.empty() : tensor<i1>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %sum = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>],
      iterator_types = ["reduction"]}} ins(%x : tensor<5xf32>) outs(%f : tensor<f32>) {{
  ^bb0(%p: f32, %acc: f32):
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  }} -> tensor<f32>
  %flag = linalg.generic {{{scalar}}} ins(%sum : tensor<f32>) outs(%eb : tensor<i1>) {{
  ^bb0(%p: f32, %o: i1):
    %c = arith.cmpf ogt, %p, %zero : f32
    linalg.yield %c : i1
  }} -> tensor<i1>
  %positive = tensor.extract %flag[] : tensor<i1>
  %1 = linalg.generic {{{scalar}}} ins(%sum : tensor<f32>) outs(%e : tensor<f32>) {{
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %two : f32
    %w = arith.select %positive, %m, %zero : f32
    linalg.yield %w : f32
  }} -> tensor<f32>"""
    x = sign * np.arange(1, 6, dtype=np.float32)
    got = run(step_of(code, "%x: tensor<5xf32>", "%1", "tensor<f32>"), x)[0]
    np.testing.assert_allclose(got, 30 if sign > 0 else 0)


def test_training_step_is_cut_into_its_contractions_their_epilogues_and_the_rest():
    graph = cut(MLP, n_state=2)
    count = Counter(kinds(graph))
    assert count["contraction"] == 5
    assert count["reduction"] == 1
    written = [graph.storage[o] for call in graph.calls for o in call.outputs]
    assert len(written) == len(set(written))  # every value is made once
    known = set(graph.args)
    for call in graph.calls:
        assert {graph.storage[i] for i in call.inputs} <= known
        known |= {graph.storage[o] for o in call.outputs}
    updates = [graph.kernels[c.kernel] for c in graph.calls if set(c.outputs) & set(graph.returns[:2])]
    assert [k.kind for k in updates] == ["contraction", "contraction"] and all(k.inplace for k in updates)


def test_kernels_hold_no_value_of_the_step():
    """A kernel is closed: one function, its arguments are its inputs, then its outputs."""
    for kernel in cut(MLP, n_state=2).kernels:
        signature = re.search(r"func.func @\w+\((.*?)\) \{", kernel.text)
        assert signature is not None and kernel.text.count("func.func") == 1
        assert signature[1].count("memref<") == kernel.inputs + kernel.outputs
        parse(kernel.text, new_context())


def test_reshape_of_a_fill_is_made_where_it_is_used():
    code = """
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<15xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<15xf32>) -> tensor<15xf32>
  %v = tensor.expand_shape %f [[0, 1]] output_shape [3, 5] : tensor<15xf32> into tensor<3x5xf32>
  %1 = tensor.insert_slice %x into %v[1, 1] [2, 2] [1, 1] : tensor<2x2xf32> into tensor<3x5xf32>
  %2 = tensor.extract_slice %v[0, 0] [2, 2] [1, 1] : tensor<3x5xf32> to tensor<2x2xf32>"""
    text = step_of(code, "%x: tensor<2x2xf32>", "%1, %2", "tensor<3x5xf32>, tensor<2x2xf32>")
    x = floats(2, 2)
    padded, ones = run(text, x)
    expected = np.ones((3, 5), np.float32)
    expected[1:3, 1:3] = x
    np.testing.assert_array_equal(padded, expected)
    np.testing.assert_array_equal(ones, np.ones((2, 2)))


@pytest.mark.parametrize("mask", ["made", "read"])
def test_mask_of_i1_is_made_and_read_by_the_contraction(mask: str):
    out = "tensor<8x16xi1>" if mask == "made" else "tensor<8x16xf32>"
    body = {
        "made": "%b = arith.cmpf ogt, %p, %zero : f32\n    linalg.yield %b : i1",
        "read": "%b = arith.select %m, %p, %zero : f32\n    linalg.yield %b : f32",
    }[mask]
    inputs, more, arguments = ("%c", "", "") if mask == "made" else ("%c, %mask", ", tensor<8x16xi1>", ", %m: i1")
    identity = "affine_map<(i, j) -> (i, j)>"
    maps = ", ".join([identity] * (2 if mask == "made" else 3))
    text = f"""func.func @step(%a: tensor<8x4xf32>, %w: tensor<4x16xf32>, %mask: tensor<8x16xi1>) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x16xf32>
  %o = tensor.empty() : {out}
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %c = linalg.matmul ins(%a, %w : tensor<8x4xf32>, tensor<4x16xf32>) outs(%f : tensor<8x16xf32>) -> tensor<8x16xf32>
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
      ins({inputs} : tensor<8x16xf32>{more}) outs(%o : {out}) {{
  ^bb0(%p: f32{arguments}, %q: {"i1" if mask == "made" else "f32"}):
    {body}
  }} -> {out}
  return %r : {out}
}}"""
    assert kinds(cut(text)) == ["contraction"]
    a, w, chosen = floats(8, 4), floats(4, 16), floats(8, 16) > 0
    (got,) = run(text, a, w, chosen)
    exact = a.astype(np.float64) @ w
    np.testing.assert_allclose(got, exact > 0 if mask == "made" else np.where(chosen, exact, 0), rtol=1e-5, atol=1e-6)

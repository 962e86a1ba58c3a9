"""What is said of a kernel is what happens to it."""

from __future__ import annotations

import pytest
from small_steps import MLP, compiled, step_of

from mlir_passes.describe import EMITTER, LOOPS, OPENBLAS, Description, describe, tile
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.kernels.nest import Nest, NotCovered, Phase, Reduction
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.lower_cpu import compile_choice
from mlir_passes.pipeline import kernel_text


def described(text: str, n_state: int = 0, n_batch: int = 1, choice: Choice = DEFAULT) -> list[Description]:
    """Of each call of a step; a kernel is made by the emitter exactly if it says so."""
    program, context = compiled(text, n_state, n_batch), new_context()
    found: list[Description] = []
    for call in program.plan.calls:
        kernel = kernel_text(program.kernels[call.kernel])
        found.append(describe(kernel, choice, context))
        try:
            compile_choice(kernel, "k", context, choice)
        except NotCovered:
            assert found[-1].made_by != OPENBLAS and (choice == BLAS or found[-1].made_by == LOOPS)
        else:
            assert found[-1].made_by == (OPENBLAS if choice == BLAS else EMITTER)
    return found


def test_an_mlp_step_in_words() -> None:
    found = described(MLP, 2, 2)
    work = [d.work for d in found]
    assert ("product", "max") in work  # relu of a product
    assert ("product", "compare, select") in work  # its gradient
    assert ("product", "mul, sub") in work  # an update
    assert any(w[-1].startswith("sum of ") and "mul" in w[-1] for w in work)  # the loss
    assert "5x4 sum 3" in [d.loops for d in found]
    assert all(d.made_by == EMITTER and d.phases and not d.why for d in found)


def test_what_computes_nothing_is_named_by_how_it_moves() -> None:
    pad = """%zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1, 0] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<3x5xf32> to tensor<4x7xf32>"""
    assert described(step_of(pad, "%x: tensor<3x5xf32>", "%p", "tensor<4x7xf32>"))[0].work == ("pad",)
    turn = """%e = tensor.empty() : tensor<5x3xf32>
  %t = linalg.transpose ins(%x : tensor<3x5xf32>) outs(%e : tensor<5x3xf32>) permutation = [1, 0]"""
    assert described(step_of(turn, "%x: tensor<3x5xf32>", "%t", "tensor<5x3xf32>"))[0].work == ("transpose",)


def test_plain_loops_say_why() -> None:
    bits = """%e = tensor.empty() : tensor<3x5xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %i = arith.fptosi %p : f32 to i32
    %n = math.ctpop %i : i32
    %s = arith.sitofp %n : i32 to f32
    linalg.yield %s : f32
  } -> tensor<3x5xf32>"""
    (found,) = described(step_of(bits, "%x: tensor<3x5xf32>", "%t"))
    assert found == Description(("convert, ctpop",), "3x5", LOOPS, why="math.ctpop on i32")


@pytest.mark.skipif(not blas.symbol(), reason="NumPy brings no OpenBLAS here")
def test_a_library_is_named_where_it_takes_the_kernel() -> None:
    product = """%zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %p = linalg.matmul ins(%x, %y : tensor<3x4xf32>, tensor<4x5xf32>) outs(%f : tensor<3x5xf32>) -> tensor<3x5xf32>"""
    (found,) = described(step_of(product, "%x: tensor<3x4xf32>, %y: tensor<4x5xf32>", "%p"), 0, 2, BLAS)
    assert (found.work, found.made_by, found.phases) == (("product",), OPENBLAS, ())
    assert all(d.made_by == EMITTER for d in described(MLP, 2, 2, BLAS) if len(d.work) > 1)


def test_a_tile_in_short() -> None:
    nest = Nest([64, 32, 16], phases=[Phase((0, 1, 2), (0,), ())], reductions=[Reduction((2,), 0, 0, "f32")])
    (phase,) = nest.phases
    assert tile(nest, phase, Schedule(1, 8, 2, ((0, 6),), pack=True)) == "6x2x8, packed"
    assert tile(nest, phase, Schedule(2, 8, 1, ((1, 4), (0, 2)))) == "4x2x1x8 along the sum"
    assert tile(nest, phase, Schedule(1, 8, 1, ((0, 4), (2, 8)))) == "4x1x8, 8 terms at once"
    assert tile(nest, phase, Schedule()) == "scalar"

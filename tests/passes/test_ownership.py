"""Results that are not made by a kernel of their own: arguments, constants, one value twice, swapped state."""

from __future__ import annotations

import numpy as np
from small_steps import compiled, cut, floats, run, run_program, step_of

EMPTY = "%e = tensor.empty() : tensor<3x5xf32>"


def test_returned_argument_constant_and_repeated_value_have_storage_of_their_own():
    code = f"""{EMPTY}
  %k = arith.constant dense<2.5> : tensor<3x5xf32>
  %1 = linalg.exp ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>"""
    four = ", ".join(["tensor<3x5xf32>"] * 4)
    text = step_of(code, "%x: tensor<3x5xf32>", "%x, %k, %1, %1", four)
    program = compiled(text, 0, 1)
    assert len(set(program.plan.metrics)) == 4 and not set(program.plan.metrics) & set(program.plan.batch)
    x = floats(3, 5)
    for got, exact in zip(run(text, x), (x, np.full((3, 5), 2.5), np.exp(x), np.exp(x)), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-6)


SWAP = step_of(
    "",
    "%p: tensor<3x5xf32>, %q: tensor<3x5xf32>, %x: tensor<3x5xf32>",
    "%q, %p, %p",
    ", ".join(["tensor<3x5xf32>"] * 3),
)


def test_swapped_state_is_swapped_at_every_step():
    program = compiled(SWAP, 2, 1)
    assert len(program.plan.metrics) == 1
    p, q = floats(3, 5), floats(3, 5, seed=1)
    for _ in range(3):
        new_p, new_q, metric = run_program(program, [p, q], [floats(3, 5)])
        np.testing.assert_array_equal(new_p, q)
        np.testing.assert_array_equal(new_q, p)
        np.testing.assert_array_equal(metric, p)
        p, q = new_p, new_q


def test_state_that_passes_through_needs_no_kernel():
    text = step_of("", "%p: tensor<3x5xf32>, %x: tensor<3x5xf32>", "%p")
    graph = cut(text, n_state=1)
    assert graph.calls == () and graph.returns == ("arg0",)
    p = floats(3, 5)
    np.testing.assert_array_equal(run_program(compiled(text, 1, 1), [p], [floats(3, 5)])[0], p)


def test_batch_returned_as_state_is_copied():
    text = step_of("", "%p: tensor<3x5xf32>, %x: tensor<3x5xf32>", "%x")
    x = floats(3, 5)
    np.testing.assert_array_equal(run_program(compiled(text, 1, 1), [floats(3, 5, seed=1)], [x])[0], x)

"""Steps drawn at random: cut in an order that respects every use, and right by emitters and by plain loops."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from exact_steps import assert_near
from random_steps import random_step
from small_steps import compiled, cut, run_program

from mlir_passes.graph import KernelGraph
from mlir_passes.kernels.nest import NotCovered
from mlir_passes.objects import ObjectCache


def assert_ordered(graph: KernelGraph) -> None:
    """Every call reads what is there, and every value is made once."""
    known = set(graph.args)
    for call in graph.calls:
        assert {graph.storage[i] for i in call.inputs} <= known
        outputs = {graph.storage[o] for o in call.outputs}
        assert not outputs & known and len(outputs) == len(call.outputs)
        known |= outputs
    assert {graph.storage[r] for r in graph.returns} <= known


@pytest.mark.parametrize("seed", range(15))
def test_a_random_step_is_right(seed: int):
    step, states, results = random_step(seed)
    text = step.text(results)
    assert_ordered(cut(text, states))
    program = compiled(text, states, len(step.arguments) - states)
    assert_near(run_program(program, step.arguments[:states], step.arguments[states:]), results)


@pytest.mark.parametrize("seed", range(100, 105))
def test_plain_loops_agree(seed: int):
    step, states, results = random_step(seed)
    with patch("mlir_passes.lower_cpu._by_emitter", side_effect=NotCovered("by loops")):
        program = compiled(step.text(results), states, len(step.arguments) - states, ObjectCache(None))
    found = run_program(program, step.arguments[:states], step.arguments[states:])
    for got, wanted in zip(found, results, strict=True):  # their tanh is not as near as the emitters' near 0
        np.testing.assert_allclose(got, wanted.exact, rtol=1e-5, atol=1e-5 + 10 * wanted.error.max())

"""Steps drawn at random: cut in an order that respects every use, and right by emitters and by plain loops."""

from __future__ import annotations

import random
from unittest.mock import patch

import numpy as np
import pytest
from exact_steps import assert_near
from random_steps import random_graph, random_step
from small_steps import compiled, cut, memory_cache, run_program

from mlir_passes.graph import KernelGraph
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.choice import Choice
from mlir_passes.kernels.families import candidates
from mlir_passes.kernels.nest import Nest, NotCovered
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.search import neighbours
from mlir_passes.lower_cpu import kernel_hash, machine, read_nest
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program, kernel_text


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


@pytest.mark.parametrize("seed", range(12))
def test_a_random_graph_of_many_ops_is_right(seed: int):
    step, results = random_graph(seed, 16)
    text = step.text(results)
    assert_ordered(cut(text))
    assert_near(run_program(compiled(text, 0, len(step.arguments)), [], step.arguments), results)


@pytest.mark.parametrize("seed", range(100, 105))
def test_plain_loops_agree(seed: int):
    step, states, results = random_step(seed)
    with patch("mlir_passes.lower_cpu._by_emitter", side_effect=NotCovered("by loops")):
        program = compiled(step.text(results), states, len(step.arguments) - states, ObjectCache(None))
    found = run_program(program, step.arguments[:states], step.arguments[states:])
    for got, wanted in zip(found, results, strict=True):  # their tanh is not as near as the emitters' near 0
        np.testing.assert_allclose(got, wanted.exact, rtol=1e-5, atol=1e-5 + 10 * wanted.error.max())


def drawn_choice(nest: Nest, rng: random.Random) -> Choice:
    """A candidate of each phase, or one a small step away from it."""
    found: list[Schedule] = []
    for phase, known in zip(nest.phases, candidates(nest, machine()), strict=True):
        chosen = rng.choice(known)
        found.append(rng.choice([chosen, *neighbours(chosen, nest, phase, machine())[:20]]))
    return Choice(schedules=tuple(found))


@pytest.mark.parametrize("seed", range(200, 206))
def test_a_random_step_by_random_schedules(seed: int):
    step, states, results = random_step(seed)
    rng, context, choices = random.Random(seed), new_context(), dict[str, Choice]()
    n_batch = len(step.arguments) - states
    for kernel in compiled(step.text(results), states, n_batch).kernels.values():
        text = kernel_text(kernel)
        try:
            choices[kernel_hash(text)] = drawn_choice(read_nest(text, context), rng)
        except NotCovered:
            continue
    text = canonical_text(step.text(results), "step")
    program = compile_program(text, "step", states, n_batch, memory_cache(), choices=choices)
    assert_near(run_program(program, step.arguments[:states], step.arguments[states:]), results)

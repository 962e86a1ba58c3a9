"""Choices of a kernel: keys, JSON, what does not fit, and small steps that all compute the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_steps import compiled, floats, run_program
from test_lowering import matmul_text

from mlir_passes.ir_tools import new_context
from mlir_passes.kernels import choice as choices
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.kernels.families import candidates, defaults
from mlir_passes.kernels.nest import Nest, NotCovered
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.search import neighbours
from mlir_passes.lower_cpu import compile_choice, compile_kernel, kernel_hash, kernel_key, machine, read_nest
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program, kernel_text
from mlir_passes.program import Kernel, Program

TEXT = matmul_text(13, 40, 19, "mk", "kn", epilogue=True)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    (found,) = compiled(TEXT, 0, 3).kernels.values()
    return found


@pytest.fixture(scope="module")
def nest(kernel: Kernel) -> Nest:
    return read_nest(kernel_text(kernel), new_context())


def program(kernel: Kernel, choice: Choice) -> Program:
    made = {kernel_hash(kernel_text(kernel)): choice}
    return compile_program(canonical_text(TEXT, "step"), "step", 0, 3, ObjectCache(None), choices=made)


def test_keys_of_different_choices_differ(kernel: Kernel, nest: Nest):
    text = kernel_text(kernel)
    assert kernel_key(text) == kernel_key(text, DEFAULT) == kernel.key
    others = [Choice(schedules=(s,)) for s in candidates(nest, machine())[0]]
    keys = {kernel_key(text, choice) for choice in (DEFAULT, BLAS, *others)}
    assert len(keys) == len(others) + 2


def test_a_choice_comes_back_from_json(nest: Nest):
    for choice in (DEFAULT, BLAS, *(Choice(schedules=(s,)) for s in candidates(nest, machine())[0])):
        assert Choice.from_json(json.loads(choice.text)) == choice


def test_an_unknown_implementation_is_refused():
    with pytest.raises(ValueError, match="unknown implementation 'mkl'; known: emitter, blas"):
        Choice.from_json({"implementation": "mkl", "schedules": []})


def test_a_program_is_made_as_chosen(kernel: Kernel, nest: Nest):
    other = next(s for s in candidates(nest, machine())[0] if s != defaults(nest, machine())[0])
    made = program(kernel, Choice(schedules=(other,)))
    assert made.kernels.keys().isdisjoint({kernel.key})
    assert made.objects[next(iter(made.kernels))] != compiled(TEXT, 0, 3).objects[kernel.key]


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(vector=7, lanes=8),
        Schedule(unroll=((0, 99),)),
        Schedule(order=(0, 0)),
        Schedule(unroll=((0, 2), (0, 3))),
    ],
)
def test_a_schedule_of_other_loops_is_not_covered_and_a_kernel_falls_back(kernel: Kernel, schedule: Schedule):
    text, wrong = kernel_text(kernel), Choice(schedules=(schedule,))
    with pytest.raises(NotCovered):
        compile_choice(text, "k", new_context(), wrong)
    assert compile_kernel(text, "k", new_context(), wrong) == compile_kernel(text, "k", new_context())


def test_small_steps_are_new_fit_and_compute_the_same(kernel: Kernel, nest: Nest):
    (start,), (phase,) = defaults(nest, machine()), nest.phases
    steps = neighbours(start, nest, phase, machine())
    assert start not in steps and len(set(steps)) == len(steps) > 5
    assert all(choices.fits(nest, phase, step) for step in steps)
    assert {step.columns for step in steps} != {start.columns}
    assert {step.order for step in steps} != {start.order}
    x, y, bias = floats(13, 19), floats(19, 40, seed=1), floats(40, seed=2)
    for step in steps[::3]:
        (got,) = run_program(program(kernel, Choice(schedules=(step,))), [], [x, y, bias])
        np.testing.assert_allclose(got, np.maximum(x @ y + bias, 0), rtol=1e-4, atol=1e-5)

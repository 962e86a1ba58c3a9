"""Random genomes through the whole pipeline against MLIR's own plain loops: no stage changes the meaning."""

from __future__ import annotations

import random

import numpy as np
import pytest
from frontend.execution import run_module
from small_steps import MLP, drawn, floats, memory_cache, numbered, run_program

from fitness.cpu import CpuRunner
from mlir_passes.pipeline import apply_genome, compile_program

STATE = [floats(3, 4), floats(4, 2, seed=1)]
BATCH = [floats(5, 3, seed=2), floats(5, 2, seed=3)]


@pytest.mark.parametrize("part", range(3))
def test_variant_computes_what_plain_loops_compute_in_the_planned_arena(part: int):
    base, space = numbered(MLP, 2)
    for seed in range(part, 24, 3):
        rng = random.Random(seed)
        variant = apply_genome(base, drawn(space, rng, rng.randint(1, 12)))
        program = compile_program(variant.text, "step", 2, 2, memory_cache())
        for got, plain in zip(
            run_program(program, STATE, BATCH), run_module(variant.text, "step", [*STATE, *BATCH]), strict=True
        ):
            np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")
            assert got.shape == plain.shape and got.dtype == plain.dtype
        assert CpuRunner(program, slack=4096).high_water(STATE, BATCH) == program.plan.peak_bytes, seed


def test_variants_differ_from_the_base():
    """The genomes above do change the program: few of them fall back to the base's fingerprint."""
    base, space = numbered(MLP, 2)
    known = apply_genome(base, []).fingerprint
    found = [apply_genome(base, drawn(space, random.Random(seed), 6)).fingerprint for seed in range(12)]
    assert found.count(known) <= 3
    assert len(set(found)) >= 9

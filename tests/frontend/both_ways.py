"""Runs a function of JAX as a step is run, and by plain loops, and holds both against what it should give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from execution import run_module

from fitness.cpu import CpuRunner
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from workloads.frontends.jax import lower

HERE = Path(__file__)


def lowered(function: Callable[..., Any], *arguments: Any) -> str:
    """The function as text, `@predict`, with one result a leaf."""
    shapes = [jax.ShapeDtypeStruct(np.shape(a), np.asarray(a).dtype) for a in arguments]
    return lower(lambda *a: tuple(jax.tree.leaves(function(*a))), shapes, "predict", HERE).text


def run_emitted(text: str, arguments: Any) -> list[np.ndarray]:
    """The results of `@predict` through kernels and plan, with guards around every buffer."""
    runner = CpuRunner(compile_text(text, "predict", 0, len(arguments), ObjectCache(None)), guard=True)
    for view, argument in zip(runner.batch, arguments, strict=True):
        view[...] = argument
    runner.run()
    return [np.array(metric) for metric in runner.metrics]


def check(function: Callable[..., Any], *arguments: Any, expected: Any = None, loops: bool = True, **tolerance: float):
    """Both ways give `expected`; by default what `jax.jit` gives."""
    wanted = jax.tree.leaves(jax.jit(function)(*arguments) if expected is None else expected)
    text = lowered(function, *arguments)
    ways = [run_emitted, lambda text, given: run_module(text, "predict", given)] if loops else [run_emitted]
    for way in ways:
        found = way(text, [np.asarray(a) for a in arguments])
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, map(np.asarray, wanted), strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, **{"rtol": 2e-5, "atol": 2e-5, **tolerance})

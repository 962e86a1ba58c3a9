"""Functions that have no vector expansion are the C library's, in kernels and in plain loops, and lose no digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitness.cpu import CpuRunner
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.nest import Nest, NotCovered
from mlir_passes.kernels.vector_math import EXPANSIONS, FUNCTIONS
from mlir_passes.lower_cpu import read_nest
from mlir_passes.objects import ObjectCache
from mlir_passes.partition import partition
from mlir_passes.pipeline import canonical_module, compile_text

TYPES = {"f32": np.float32, "f64": np.float64}
WITHIN = {"acos": (-1, 1), "acosh": (1, 9), "asin": (-1, 1), "atanh": (-0.99, 0.99), "log": (0, 9), "log10": (0, 9),
          "log2": (0, 9), "powf": (0, 9), "rsqrt": (0, 9)}  # fmt: skip
NUMPY = {"erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc), "rsqrt": lambda x: 1 / np.sqrt(x),
         "powf": np.power, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
         "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh}  # fmt: skip


def step(name: str, element: str, n: int, looped: bool) -> str:
    """@predict(x, y) -> the function of them; looped: by what only plain loops know, a loop in a body."""
    type_, two = f"tensor<{n}x{element}>", name in ("powf", "atan2")
    call = f"math.{name} %a{', %b' if two else ''} : {element}"
    once = f"""%zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %r = scf.for %i = %zero to %two step %one iter_args(%last = %a) -> ({element}) {{
      %new = {call}
      scf.yield %new : {element}
    }}"""
    return f"""
#id = affine_map<(d0) -> (d0)>
func.func @predict(%x: {type_}, %y: {type_}) -> {type_} {{
  %e = tensor.empty() : {type_}
  %f = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
      ins(%x, %y : {type_}, {type_}) outs(%e : {type_}) {{
  ^bb0(%a: {element}, %b: {element}, %o: {element}):
    {once if looped else f"%r = {call}"}
    linalg.yield %r : {element}
  }} -> {type_}
  return %f : {type_}
}}"""


@pytest.mark.parametrize("looped", [False, True], ids=["kernel", "loops"])
@pytest.mark.parametrize("name", sorted(n.partition(".")[2] for n in {*FUNCTIONS, *EXPANSIONS}))
def test_functions_lose_no_digits(name: str, looped: bool):
    low, high = WITHIN.get(name, (-3, 3))
    for element, dtype in TYPES.items():
        x = np.linspace(low, high, 23).astype(dtype)[1:-1]
        x[:3] = [1e-7, 1e-3, 0.1] if low <= 0 else [1 + 1e-6, 1.01, 1.1]
        y = np.linspace(-2, 3, 21).astype(dtype)
        runner = CpuRunner(
            compile_text(step(name, element, 21, looped), "predict", 0, 2, ObjectCache(None)), guard=True
        )
        runner.write_batch([x, y])
        runner.run()
        two = (x.astype(np.float64), y.astype(np.float64))[: 2 if name in ("powf", "atan2") else 1]
        want = NUMPY.get(name) or getattr(np, name)
        np.testing.assert_allclose(runner.metrics[0], want(*two), rtol=6 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("element", TYPES)
def test_only_the_loop_keeps_the_emitter_out(element: str):
    def nest(looped: bool) -> Nest:
        graph = partition(canonical_module(step("atan2", element, 21, looped), "predict"), "predict", 0)
        return read_nest(graph.kernels[0], new_context())

    assert nest(False).phases
    with pytest.raises(NotCovered):
        nest(True)

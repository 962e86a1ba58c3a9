"""Modules from a few lines of text, run through the whole pipeline; and the small MLP step that several tests share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from fitness.cpu import CpuRunner
from mlir_passes.canonical import canonicalise
from mlir_passes.edits import KINDS, Edit, edit_class
from mlir_passes.graph import KernelGraph
from mlir_passes.ir_tools import body, function, new_context, parse
from mlir_passes.objects import ObjectCache
from mlir_passes.partition import partition
from mlir_passes.pipeline import canonical_text, compile_program
from mlir_passes.program import Program
from mlir_passes.sites import describe, number
from mlir_passes.space import Space

# hidden = relu(x w1); y = hidden w2; loss = sum (y - t)^2 (without its factor); SGD on w1 and w2
MLP = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>
func.func @step(%w1: tensor<3x4xf32>, %w2: tensor<4x2xf32>, %x: tensor<5x3xf32>, %t: tensor<5x2xf32>)
    -> (tensor<3x4xf32>, tensor<4x2xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %rate = arith.constant 0.01 : f32
  %e54 = tensor.empty() : tensor<5x4xf32>
  %e52 = tensor.empty() : tensor<5x2xf32>
  %e42 = tensor.empty() : tensor<4x2xf32>
  %e34 = tensor.empty() : tensor<3x4xf32>
  %e45 = tensor.empty() : tensor<4x5xf32>
  %e24 = tensor.empty() : tensor<2x4xf32>
  %e35 = tensor.empty() : tensor<3x5xf32>
  %es = tensor.empty() : tensor<f32>
  %f54 = linalg.fill ins(%zero : f32) outs(%e54 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %f52 = linalg.fill ins(%zero : f32) outs(%e52 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %f42 = linalg.fill ins(%zero : f32) outs(%e42 : tensor<4x2xf32>) -> tensor<4x2xf32>
  %f34 = linalg.fill ins(%zero : f32) outs(%e34 : tensor<3x4xf32>) -> tensor<3x4xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<f32>) -> tensor<f32>
  %a = linalg.matmul ins(%x, %w1 : tensor<5x3xf32>, tensor<3x4xf32>) outs(%f54 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %h = linalg.max ins(%a, %f54 : tensor<5x4xf32>, tensor<5x4xf32>) outs(%e54 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<5x4xf32>, tensor<4x2xf32>) outs(%f52 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %d = linalg.sub ins(%y, %t : tensor<5x2xf32>, tensor<5x2xf32>) outs(%e52 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %loss = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction"]}
      ins(%d : tensor<5x2xf32>) outs(%fs : tensor<f32>) {
  ^bb0(%p: f32, %acc: f32):
    %sq = arith.mulf %p, %p : f32
    %sum = arith.addf %acc, %sq : f32
    linalg.yield %sum : f32
  } -> tensor<f32>
  %ht = linalg.transpose ins(%h : tensor<5x4xf32>) outs(%e45 : tensor<4x5xf32>) permutation = [1, 0]
  %g2 = linalg.matmul ins(%ht, %d : tensor<4x5xf32>, tensor<5x2xf32>) outs(%f42 : tensor<4x2xf32>) -> tensor<4x2xf32>
  %w2t = linalg.transpose ins(%w2 : tensor<4x2xf32>) outs(%e24 : tensor<2x4xf32>) permutation = [1, 0]
  %gh = linalg.matmul ins(%d, %w2t : tensor<5x2xf32>, tensor<2x4xf32>) outs(%f54 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %ga = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %gh : tensor<5x4xf32>, tensor<5x4xf32>) outs(%e54 : tensor<5x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %on = arith.cmpf ogt, %p, %zero : f32
    %g = arith.select %on, %q, %zero : f32
    linalg.yield %g : f32
  } -> tensor<5x4xf32>
  %xt = linalg.transpose ins(%x : tensor<5x3xf32>) outs(%e35 : tensor<3x5xf32>) permutation = [1, 0]
  %g1 = linalg.matmul ins(%xt, %ga : tensor<3x5xf32>, tensor<5x4xf32>) outs(%f34 : tensor<3x4xf32>) -> tensor<3x4xf32>
  %s1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g1 : tensor<3x4xf32>) outs(%e34 : tensor<3x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %rate : f32
    linalg.yield %m : f32
  } -> tensor<3x4xf32>
  %n1 = linalg.sub ins(%w1, %s1 : tensor<3x4xf32>, tensor<3x4xf32>) outs(%e34 : tensor<3x4xf32>) -> tensor<3x4xf32>
  %s2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g2 : tensor<4x2xf32>) outs(%e42 : tensor<4x2xf32>) {
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %rate : f32
    linalg.yield %m : f32
  } -> tensor<4x2xf32>
  %n2 = linalg.sub ins(%w2, %s2 : tensor<4x2xf32>, tensor<4x2xf32>) outs(%e42 : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %n1, %n2, %loss : tensor<3x4xf32>, tensor<4x2xf32>, tensor<f32>
}
"""


def mlp_reference(w1: Any, w2: Any, x: Any, t: Any) -> list[Any]:
    """One step of `MLP` in float64."""
    w1, w2, x, t = (np.asarray(v, np.float64) for v in (w1, w2, x, t))
    a = x @ w1
    h = np.maximum(a, 0)
    d = h @ w2 - t
    ga = np.where(a > 0, d @ w2.T, 0)
    return [w1 - 0.01 * x.T @ ga, w2 - 0.01 * h.T @ d, np.sum(d * d)]


def numbered(text: str, n_state: int = 0) -> tuple[str, Space]:
    """The base module of a step as text, and its space."""
    module = canonicalise(text, "step", new_context())
    block = body(function(module, "step"))
    number(block)
    return str(module), describe(block, n_state, [f"leaf{i}" for i in range(n_state)])


@cache
def memory_cache() -> ObjectCache:
    return ObjectCache(None)


def compiled(text: str, n_state: int = 0, n_batch: int = 0, cache: ObjectCache | None = None) -> Program:
    """The program of a frontend's step."""
    return compile_program(canonical_text(text, "step"), "step", n_state, n_batch, cache or memory_cache())


def run_program(program: Program, state: Sequence[Any], batch: Sequence[Any]) -> list[np.ndarray]:
    """New state leaves, then metrics, of one step; every byte the arena held before is poison."""
    runner = CpuRunner(program, guard=True)
    runner.poison(0xAA)
    runner.write_state(state)
    runner.write_batch(batch)
    runner.run()
    return [*runner.read_state(), *(m.copy() for m in runner.metrics)]


def run(text: str, *batch: Any, state: Sequence[Any] = ()) -> list[np.ndarray]:
    """The results of a step given as text."""
    return run_program(compiled(text, len(state), len(batch)), state, batch)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers."""
    return np.random.default_rng(seed + 100 * len(shape)).standard_normal(shape).astype(np.float32)


def drawn(space: Space, rng: random.Random, count: int, kinds: Sequence[str] = tuple(KINDS)) -> list[Edit]:
    """Edits drawn one after the other, as the search draws them."""
    edits: list[Edit] = []
    for _ in range(count):
        found = edit_class(rng.choice(kinds)).draw(space, rng)
        if found:
            edits.append(found)
            space = found.extend(space)
    return edits


def step_of(code: str, arguments: str, returned: str, results: str = "tensor<3x5xf32>") -> str:
    """A step of one shape, `tensor<3x5xf32>`, where `results` says nothing else."""
    return f"func.func @step({arguments}) -> ({results}) {{\n  {code}\n  return {returned} : {results}\n}}"


def cut(text: str, n_state: int = 0) -> KernelGraph:
    """The kernel graph of a frontend's step."""
    return partition(parse(canonical_text(text, "step"), new_context()), "step", n_state)


def kinds(graph: KernelGraph) -> list[str]:
    """The kind of each call."""
    return [graph.kernels[call.kernel].kind for call in graph.calls]

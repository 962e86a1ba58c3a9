"""What holds for every kind: drawn on the spaces of shipped workloads and of small steps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steps import MLP, drawn, memory_cache, numbered

from mlir_passes.canonical import write_base
from mlir_passes.edits import KINDS, Edit, edit_class, edit_from_json
from mlir_passes.errors import PassError
from mlir_passes.ir_tools import SITE, body, function, operations, site_of, tensor_type
from mlir_passes.pipeline import apply_genome, compile_module, parse_base
from mlir_passes.repair import Editor
from mlir_passes.sites import rewirable
from mlir_passes.space import GONE, Space, dangling
from workloads.prepare import prepare

WORKLOADS = ("digits", "twofc", "lenet")

# a small step with a convolution, a residual branch, a mean over the image, and an update
RESIDUAL = """#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#mean = affine_map<(d0, d1, d2, d3) -> (d0, d3)>
func.func @step(%w: tensor<3x3x2x2xf32>, %x: tensor<2x5x5x2xf32>) -> (tensor<3x3x2x2xf32>, tensor<2x2xf32>) {
  %z = arith.constant 0.0 : f32
  %c = arith.constant 0.04 : f32
  %e = tensor.empty() : tensor<2x5x5x2xf32>
  %m = tensor.empty() : tensor<2x2xf32>
  %k = tensor.empty() : tensor<3x3x2x2xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x5x5x2xf32>) -> tensor<2x5x5x2xf32>
  %fm = linalg.fill ins(%z : f32) outs(%m : tensor<2x2xf32>) -> tensor<2x2xf32>
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%i: index, %j: index, %l: index, %n: index):
    tensor.yield %z : f32
  } : tensor<2x5x5x2xf32> to tensor<2x7x7x2xf32>
  %a = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%p, %w : tensor<2x7x7x2xf32>, tensor<3x3x2x2xf32>) outs(%f : tensor<2x5x5x2xf32>) -> tensor<2x5x5x2xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %x : tensor<2x5x5x2xf32>, tensor<2x5x5x2xf32>) outs(%e : tensor<2x5x5x2xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %s = math.tanh %u : f32
    %t = arith.addf %s, %v : f32
    linalg.yield %t : f32
  } -> tensor<2x5x5x2xf32>
  %g = linalg.generic {indexing_maps = [#id, #mean],
      iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
      ins(%r : tensor<2x5x5x2xf32>) outs(%fm : tensor<2x2xf32>) {
  ^bb0(%u: f32, %o: f32):
    %s = arith.mulf %u, %c : f32
    %t = arith.addf %o, %s : f32
    linalg.yield %t : f32
  } -> tensor<2x2xf32>
  %n = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1, d2, d3) -> (d2, d3)>, #id],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %g : tensor<3x3x2x2xf32>, tensor<2x2xf32>) outs(%k : tensor<3x3x2x2xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %s = arith.mulf %v, %c : f32
    %t = arith.subf %u, %s : f32
    linalg.yield %t : f32
  } -> tensor<3x3x2x2xf32>
  return %n, %g : tensor<3x3x2x2xf32>, tensor<2x2xf32>
}"""


@cache
def shipped(name: str) -> tuple[str, Space, tuple[int, int]]:
    """Base module, space, and counts of state and batch of a shipped workload."""
    prepared = prepare(name)
    signature = prepared.signature
    with TemporaryDirectory() as folder:
        write_base(
            prepared.step_text,
            len(signature.state),
            [s.name for s in signature.state],
            Path(folder),
            signature.storage,
        )
        base = (Path(folder) / "base.mlir").read_text()
        return base, Space.load(Path(folder) / "space.json"), (len(signature.state), len(signature.batch))


@cache
def residual() -> tuple[str, Space, tuple[int, int]]:
    base, space = numbered(RESIDUAL, 1)
    return base, replace(space, storage=("f32", "bf16")), (1, 1)


def drawn_on(space: Space, kind: str, seed: int) -> Edit | None:
    return edit_class(kind).draw(space, random.Random(seed))


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_what_is_drawn_applies_and_is_plain_data(workload: str, kind: str, seed: int):
    _, space, _ = shipped(workload)
    edit = drawn_on(space, kind, seed)
    assert edit == drawn_on(space, kind, seed)  # of the seed alone
    if edit is None:
        return
    assert edit.kind == kind and edit.applies(space)
    assert edit_from_json(json.loads(json.dumps(edit.to_json()))) == edit
    assert any(word in edit.words(lambda name: f"<{name}>") for word in ("<op", "<arg"))
    assert edit.sites and dangling(space, [edit]) == []
    near = edit.perturb(space, random.Random(seed + 1))
    if near is not None:
        assert near.kind == kind and near != edit and near.applies(space)
    edit.extend(space)


@pytest.mark.parametrize("kind", KINDS)
def test_most_draws_find_an_edit(kind: str):
    for workload in WORKLOADS:
        _, space, _ = shipped(workload)
        found = [drawn_on(space, kind, seed) for seed in range(40)]
        assert sum(e is not None for e in found) >= 20, workload
        assert len(set(found)) >= 10, workload


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "body_swap"])  # most bodies have one swap only
def test_perturbation_moves_to_another_edit(kind: str):
    _, space, _ = shipped("digits")
    pairs = [(e, e.perturb(space, random.Random(i))) for i in range(40) if (e := drawn_on(space, kind, i)) is not None]
    assert sum(near is not None and near != edit for edit, near in pairs) >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_replay_is_exact_on_a_shipped_workload(kind: str):
    base, space, _ = shipped("twofc")
    edits = [e for seed in range(4) if (e := drawn_on(space, kind, seed)) is not None]
    for edit in edits:
        again = edit_from_json(json.loads(json.dumps(edit.to_json())))
        assert apply_genome(base, [edit]).fingerprint == apply_genome(base, [again]).fingerprint


def test_most_single_edits_change_the_program():
    base, space, _ = shipped("digits")
    plain = apply_genome(base, []).fingerprint
    edits = [e for kind in KINDS for seed in range(3) if (e := drawn_on(space, kind, seed)) is not None]
    assert sum(apply_genome(base, [e]).fingerprint != plain for e in edits) > 0.7 * len(edits)


def test_semantic_draws_prefer_what_matters():
    """Of the shrunk ops of digits, most of the work; of the scaled values, mostly updates, weights, constants."""
    _, space, _ = shipped("digits")
    work = {op.site: op.volume for op in space.ops if "r" in op.loops}
    heavy = {site for site, volume in work.items() if volume >= 0.2 * max(work.values())}
    shrunk = [e for seed in range(60) if (e := drawn_on(space, "shrink", seed)) is not None]
    assert len(heavy) < len(work) / 2 and sum(set(e.sites) <= heavy for e in shrunk) > len(shrunk) / 2


@pytest.mark.parametrize("step", [*(lambda n=n: shipped(n) for n in ("digits",)), residual], ids=["digits", "residual"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30), count=st.integers(1, 6))
def test_random_genomes_compile_or_end_in_a_named_error(
    step: Callable[[], tuple[str, Space, tuple[int, int]]], seed: int, count: int
):
    base, space, sizes = step()
    rng = random.Random(seed)
    edits = drawn(space, rng, count)
    assert dangling(space, edits) == []
    mixed = rng.sample(edits, rng.randint(0, len(edits)))
    try:
        for genome in (edits, mixed):
            compile_module(apply_genome(base, genome).module, "step", *sizes, memory_cache())
    except PassError as error:
        assert error.stage in ("edit", "verify", "cleanup", "partition", "compile", "plan")


@pytest.mark.parametrize("part", range(2))
def test_space_after_edits_says_what_the_ir_is(part: int):
    """The ops there are, in order, which of their operands may be rewired, and the type of each of these."""
    for base, space, _ in (shipped("lenet"), residual(), (*numbered(MLP, 2), (2, 2))):
        for seed in range(part, 16, 2):
            edits = drawn(space, random.Random(seed), 10)
            module = parse_base(base)
            block = body(function(module, "step"))
            editor = Editor(block)
            for edit in edits:
                edit.apply(editor)
            after = space.after(edits)
            there = [op.site for op in after.ops if op.name != GONE]
            assert [site_of(op) for op in operations(block)[:-1] if SITE in op.attributes] == there
            for site in there:
                op, told = editor.op(site), after.by_site[site]
                assert rewirable(op) == list(told.slots), site
                assert [tensor_type(op.operands[s].type) for s in told.slots] == [
                    after.types[told.operands[s]] for s in told.slots
                ], site


def test_genomes_that_the_space_allows_apply():
    """Also in other orders and subsets, as crossover makes them, once the dangling ones are out."""
    refused = 0
    for base, space, _ in (shipped("digits"), residual(), (*numbered(MLP, 2), (2, 2))):
        for seed in range(25):
            rng = random.Random(seed)
            mixed = drawn(space, rng, 8)
            mixed = rng.sample(mixed, rng.randint(1, len(mixed)))
            while bad := dangling(space, mixed):
                mixed = [e for i, e in enumerate(mixed) if i not in bad]
            try:
                apply_genome(base, mixed)
            except PassError:
                refused += 1
    assert refused <= 2

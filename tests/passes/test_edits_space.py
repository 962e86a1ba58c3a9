"""What edits read of a step: loops and maps in plain form, bodies, user's lines; and the weights of draws."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steps import numbered

from mlir_passes.canonical import write_base
from mlir_passes.edits import plausible
from mlir_passes.edits.base import Use
from mlir_passes.edits.loops import Linear, Run, part_of, read_map, spelled
from mlir_passes.edits.move import Move
from mlir_passes.space import Space, TensorType, captures, part, source

SIZES = (3, 4, 5)
FORMS = st.tuples(
    st.dictionaries(st.sampled_from(range(3)), st.sampled_from([-2, -1, 1, 2]), max_size=3), st.integers(0, 3)
)


def index(form: Linear, at: tuple[int, ...]) -> int:
    return form[1] + sum(c * at[loop] for loop, c in form[0].items())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(FORMS, max_size=3))
def test_maps_are_read_as_they_are_spelled(forms: list[Linear]):
    assert read_map(spelled(forms)) == tuple(forms)


def test_map_that_is_no_sum_of_loops_is_not_read():
    assert read_map(spelled([({0: 1}, 0), None])) is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(FORMS, st.sampled_from(range(3)), st.integers(1, 3), st.randoms(use_true_random=False))
def test_part_of_an_operand_holds_exactly_what_is_read(form: Linear, loop: int, stride: int, rng: random.Random):
    """Against every iteration: where the shrunk loops read through the new map is where they read before."""
    every = [index(form, at) for at in itertools.product(*map(range, SIZES))]
    form = form[0], form[1] - min(0, *every)  # an operand begins at 0
    size = max(index(form, at) for at in itertools.product(*map(range, SIZES))) + 1
    count = rng.randint(1, (SIZES[loop] - 1) // stride + 1)
    offset = rng.randint(0, SIZES[loop] - 1 - (count - 1) * stride)
    found = part_of([form], [size], SIZES, Run(loop, offset, count, stride))
    if found is None:
        assert stride > 1 and loop in form[0] and form != ({loop: 1}, 0)
        return
    left = [count if i == loop else n for i, n in enumerate(SIZES)]
    seen: set[int] = set()
    for at in itertools.product(*map(range, left)):
        old = tuple(offset + stride * a if i == loop else a for i, a in enumerate(at))
        new = index(found.map[0], at)
        assert 0 <= new < found.sizes[0]
        assert found.offsets[0] + found.strides[0] * new == index(form, old)
        seen.add(new)
    if loop in form[0]:
        assert {0, found.sizes[0] - 1} <= seen  # nothing too much is kept


LOCATED = """#known = loc("/folder/model.py":17:4)
#caller = loc("/folder/train.py":3:0)
#called = loc(callsite(#known at #caller))
#named = loc("jit(step)/jit(main)/exp"(#called))
func.func @step(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32> loc(#named)
  %b = linalg.tanh ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32> loc("train.py":9:1)
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}"""


def test_ops_know_the_innermost_line_they_came_from_and_the_base_does_not_tell(tmp_path: Path):
    write_base(LOCATED, 0, [], tmp_path, ("f32", "bf16"))
    space = Space.load(tmp_path / "space.json")
    assert {op.name: op.where for op in space.ops if op.where} == {
        "linalg.exp": "model.py:17",
        "linalg.tanh": "train.py:9",
    }
    assert "loc(" not in (tmp_path / "base.mlir").read_text() and "someone" not in (tmp_path / "space.json").read_text()
    assert space.storage == ("f32", "bf16")


def test_loops_of_named_ops_and_generics_are_described():
    _, space = numbered("""func.func @step(%x: tensor<2x9x8x3xf32>, %w: tensor<3x3x3xf32>) -> tensor<2x4x3x3xf32> {
  %z = arith.constant 0.0 : f32
  %d = tensor.empty() : tensor<2x4x3x3xf32>
  %g = linalg.fill ins(%z : f32) outs(%d : tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %b = linalg.depthwise_conv_2d_nhwc_hwc {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
      ins(%x, %w : tensor<2x9x8x3xf32>, tensor<3x3x3xf32>) outs(%g : tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  return %b : tensor<2x4x3x3xf32>
}""")
    op = space.ops[-1]
    assert (op.loops, op.sizes, op.volume) == ("pppprr", (2, 4, 3, 3, 3, 3), 2 * 4 * 3 * 3 * 9)
    assert op.maps == ("d0 2*d1+d4 2*d2+d5 d3", "d4 d5 d3", "d0 d1 d2 d3")


def test_captured_scalars_are_named():
    _, space = numbered("""#id = affine_map<(d0) -> (d0)>
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %three = arith.constant 3.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %b = arith.mulf %p, %three : f32
    linalg.yield %b : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}""")
    constant = next(op for op in space.ops if op.name == "arith.constant")
    assert captures(space.ops[-1]) == [constant.results[0]]
    assert (space.ops[-1].site, -1) in space.users[constant.results[0]]


@pytest.mark.parametrize("text", [
    """  %r = tensor.pad %x low[0] high[2] {
  ^bb0(%i: index):
    tensor.yield %made : f32
  } : tensor<4xf32> to tensor<6xf32>""",
    """  %e = tensor.empty() : tensor<6xf32>
  %c = arith.constant true
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e : tensor<6xf32>) {
  ^bb0(%o: f32):
    %b = scf.if %c -> (f32) {
      scf.yield %made : f32
    } else {
      scf.yield %o : f32
    }
    linalg.yield %b : f32
  } -> tensor<6xf32>""",
])  # fmt: skip
def test_an_op_is_not_moved_before_what_its_regions_read(text: str):
    _, space = numbered(f"""func.func @step(%x: tensor<4xf32>, %s: tensor<f32>) -> (tensor<4xf32>, tensor<6xf32>) {{
  %y = math.tanh %x : tensor<4xf32>
  %made = tensor.extract %s[] : tensor<f32>
{text}
  return %y, %r : tensor<4xf32>, tensor<6xf32>
}}""")
    made = next(op for op in space.ops if op.name == "tensor.extract")
    reader = space.ops[-1]
    assert made.results[0] in captures(reader) and (reader.site, -1) in space.users[made.results[0]]
    use = Use("arg0", "pad", 0.0)
    places = [Move(reader.site, op.site, tuple((slot, use) for slot in reader.slots)) for op in space.ops[:-1]]
    assert [place.applies(space) for place in places] == [op.name == "tensor.empty" for op in space.ops[:-1]]


def test_part_of_a_value_is_named_after_it():
    made = part("op3#0", TensorType((2, 4), "f32"))
    assert source(made) == "op3#0" and source(part(made, TensorType((), "f32"))) == "op3#0"
    assert source("arg1") == "arg1"


def test_drawn_factors_are_short_and_mostly_between_a_sixteenth_and_sixteen():
    rng = random.Random(0)
    factors = [plausible.draw_factor(rng) for _ in range(4000)]
    assert 1.0 not in factors and all(float(f"{f:.4g}") == f for f in factors)
    assert all(f in (0.0, -1.0) or 1 / 16.01 < f < 16.01 for f in factors)
    assert 0 < factors.count(-1.0) < factors.count(0.0) < 0.08 * len(factors)
    near = [plausible.near_factor(2.0, rng) for _ in range(200)]
    assert all(2 / 1.51 < f < 2 * 1.51 for f in near) and min(near) < 2 < max(near)
    assert plausible.near_factor(0.0, rng) != 0

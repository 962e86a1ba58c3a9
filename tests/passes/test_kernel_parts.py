"""Parts that kernels are made with, one by one: pieces of vectors, transposed blocks, loops that merge, groups,
values computed again, moves that fold, sums by blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from exact_steps import Step, Tensor, check
from hypothesis import example, given
from hypothesis import strategies as st
from small_steps import cut, floats, kinds, run

from mlir_passes.graph import KernelGraph, KernelText
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.code import Code, vector
from mlir_passes.kernels.collapse import collapse
from mlir_passes.kernels.families import family
from mlir_passes.kernels.memory import transposed
from mlir_passes.kernels.nest import Access, Index, Load, Nest, Phase, Reduction, Store
from mlir_passes.kernels.pieces import Piece, pieces
from mlir_passes.lower_cpu import read_nest

# pieces


@given(st.integers(1, 100), st.sampled_from([1, 2, 4, 8, 16]), st.booleans())
@example(7, 8, False)
@example(8, 8, True)
def test_pieces_cover_every_element_once(width: int, lanes: int, masked: bool):
    found = pieces(width, lanes, masked)
    covered = [piece.offset + lane for piece in found for lane in range(piece.active)]
    assert covered == list(range(width))
    assert all(1 <= piece.active <= piece.lanes <= lanes for piece in found)
    assert all(piece.lanes & (piece.lanes - 1) == 0 for piece in found)
    assert not any(piece.partial for piece in found[:-1])


def test_a_remainder_is_masked_where_that_is_fewer_vectors():
    assert pieces(8, 8, True) == [Piece(0, 8, 8)]
    assert pieces(12, 8, False) == [Piece(0, 8, 8), Piece(8, 4, 4)]
    assert pieces(15, 8, False) == [Piece(0, 8, 8), Piece(8, 8, 7)]
    assert pieces(9, 8, True) == [Piece(0, 8, 8), Piece(8, 8, 1)]
    assert pieces(3, 8, False) == [Piece(0, 2, 2), Piece(2, 1, 1)]


# transposed blocks


@pytest.mark.parametrize("count", [4, 8])
def test_transposed_gives_the_columns(count: int):
    """The shuffles, done by NumPy."""
    code = Code()
    rows = [f"%row{k}" for k in range(count)]
    values = {row: np.arange(count) + 100 * k for k, row in enumerate(rows)}
    columns = transposed(code, rows, vector("f32", count))
    lines = code.text.splitlines()
    for line in lines:
        found = re.fullmatch(r"\s*(\S+) = vector\.shuffle (\S+), (\S+) \[(.*)\] : .*", line)
        assert found is not None
        both = np.concatenate([values[found[2]], values[found[3]]])
        values[found[1]] = both[[int(lane) for lane in found[4].split(", ")]]
    assert len(lines) == {4: 8, 8: 24}[count]
    for k, column in enumerate(columns):
        np.testing.assert_array_equal(values[column], np.arange(count) * 100 + k)


# loops


def nest_of(step: Step, *results: Tensor) -> Nest:
    (kernel,) = cut(step.text(results)).kernels
    return read_nest(kernel, new_context())


def loops(nest: Nest) -> list[list[int]]:
    """The trip counts of each phase."""
    return [[nest.sizes[k] for k in (*nest.rows, *phase.loops)] for phase in nest.phases]


def test_what_every_access_walks_as_one_is_one_loop():
    step = Step()
    x, row, column = (step.argument(floats(*s)) for s in ((3, 5, 7), (7,), (3,)))
    y = step.argument(floats(3, 5, 7))
    assert loops(nest_of(step, step.map(lambda p, q: p + q, x, y))) == [[105]]
    assert loops(nest_of(step, step.map(lambda p, q: p + q, x, (row, "d2")))) == [[15, 7]]
    assert loops(nest_of(step, step.map(lambda p, q: p + q, x, (column, "d0")))) == [[3, 35]]
    assert loops(nest_of(step, step.map(lambda p: p, (x, "d2, d1, d0"), shape=(7, 5, 3)))) == [[7, 5, 3]]
    assert loops(nest_of(step, step.reduce(x, [1, 2]))) == [[3, 35]]
    assert loops(nest_of(step, step.reduce(x, [0, 1]))) == [[15, 7]]
    assert loops(nest_of(step, step.reduce(x, [0, 2]))) == [[3, 5, 7]]
    assert loops(nest_of(step, step.reduce(x, [0, 1, 2]))) == [[105]]


def test_a_loop_whose_index_is_read_stays():
    step = Step()
    x = step.argument(floats(3, 5))
    assert loops(nest_of(step, step.map(lambda p: p * step.loops[1]().to("i32").to("f32"), x))) == [[3, 5]]


def by_hand(sizes: list[int], strides: Sequence[int], reduced: Sequence[int] = ()) -> Nest:
    """x[i...] stored, or summed over `reduced`, into a dense result."""
    nest = Nest(sizes=sizes)
    access = Access("x", tuple((k, s) for k, s in enumerate(strides) if s))
    load = nest.add(Load(access, "f32"))
    out = [k for k in range(len(sizes)) if k not in reduced]
    dense = {k: int(np.prod([sizes[j] for j in out[at + 1 :]], dtype=int)) for at, k in enumerate(out)}
    store = Store(Access("y", tuple(dense.items())), load)
    if reduced:
        nest.reductions.append(Reduction(tuple(reduced), load, load, "f32"))
    nest.phases.append(Phase(tuple(range(len(sizes))), (0,) if reduced else (), (store,)))
    return nest


def test_loops_of_one_trip_are_dropped_and_others_merge_where_strides_allow():
    assert collapse(by_hand([4, 1, 6], [6, 6, 1])).phases[0].loops == (2,)
    merged = collapse(by_hand([4, 1, 6], [6, 6, 1]))
    assert merged.sizes[2] == 24 and merged.phases[0].stores[0].access.strides == ((2, 1),)
    assert collapse(by_hand([4, 6], [7, 1])).phases[0].loops == (0, 1)  # rows of a wider array
    assert collapse(by_hand([4, 6], [-6, 1])).phases[0].loops == (0, 1)  # rows from the last to the first
    assert collapse(by_hand([4, 6], [6, 1], [1])).phases[0].loops == (0, 1)  # a sum and its rows
    assert collapse(by_hand([1, 1], [1, 1])).phases[0].loops == ()
    summed = collapse(by_hand([5, 1], [1, 0], [1]))
    assert summed.phases[0].loops == (0,) and summed.reductions[0].loops == ()
    numbered = by_hand([1, 6], [6, 1])
    numbered.add(Index(0))
    assert collapse(numbered).phases[0].loops == (0, 1)


# groups


def test_an_op_that_reads_a_reshaped_result_is_not_in_the_kernel_that_makes_it():
    """Fusion moves the reshape before the division, which then reads a view of the sum."""
    step = Step()
    x = step.argument(floats(3, 6, 9))
    total = step.reduce(x, [2])
    divided = step.map(lambda p: p / 3.0, total)
    wide = step.expand(divided, [[0], [1, 2]], (3, 6, 1))
    check(step, wide)
    check(step, total, wide)


def test_two_ways_between_groups_make_no_cycle():
    """A reads x; B reads A and C; C reads A through a transposition: A and B may not be one kernel."""
    step = Step()
    x = step.argument(floats(9, 9))
    a = step.map(lambda p: p.exp(), x)
    c = step.matmul(a, step.argument(floats(9, 9, seed=1)))
    b = step.map(lambda p, q: p + q, a, c)
    graph = cut(step.text([a, b]))
    assert kinds(graph) == ["elementwise", "contraction"]
    check(step, a, b)


def several_sums(count: int) -> tuple[Step, list[Tensor]]:
    step = Step()
    x = step.argument(floats(9, 33))
    bodies = [lambda p, k=k: p * p * float(k) if k % 2 else p + float(k) for k in range(count)]
    return step, [step.reduce(x, [0], body=body) for body in bodies]


@pytest.mark.parametrize(("count", "calls"), [(4, 1), (5, 2), (9, 3)])
def test_sums_over_the_same_elements_are_one_kernel_but_not_too_many(count: int, calls: int):
    step, sums = several_sums(count)
    assert len(cut(step.text(sums)).calls) == calls
    check(step, *sums)


def test_a_kernel_reads_and_writes_few_values():
    step = Step()
    inputs = [step.argument(floats(5, 7, seed=k)) for k in range(40)]
    made = [inputs[0]]
    for k in range(1, 40):
        made.append(step.map(lambda p, q: (p + q).tanh(), made[-1], inputs[k]))
    results = made[5::5]
    graph = cut(step.text(results))
    assert len(graph.calls) > 1
    check(step, *results)


def test_rows_longer_than_a_stack_are_cut_into_phases_of_their_own():
    def calls(width: int) -> int:
        step = Step()
        x = step.argument(floats(3, width))
        largest = step.reduce(x, [1], "maximumf", float("-inf"))
        return len(cut(step.text([step.map(lambda p, m: (p - m).exp(), x, (largest, "d0"))])).calls)

    assert calls(2048) == 1 and calls(2049) == 2


# cheap values


def outputs_of_shape(graph: KernelGraph, *shape: int) -> int:
    return sum(graph.types[o].shape == shape for call in graph.calls for o in call.outputs)


def test_a_mask_reads_the_relu_that_is_stored_anyway():
    step = Step()
    x, w, g = (step.argument(floats(*s)) for s in ((9, 7), (7, 17), (9, 17)))
    h = step.matmul(x, w)
    y = step.map(lambda p: p.maximum(0.0), h)
    back = step.map(
        lambda p, q: p.compare("gt", 0.0).choose(q, q.of(0.0)), h, step.matmul(y, step.argument(floats(17, 17)))
    )
    results = [y, step.map(lambda p, q: p + q, back, g)]
    graph = cut(step.text(results))
    assert outputs_of_shape(graph, 9, 17) == 2  # y and the last one, not h
    check(step, *results)


def test_only_a_question_for_the_sign_reads_the_relu_instead():
    """h >= 0 and h < 0 are other questions: relu(h) does not answer them."""
    step = Step()
    h = step.argument(floats(9, 17))
    y = step.map(lambda p: p.maximum(0.0), h)
    asked = [step.map(lambda p, how=how: p.compare(how, 0.0), h, element="i1") for how in ("gt", "ge", "lt")]
    check(step, y, *asked)


def test_nan_is_no_more_positive_through_the_relu():
    step = Step()
    h = step.argument(np.array([np.nan, -1, 0, 2, -0.0], np.float32))
    y = step.map(lambda p: p.maximum(0.0), h)
    mask = step.map(lambda p: p.compare("gt", 0.0), h, element="i1")
    relu, positive = run(step.text([y, mask]), *step.arguments)
    np.testing.assert_array_equal(relu, np.array([np.nan, 0, 0, 2, 0], np.float32))
    np.testing.assert_array_equal(positive, [False, False, False, True, False])


def test_a_normalisation_is_computed_again_by_each_reader_and_not_stored():
    step = Step()
    x, mean, scale = (step.argument(floats(*s)) for s in ((24, 33), (33,), (33,)))
    z = step.map(lambda p, m, s: (p - m) * s, x, (mean, "d1"), (scale, "d1"))
    g = step.argument(floats(24, 33, seed=1))
    total = step.reduce(step.map(lambda p, q: p * q, z, g), [0])
    other = step.map(lambda p, t: p.maximum(0.0) * t, z, (total, "d1"))
    graph = cut(step.text([total, other]))
    assert outputs_of_shape(graph, 24, 33) == 1
    check(step, total, other)


def test_what_is_dear_is_stored_for_its_readers():
    step = Step()
    x, g = step.argument(floats(24, 33)), step.argument(floats(24, 33, seed=1))
    z = step.map(lambda p: p.exp().tanh(), x)
    total = step.reduce(step.map(lambda p, q: p * q, z, g), [0])
    other = step.map(lambda p, t: p.maximum(0.0) * t, z, (total, "d1"))
    texts = [k.text for k in cut(step.text([total, other])).kernels]
    assert sum(text.count("math.tanh") for text in texts) == 1
    check(step, total, other)


# moves


def contraction_of(graph: KernelGraph) -> KernelText:
    (found,) = (k for k in graph.kernels if k.kind == "contraction")
    return found


@pytest.mark.parametrize("move", ["transposed", "reversed sum", "repeated", "transposed twice"])
def test_a_contraction_reads_through_moves(move: str):
    step = Step()
    a = step.argument(floats(9, 17))
    if move == "transposed":
        b = step.transpose(step.argument(floats(7, 17, seed=1)), [1, 0])
    elif move == "reversed sum":
        b = step.map(lambda p: p, (step.argument(floats(17, 7, seed=1)), "16 - d0, d1"), shape=(17, 7))
    elif move == "repeated":
        b = step.broadcast(step.argument(floats(7, seed=1)), (17, 7), [0])
    else:
        b = step.transpose(step.transpose(step.argument(floats(17, 7, seed=1)), [1, 0]), [1, 0])
    y = step.matmul(a, b)
    graph = cut(step.text([y]))
    assert kinds(graph) == ["contraction"]
    check(step, y)


def test_a_result_that_is_read_backwards_is_not_turned_in_its_sum():
    """The loop of a result may not run backwards."""
    step = Step()
    x = step.argument(floats(9, 17))
    back = step.map(lambda p: p, (x, "8 - d0, d1"), shape=(9, 17))
    check(step, step.matmul(back, step.argument(floats(17, 7, seed=1))))


@pytest.mark.parametrize("both", [False, True])
def test_both_sides_of_a_sum_backwards(both: bool):
    step = Step()
    x, y = step.argument(floats(9, 17)), step.argument(floats(17, 7, seed=1))
    left = step.map(lambda p: p, (x, "d0, 16 - d1"), shape=(9, 17)) if both else x
    right = step.map(lambda p: p, (y, "16 - d0, d1"), shape=(17, 7))
    check(step, step.matmul(left, right))


# sums


def test_a_long_sum_by_blocks_is_nearer_than_one_by_one():
    """100 000 terms of one sign: their rounding errors add up; 128 at a time they hardly do."""
    x = np.random.default_rng(1).uniform(0, 1, (100_000, 40)).astype(np.float32)
    step = Step()
    total = step.reduce(step.argument(x), [0])
    (got,) = run(step.text([total]), x)
    plain = np.add.accumulate(x, 0, np.float32)[-1]
    off, plainly = np.abs(got - total.exact), np.abs(plain - total.exact)
    assert np.all(off <= 2e-6 * total.exact)
    assert off.mean() < plainly.mean() / 3


@pytest.mark.parametrize("terms", [511, 512, 513, 640, 641, 1024, 1151])
@pytest.mark.parametrize("columns", [1, 5, 33])
def test_sums_about_the_ends_of_blocks(terms: int, columns: int):
    step = Step()
    x = step.argument(floats(terms, columns))
    check(step, step.reduce(x, [0]), step.reduce(x, [0], start=1.5))


def test_families_of_well_known_kernels():
    step = Step()
    a, b = step.argument(floats(9, 17)), step.argument(floats(17, 33))
    maps = ("d0, d1", "d1, d2", "d0, d2")
    for made, name in (
        (step.matmul(a, b), "contraction"),
        (step.product(a, b, (9, 17, 33), "prp", maps), "contraction"),
        (step.reduce(a, [0]), "window"),
        (step.reduce(step.argument(floats(40, 17)), [0]), "reduction"),
        (step.reduce(a, [1]), "reduction"),
        (step.map(lambda p: p.exp(), a), "elementwise"),
    ):
        nest = nest_of(step, made)
        assert family(nest, nest.phases[0]) == name

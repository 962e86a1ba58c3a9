"""Kernels of every family by many schedules, in slices, in place: always within the bounds of the default one.

Arrays stand between unreadable pages, so a schedule that touches more than its arrays ends the test.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from direct_kernels import One, context, guarded
from exact_steps import Step, Tensor, assert_near
from small_steps import cut, floats

from mlir_passes.kernels.choice import fits
from mlir_passes.kernels.families import candidates, defaults
from mlir_passes.kernels.machine import Machine
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.search import neighbours
from mlir_passes.lower_cpu import machine, read_nest
from mlir_passes.pipeline import kernel_text

LOW = float("-inf")
SAMPLE = 4  # candidates of each kernel that a test compiles, beside the default; 0 for all
WALK = 3  # small steps away from the default
Made = tuple[Step, list[Tensor]]


def matmul(m: int, n: int, k: int, a: str = "mk", b: str = "kn", out: str = "mn") -> Made:
    step, loops, size = Step(), {"m": "d0", "n": "d1", "k": "d2"}, {"m": m, "n": n, "k": k}
    maps = [", ".join(loops[c] for c in word) for word in (a, b, out)]
    x, y = (step.argument(floats(*(size[c] for c in w), seed=i)) for i, w in enumerate((a, b)))
    return step, [step.product(x, y, (m, n, k), "ppr", maps)]


def epilogue() -> Made:
    step, (y,) = matmul(13, 41, 19)
    bias = step.argument(floats(41))
    return step, [y, step.map(lambda p, q: (p + q).maximum(0.0), y, (bias, "d1"))]


def convolution(stride: int) -> Made:
    step, size = Step(), 5 * stride + 1
    x, w = step.argument(floats(2, size + 1, size + 1, 3)), step.argument(floats(3, 2, 3, 17, seed=1))
    at = f"d0, d1 * {stride} + d4, d2 * {stride} + d5, d6"
    rows = (size + 1 - 3) // stride + 1
    return step, [step.product(x, w, (2, rows, rows, 17, 3, 2, 3), "pppprrr", (at, "d4, d5, d6, d3", "d0, d1, d2, d3"))]


def weight_gradient() -> Made:
    step = Step()
    x, g = step.argument(floats(2, 7, 8, 5)), step.argument(floats(2, 5, 6, 9, seed=1))
    maps = ("d0, d2 + d3, d4 + d5, d6", "d0, d3, d5, d1", "d2, d4, d6, d1")
    return step, [step.product(x, g, (2, 9, 3, 5, 3, 6, 5), "rpprprp", maps)]


def batched() -> Made:
    step = Step()
    a, b = step.argument(floats(5, 3, 17)), step.argument(floats(9, 3, 17, seed=1))
    return step, [step.product(a, b, (3, 5, 9, 17), "pppr", ("d1, d0, d3", "d2, d0, d3", "d0, d1, d2"))]


def depthwise() -> Made:
    step = Step()
    x, w = step.argument(floats(2, 8, 9, 19)), step.argument(floats(3, 3, 19, seed=1))
    maps = ("d0, d1 + d4, d2 + d5, d3", "d4, d5, d3", "d0, d1, d2, d3")
    return step, [step.product(x, w, (2, 6, 7, 19, 3, 3), "pppprr", maps)]


def reduction(shape: Sequence[int], axes: Sequence[int], combine: str = "addf", start: float = 0.0) -> Made:
    step = Step()
    x = step.argument(floats(*shape))
    body = (lambda p: p * p) if combine == "addf" else (lambda p: p)
    return step, [step.reduce(x, axes, combine, start, body)]


def masked_sum() -> Made:
    """A sum of products of which one factor is broadcast along the sum."""
    step = Step()
    x, y = step.argument(floats(9, 37)), step.argument(floats(9, seed=1))
    (made,) = step.generic("pr", (9, 37), [(x, "d0, d1"), (y, "d0")], [(1.0, "d0", "f32")], lambda p, q: p * q, "addf")
    return step, [made]


def largest_and_where() -> Made:
    step = Step()
    x = step.argument(floats(21, 19))

    def body(p, best, at):  # pyright: ignore
        better = p.compare("gt", best)
        return [better.choose(p, best), better.choose(step.loops[0]().to("i32"), at)]

    return step, step.generic("rp", (21, 19), [(x, "d0, d1")], [(LOW, "d1", "f32"), (0, "d1", "i32")], body)


def softmax() -> Made:
    step = Step()
    x = step.argument(floats(11, 37))
    largest = step.reduce(x, [1], "maximumf", LOW)
    raised = step.map(lambda p, m: (p - m).exp(), x, (largest, "d0"))
    return step, [step.map(lambda p, t: p / t, raised, (step.reduce(raised, [1]), "d0"))]


def elementwise() -> Made:
    step = Step()
    x, row, column = (step.argument(floats(*s, seed=i)) for i, s in enumerate([(7, 9, 19), (19,), (9,)]))
    mask = step.map(lambda p, q: p.compare("gt", q), x, (row, "d2"), element="i1")
    return step, [mask, step.map(lambda m, p, r: m.choose(p, r), mask, x, (column, "d1"))]


def transposition() -> Made:
    step = Step()
    x, y = step.argument(floats(19, 35)), step.argument(floats(35, 19, seed=1))
    return step, [step.map(lambda p, q: p + q, x, (y, "d1, d0"))]


def pad() -> Made:
    step = Step()
    return step, [step.pad(step.argument(floats(3, 7, 11)), (0, 2, 1), (0, 1, 3), 0.5)]


KERNELS: dict[str, Callable[[], Made]] = {
    "matmul": lambda: matmul(13, 41, 19),
    "matmul, left transposed": lambda: matmul(13, 18, 21, a="km"),
    "matmul, right transposed": lambda: matmul(33, 9, 83, b="nk"),
    "matmul, right transposed, aligned": lambda: matmul(32, 16, 64, b="nk"),
    "matmul, result transposed": lambda: matmul(17, 9, 16, out="nm"),
    "matmul of long rows": lambda: matmul(3, 70, 600),
    "matmul with an epilogue": epilogue,
    "convolution": lambda: convolution(1),
    "convolution with strides": lambda: convolution(2),
    "gradient by weights": weight_gradient,
    "batched matmul of heads": batched,
    "depthwise convolution": depthwise,
    "row sums": lambda: reduction((9, 131), [1]),
    "long row sums": lambda: reduction((3, 1111), [1]),
    "column sums": lambda: reduction((77, 37), [0]),
    "long column sums": lambda: reduction((1111, 9), [0]),
    "full sum": lambda: reduction((9, 131), [0, 1]),
    "row maxima": lambda: reduction((9, 61), [1], "maximumf", LOW),
    "column minima": lambda: reduction((33, 85), [0], "minimumf", float("inf")),
    "sum of a product with a row's value": masked_sum,
    "largest and where": largest_and_where,
    "softmax": softmax,
    "elementwise": elementwise,
    "transposition": transposition,
    "pad": pad,
}
MACHINES = {"256 bits": Machine(32, 16), "128 bits": Machine(16, 16), "512 bits": Machine(64, 32)}


@pytest.fixture(scope="module")
def kernels() -> dict[str, One]:
    return {}


@pytest.fixture
def one(request: pytest.FixtureRequest, kernels: dict[str, One]) -> One:
    name = request.param
    if name not in kernels:
        kernels[name] = One(*KERNELS[name]())
    return kernels[name]


def all_schedules(one: One, wanted: Machine) -> list[tuple[Schedule, ...]]:
    """Each phase by each of its candidates, the other phases by default."""
    first = tuple(defaults(one.nest, wanted))
    found = [first]
    for place, known in enumerate(candidates(one.nest, wanted)):
        found += [(*first[:place], other, *first[place + 1 :]) for other in known]
    return list(dict.fromkeys(found))


def assert_right(one: One, schedules: Sequence[Schedule], at_end: bool) -> None:
    for schedule, phase in zip(schedules, one.nest.phases, strict=True):
        assert fits(one.nest, phase, schedule), schedule
    try:
        assert_near(one.compiled(schedules).run(at_end=at_end), one.results)
    except AssertionError as error:
        raise AssertionError(f"{schedules}: {error}") from error


@pytest.mark.parametrize("wide", MACHINES)
@pytest.mark.parametrize("one", KERNELS, indirect=True)
def test_every_candidate_computes_the_same(one: One, wide: str):
    found = all_schedules(one, MACHINES[wide])
    count = (SAMPLE if MACHINES[wide] == machine() else 1) if SAMPLE else len(found)
    rng = random.Random(f"{one.kernel.key} {wide}")
    for schedules in found[:1] + rng.sample(found[1:], min(count, len(found) - 1)):
        assert_right(one, schedules, rng.random() < 0.5)


@pytest.mark.parametrize("one", KERNELS, indirect=True)
def test_small_steps_away_from_the_default_compute_the_same(one: One):
    rng = random.Random(one.kernel.key)
    schedules = defaults(one.nest, machine())
    for number in range(WALK):
        for place, phase in enumerate(one.nest.phases):
            steps = neighbours(schedules[place], one.nest, phase, machine())
            schedules[place] = rng.choice(steps or [schedules[place]])
        if number % 2 == WALK % 2 or number == WALK - 1:
            assert_right(one, schedules, rng.random() < 0.5)


@pytest.mark.parametrize("one", KERNELS, indirect=True)
def test_slices_in_any_order_give_the_same_bits(one: One):
    rng = random.Random(one.kernel.key)
    found = all_schedules(one, machine())
    for schedules in found[:1] + rng.sample(found[1:], min(1, len(found) - 1)):
        made = one.compiled(schedules)
        whole = made.run()
        cuts = sorted({0, made.shards, *(rng.randint(0, made.shards) for _ in range(3))})
        chunks = list(itertools.pairwise(cuts))
        rng.shuffle(chunks)
        singly = [(k, k + 1) for k in reversed(range(made.shards))]
        for slices in (chunks, singly) if made.shards > 1 else ():
            for got, wanted in zip(made.run(slices), whole, strict=True):
                assert got.tobytes() == wanted.tobytes()


def test_most_kernels_are_cut_into_slices(kernels: dict[str, One]):
    uncut = {"full sum", "pad", "long column sums"}
    for name in KERNELS.keys() - uncut:
        found = kernels.setdefault(name, One(*KERNELS[name]()))
        assert found.kernel.shards > 1, name


def updates() -> Made:
    step = Step()
    x, g = step.argument(floats(9, 35)), step.argument(floats(9, 35, seed=1))
    moment = step.map(lambda m, p: m * 0.9 + p, step.argument(floats(9, 35, seed=2)), g)
    return step, [moment, step.map(lambda p, m: p - m * 0.1, x, moment)]


def matmul_update() -> Made:
    step, (g,) = matmul(13, 41, 19)
    return step, [step.map(lambda w, p: w - p * 0.1, step.argument(floats(13, 41)), g)]


def rows_update() -> Made:
    step = Step()
    x, y = step.argument(floats(7, 37)), step.argument(floats(7, 37, seed=1))
    total = step.reduce(x, [1])
    return step, [step.map(lambda p, q, t: p * q - t, x, y, (total, "d0"))]


def column_statistics() -> Made:
    step = Step()
    x, moving = step.argument(floats(21, 37)), step.argument(floats(37, seed=1))
    return step, [step.map(lambda m, t: m * 0.9 + t * 0.1, moving, step.reduce(x, [0]))]


IN_PLACE = {"updates": updates, "matmul and update": matmul_update, "rows": rows_update, "columns": column_statistics}


@pytest.mark.parametrize("name", IN_PLACE)
def test_results_in_the_place_of_an_argument_are_the_same_bits(name: str):
    """As `KernelText.inplace` allows it, by each schedule."""
    one = One(*IN_PLACE[name]())
    (text,) = cut(one.step.text(one.results)).kernels
    assert text.inplace and text.text == one.text.text
    plan = one.program.plan
    given = dict(zip(plan.batch, one.step.arguments, strict=True))
    rng = random.Random(name)
    found = all_schedules(one, machine())
    for schedules in found[:1] + rng.sample(found[1:], min(2, len(found) - 1)):
        made = one.compiled(schedules)
        apart = dict(zip(plan.metrics, made.run(), strict=True))
        for source, target in text.inplace:
            arrays = [guarded(given[p], True) if p in given else guarded(apart[p] * np.float32(0), True)
                      for p in one.call.args]  # fmt: skip
            arrays[target] = arrays[source]
            made.call(arrays, 0, made.shards)
            for place, array in zip(one.call.args, arrays, strict=True):
                if place in apart:
                    assert array.tobytes() == apart[place].tobytes(), (source, target, schedules)


def test_the_text_of_a_program_s_kernel_gives_its_nest_again():
    one = One(*epilogue())
    assert read_nest(kernel_text(one.kernel), context()).sizes == one.nest.sizes

"""What nobody reads is not computed: slices go up through what made them, and results stay what they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
from exact_steps import Step, Tensor, check
from small_steps import floats

from mlir_passes.program import Program

ROWS, SIDE, CHANNELS, HIDDEN = 2, 8, 4, 16
POINT = ("d0, d1, d2, d4", "d4, d3", "d0, d1, d2, d3")


def flops(program: Program) -> int:
    return sum(program.kernels[call.kernel].flops for call in program.plan.calls)


def pointwise(step: Step, x: Tensor, w: Tensor) -> Tensor:
    sizes = (*x.shape[:3], w.shape[1], w.shape[0])
    return step.product(x, w, sizes, "ppppr", POINT)


def depthwise(step: Step, x: Tensor, k: Tensor, stride: int = 1) -> Tensor:
    padded = step.pad(x, (0, 1, 1, 0), (0, 1, 1, 0))
    side = (padded.shape[1] - 3) // stride + 1
    image = f"d0, d1 * {stride} + d4, d2 * {stride} + d5, d3"
    maps = (image, "d4, d5, d3", "d0, d1, d2, d3")
    return step.product(padded, k, (x.shape[0], side, side, x.shape[3], 3, 3), "pppprr", maps)


def block(taken: tuple[int, int, int] | None) -> tuple[Step, Tensor]:
    """A block of a MobileNet whose last sum runs over part of the channels: offset, count, stride."""
    step = Step()
    x = step.argument(floats(ROWS, SIDE, SIDE, CHANNELS, seed=1))
    w, k = step.argument(floats(CHANNELS, HIDDEN, seed=2)), step.argument(floats(3, 3, HIDDEN, seed=3))
    project = step.argument(floats(HIDDEN, CHANNELS, seed=4))
    sixes = step.filled((ROWS, SIDE, SIDE, HIDDEN), 6.0)  # one tensor that two clippings read, as JAX has it
    wide = step.map(lambda e, most: e.maximum(0.0).minimum(most), pointwise(step, x, w), sixes)
    wide = step.map(lambda e, most: e.maximum(0.0).minimum(most), depthwise(step, wide, k), sixes)
    if taken is not None:
        offset, count, stride = taken
        wide = step.slice(wide, (0, 0, 0, offset), (*wide.shape[:3], count), (1, 1, 1, stride))
        project = step.slice(project, (offset, 0), (count, CHANNELS), (stride, 1))
    return step, pointwise(step, wide, project)


@pytest.mark.parametrize("taken", [(0, 8, 1), (8, 8, 1), (0, 8, 2), (1, 8, 2), (4, 8, 1)])
def test_a_sum_over_half_of_the_channels_halves_the_layers_before_it(taken: tuple[int, int, int]):
    half, whole = (flops(check(*block(t))) for t in (taken, None))
    assert half <= 0.52 * whole


def test_a_convolution_of_which_every_second_place_is_read_has_twice_the_stride():
    found: list[int] = []
    for stride in (1, 2):
        step = Step()
        x, k = step.argument(floats(2, 9, 9, 8, seed=1)), step.argument(floats(3, 3, 8, seed=2))
        made = depthwise(step, x, k, 2)  # 5 x 5
        sizes = (2, 3, 3, 8) if stride == 2 else (2, 5, 5, 8)
        part = step.slice(made, (0, 0, 0, 0), sizes, (1, stride, stride, 1))
        found.append(flops(check(step, step.map(lambda e: e + 1.0, part))))
    assert found[1] < 0.4 * found[0]


def test_the_border_that_a_crop_does_not_need_is_not_computed():
    found: list[int] = []
    for crop in (False, True):
        step, made = block(None)
        kept = step.slice(made, (0, 2, 2, 0), (ROWS, 4, 4, CHANNELS), (1, 1, 1, 1)) if crop else made
        found.append(flops(check(step, step.reduce(kept, (1, 2)))))
    assert found[1] < 0.55 * found[0]  # 4 x 4 places of 8 x 8, 6 x 6 of the layers before


@pytest.mark.parametrize("seed", range(8))
def test_random_crops_of_padded_convolutions_are_right(seed: int):
    rng = random.Random(seed)
    step = Step()
    x = step.argument(floats(2, rng.randint(5, 9), rng.randint(5, 9), 3, seed=seed))
    x = step.map(lambda e: e.maximum(0.1), x)
    k = step.argument(floats(3, 3, 3, seed=1))
    low, high, stride = rng.randrange(3), rng.randrange(3), rng.randint(1, 2)
    padded = step.pad(x, (0, low, high, 0), (0, high, low, 0), 0.5)
    sides = tuple((side - 3) // stride + 1 for side in padded.shape[1:3])
    image = f"d0, d1 * {stride} + d4, d2 * {stride} + d5, d3"
    made = step.product(padded, k, (2, *sides, 3, 3, 3), "pppprr", (image, "d4, d5, d3", "d0, d1, d2, d3"))
    others = [step.map(lambda e: e * 2.0, x)] if rng.random() < 0.4 else []
    check(step, step.map(lambda e: e + 1.0, cut(step, made, rng)), *others)


@pytest.mark.parametrize("taken", [(0, 1), (1, 1), (1, 2)])
def test_a_window_of_which_a_part_is_left_reads_a_smaller_image(taken: tuple[int, int]):
    """Before it a convolution by 1 x 1, whose loops of one trip go: then its image says how many places there are."""
    offset, count = taken
    step = Step()
    x = step.argument(floats(ROWS, SIDE, SIDE, CHANNELS, seed=1))
    w, k = step.argument(floats(1, 1, CHANNELS, HIDDEN, seed=2)), step.argument(floats(3, 3, HIDDEN, seed=3))
    image, sizes = "d0, d1 + d4, d2 + d5", (ROWS, SIDE, SIDE, HIDDEN)
    maps = (f"{image}, d6", "d4, d5, d6, d3", "d0, d1, d2, d3")
    named = "linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}"
    wide = step.product(x, w, (*sizes, 1, 1, CHANNELS), "pppprrr", maps, named)
    padded = step.pad(step.map(lambda e: e.maximum(0.0), wide), (0, 1, 1, 0), (0, 1, 1, 0))
    padded = step.slice(padded, (0, 0, offset, 0), (ROWS, SIDE + 2, SIDE - 1 + count, HIDDEN), (1, 1, 1, 1))
    part = step.slice(k, (0, offset, 0), (3, count, HIDDEN), (1, 1, 1))
    maps = (f"{image}, d3", "d4, d5, d3", "d0, d1, d2, d3")
    check(step, step.product(padded, part, (*sizes, 3, count), "pppprr", maps))


@pytest.mark.parametrize("offset", [0, 1])
def test_a_part_of_reversed_weights_is_read_as_that_part(offset: int):
    """The gradient of an image, of whose window two rows of three are left."""
    step = Step()
    g, k = (
        step.argument(floats(ROWS, SIDE, SIDE, CHANNELS, seed=1)),
        step.argument(floats(3, 3, HIDDEN, CHANNELS, seed=2)),
    )
    turned = step.map(lambda e: e, (k, "2 - d0, 2 - d1, d2, d3"), shape=k.shape)
    padded = step.pad(g, (0, 1, 1, 0), (0, 1, 1, 0))
    part = step.slice(turned, (offset, 0, 0, 0), (2, 3, HIDDEN, CHANNELS), (1, 1, 1, 1))
    rows = step.slice(padded, (0, offset, 0, 0), (ROWS, SIDE + 1, SIDE + 2, CHANNELS), (1, 1, 1, 1))
    maps = ("d0, d1 + d4, d2 + d5, d6", "d4, d5, d3, d6", "d0, d1, d2, d3")
    check(step, step.product(rows, part, (ROWS, SIDE, SIDE, HIDDEN, 2, 3, CHANNELS), "pppprrr", maps))


def test_values_that_are_also_read_whole_or_otherwise_are_made_whole():
    step = Step()
    x, w = step.argument(floats(6, 8, seed=1)), step.argument(floats(8, 12, seed=2))
    made = step.matmul(x, w)
    parts = [step.slice(made, (0, offset), (6, 4), (1, 1)) for offset in (0, 5)]
    check(step, *(step.map(lambda e: e * 2.0, part) for part in parts), step.map(lambda e: e + 1.0, made))


def test_a_body_that_asks_where_it_is_sees_its_own_place():
    step = Step()
    x, table = step.argument(np.array([3, 0, 2, 1, 4, 4], np.int32)), step.argument(floats(5, 6, seed=1))
    check(step, step.slice(step.gather(table, x), (1, 0), (3, 3), (2, 2)))


@pytest.mark.parametrize("seed", range(12))
def test_random_slices_of_random_chains_are_right(seed: int):
    rng = random.Random(seed)
    step = Step()
    x = step.argument(floats(rng.randint(3, 7), rng.randint(3, 9), seed=seed))
    for turn in range(rng.randint(2, 6)):
        match rng.randrange(5):
            case 0:
                x = step.matmul(x, step.argument(floats(x.shape[1], rng.randint(3, 10), seed=10 + turn)))
            case 1:
                x = step.map(lambda e: e.maximum(0.1) * 1.5, x)
            case 2:
                x = step.transpose(x, (1, 0))
            case 3:
                row = step.argument(floats(x.shape[1], seed=20 + turn))
                x = step.map(lambda a, b: a + b, x, (row, "d1"))
            case _:
                x = step.pad(x, (0, rng.randrange(2)), (0, rng.randrange(3)))
        x = cut(step, x, rng)
    check(step, step.map(lambda e: e - 0.5, x))


def cut(step: Step, x: Tensor, rng: random.Random) -> Tensor:
    offsets, sizes, strides = [], [], []
    for size in x.shape:
        stride, offset = rng.choice((1, 1, 2)), rng.randrange(max(1, size - 2))
        offsets.append(offset)
        strides.append(stride)
        sizes.append(rng.randint(1, (size - offset - 1) // stride + 1))
    return step.slice(x, offsets, sizes, strides)

"""Places of buffers against every placement there is, for a few of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

from mlir_passes.arena import ALIGN, Life, place
from mlir_passes.space import TensorType


def random_lives(rng: random.Random, count: int) -> list[Life]:
    """Lives of one or two spans; some stand there from the start."""
    lives: list[Life] = []
    for number in range(count):
        cuts = sorted(rng.sample(range(-1, 12), 4 if rng.random() < 0.3 else 2))
        spans = tuple(zip(cuts[::2], cuts[1::2], strict=True))
        size = rng.choice((1, 64, 100, 128, 192, 256, 300))
        lives.append(Life(f"b{number}", "activation", TensorType((size,), "i8"), spans))
    return lives


def together(a: Life, b: Life) -> bool:
    moments = {m for first, last in a.spans for m in range(first, last + 1)}
    return any(m in moments for first, last in b.spans for m in range(first, last + 1))


def best_end(lives: Sequence[Life]) -> int:
    """The least end of all placements: some order of placing at the lowest free multiple of ALIGN has it."""
    sizes = [life.found.bytes for life in lives]
    meets = [[together(a, b) for b in lives] for a in lives]

    def end_of(order: Sequence[int]) -> int:
        at: dict[int, int] = {}
        for new in order:
            taken = sorted((at[old], at[old] + sizes[old]) for old in at if meets[new][old])
            start = 0
            for begin, end in taken:
                if start + sizes[new] > begin:
                    start = max(start, -(-end // ALIGN) * ALIGN)
            at[new] = start
        return max(start + sizes[n] for n, start in at.items())

    return min(end_of(order) for order in permutations(range(len(lives))))


def test_what_must_hold_content_at_one_moment_never_overlaps():
    for seed in range(150):
        lives = random_lives(random.Random(seed), 2 + seed % 20)
        buffers = place(lives).buffers
        for i, a in enumerate(buffers):
            assert a.offset % ALIGN == 0 and a.bytes == lives[i].found.bytes
            for j, b in enumerate(buffers[:i]):
                apart = a.offset >= b.offset + b.bytes or b.offset >= a.offset + a.bytes
                assert apart or not together(lives[i], lives[j]), seed


def test_few_buffers_take_hardly_more_than_the_best_of_all_placements():
    over: list[float] = []
    for seed in range(60):
        lives = random_lives(random.Random(seed), 5)
        best, found = best_end(lives), place(lives)
        assert best <= found.end == max(b.offset + b.bytes for b in found.buffers)
        over.append(found.end / best - 1)
    assert sum(x > 0 for x in over) <= 6 and sum(over) / len(over) < 0.02


def test_the_same_lives_get_the_same_places():
    lives = random_lives(random.Random(7), 40)
    assert place(lives) == place(lives)


def test_nothing_takes_no_memory():
    assert (place([]).buffers, place([]).end) == ((), 0)

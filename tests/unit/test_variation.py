import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import make_space

from gevo.genome import IDENTITY, Genome
from gevo.variation import KIND_WEIGHTS, MOVES, crossover, draw_edit, mutate, repaired
from mlir_passes.edits import KINDS
from mlir_passes.edits.base import Use
from mlir_passes.edits.copy import Copy
from mlir_passes.edits.rewire import Rewire
from mlir_passes.space import dangling

SPACE = make_space()
seeds = st.integers(0, 2**32)


def grown(seed: int, edits: int, start: Genome = IDENTITY) -> Genome:
    rng, genome = random.Random(seed), start
    for _ in range(200):
        if len(genome.edits) >= edits:
            break
        genome = mutate(genome, SPACE, rng, max_edits=20)
    return genome


@given(seeds, seeds, seeds, st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=80, deadline=None)
def test_crossover_keeps_shared_edits_and_splits_the_rest(a: int, b: int, c: int, n: int, m: int) -> None:
    common = grown(c, 3)
    one, two = grown(a, len(common.edits) + n, common), grown(b, len(common.edits) + m, common)
    left, right = crossover(one, two, SPACE, random.Random(a ^ b))
    first, second = set(one.edits), set(two.edits)
    for child in (left, right):
        assert dangling(SPACE, child.edits) == []
        assert set(child.edits) <= first | second
        assert len(set(child.edits)) == len(child.edits)
    assert set(left.edits) & set(right.edits) <= first & second
    if not dangling(SPACE, [e for e in one.edits if e in second]):
        assert first & second <= set(left.edits)


def test_crossover_loses_nothing_when_no_edit_depends_on_another() -> None:
    rng = random.Random(3)
    rewires = list(dict.fromkeys(e for e in (draw_edit(SPACE, rng, {"rewire": 1.0}) for _ in range(40)) if e))[:12]
    one, two = Genome(tuple(rewires[:8])), Genome(tuple(rewires[4:]))
    sizes: Counter[int] = Counter()
    for _ in range(200):
        left, right = crossover(one, two, SPACE, rng)
        assert set(left.edits) | set(right.edits) == set(rewires)
        assert set(left.edits) & set(right.edits) == set(rewires[4:8])
        sizes[len(left.edits)] += 1
    assert set(sizes) == set(range(4, 13))  # every cut point is drawn


def test_an_edit_whose_copy_is_gone_is_dropped() -> None:
    copy = Copy("op1", 7, "op5", (Use("arg0"), Use("arg0")), "op5", 1)
    user = Rewire("op6", 1, Use("op1'7#0"))
    assert repaired(Genome((copy, user)), SPACE) == Genome((copy, user))
    assert repaired(Genome((user,)), SPACE) == IDENTITY
    children = [c for s in range(30) for c in crossover(Genome((copy, user)), IDENTITY, SPACE, random.Random(s))]
    assert Genome((copy, user)) in children and Genome((copy,)) in children
    assert all(c.edits in ((), (copy,), (copy, user)) for c in children)


@given(seeds, st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_mutation_gives_applicable_edits_within_the_bound(seed: int, steps: int) -> None:
    rng, genome = random.Random(seed), IDENTITY
    for _ in range(steps):
        before = genome
        genome = mutate(genome, SPACE, rng, max_edits=4)
        assert dangling(SPACE, genome.edits) == []
        assert len(genome.edits) <= 4 and len(genome.edits) - len(before.edits) <= 1


def test_every_move_and_kind_of_the_tables_is_drawn() -> None:
    rng = random.Random(0)
    kinds = Counter(e.kind for e in (draw_edit(SPACE, rng) for _ in range(600)) if e)
    assert set(kinds) == set(KIND_WEIGHTS) <= set(KINDS)
    assert min(kinds.values()) > 120
    start = grown(1, 4)
    changes = Counter(len(mutate(start, SPACE, rng, 20).edits) - len(start.edits) for _ in range(400))
    assert set(MOVES) == {"add", "remove", "redraw"}
    assert changes[1] > 120 and changes[0] > 40 and changes[-1] > 40


def test_same_generator_same_children() -> None:
    one, two = grown(1, 5), grown(2, 5)
    assert crossover(one, two, SPACE, random.Random(9)) == crossover(one, two, SPACE, random.Random(9))

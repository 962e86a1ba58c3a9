import random
from collections import Counter
from itertools import permutations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from synthetic import make_space

from gevo.evidence import Evidence
from gevo.fitting import Fitting
from gevo.genome import IDENTITY, Genome, edit_text
from gevo.variation import (
    KIND_WEIGHTS,
    MOVES,
    crossover,
    draw_edit,
    moved,
    mutate,
    pruned,
    random_genome,
    repaired,
    stacked,
)
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
@example(420, 51946, 0, 6, 3)  # a skip behind more than a dozen edits
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
    assert {c.edits for c in children} == {(), (copy, user)}  # the user never goes without its copy


def test_linked_edits_are_never_split_and_others_are() -> None:
    rng = random.Random(3)
    edits = list(dict.fromkeys(e for e in (draw_edit(SPACE, rng, {"rewire": 1.0}) for _ in range(40)) if e))[:6]
    texts = [edit_text(e) for e in edits]
    evidence = Evidence()
    evidence.needs(texts[0], [texts[3]])  # without the first, the other is invalid
    evidence.needs(texts[4], [texts[1]])
    parent = Genome(tuple(edits))
    splits: Counter[tuple[bool, ...]] = Counter()
    for seed in range(100):
        left, right = crossover(parent, IDENTITY, SPACE, random.Random(seed), evidence)
        assert set(left.edits) | set(right.edits) == set(edits)
        has = [e in left.edits for e in edits]
        assert has[0] == has[3] and has[1] == has[4]
        splits[tuple(has)] += 1
    assert len(splits) >= 12  # of the 16 ways to share out four units


def test_stacking_takes_edits_that_touch_nothing_twice() -> None:
    one = Rewire("op3", 0, Use("arg0"))
    same_op = Rewire("op3", 1, Use("arg0"))
    other, last = Rewire("op5", 0, Use("arg0")), Rewire("op7", 0, Use("arg0"))
    fit = Fitting(SPACE)
    assert set(stacked(Genome((one,)), [same_op, other, last], fit, 8).edits) == {one, other, last}
    assert set(stacked(Genome((one,)), [same_op, other, last], fit, 2).edits) == {one, other}


def test_neutral_edits_are_pruned_unless_another_needs_them() -> None:
    copy = Copy("op1", 7, "op5", (Use("arg0"), Use("arg0")), "op5", 1)
    user, other = Rewire("op6", 1, Use("op1'7#0")), Rewire("op9", 0, Use("arg0"))
    fit, evidence = Fitting(SPACE), Evidence()
    evidence.saw_neutral(edit_text(copy))
    assert pruned(Genome((copy, other)), fit, evidence) == Genome((other,))
    assert set(pruned(Genome((copy, user, other)), fit, evidence).edits) == {copy, user, other}


@given(seeds)
@settings(max_examples=80, deadline=None)
def test_kept_edits_are_those_that_apply_one_after_another(seed: int) -> None:
    rng, fit = random.Random(seed), Fitting(SPACE)
    genome = random_genome(SPACE, rng, 8)
    kept = fit.kept(genome.edits)
    assert dangling(SPACE, kept) == [] and fit.kept(kept) == kept
    shuffled = rng.sample(genome.edits, len(genome.edits))
    assert dangling(SPACE, fit.kept(shuffled)) == []
    cut = list(genome.edits)
    del cut[rng.randrange(len(cut))]
    assert dangling(SPACE, fit.kept(cut)) == []


def test_the_order_of_edits_that_do_not_meet_does_not_count() -> None:
    edits = [Rewire(f"op{i}", 0, Use("arg0")) for i in (3, 5, 7)]
    assert len({Fitting(SPACE).kept(order) for order in permutations(edits)}) == 1
    meeting = [Rewire("op5", 1, Use("arg0")), Rewire("op5", 1, Use("op1#0"))]
    assert Fitting(SPACE).kept(meeting) == tuple(meeting)
    assert Fitting(SPACE).kept(meeting[::-1]) == tuple(meeting[::-1])


@given(seeds, st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_mutation_gives_applicable_edits_within_the_bound(seed: int, steps: int) -> None:
    rng, genome = random.Random(seed), IDENTITY
    for _ in range(steps):
        before = genome
        genome = mutate(genome, SPACE, rng, max_edits=4)
        assert dangling(SPACE, genome.edits) == []
        assert len(genome.edits) <= 4 and len(genome.edits) - len(before.edits) <= 1


def test_every_kind_of_the_table_is_drawn_where_it_applies() -> None:
    rng = random.Random(0)
    kinds = Counter(e.kind for e in (draw_edit(SPACE, rng) for _ in range(600)) if e)
    assert set(KIND_WEIGHTS) == set(KINDS)
    assert set(kinds) == {kind for kind in KINDS if draw_edit(SPACE, rng, {kind: 1.0})}
    assert min(kinds.values()) > 600 / len(kinds) / 3


def test_every_move_is_made_and_says_what_it_did() -> None:
    rng, fit = random.Random(0), Fitting(SPACE)
    start = grown(1, 6)
    seen: Counter[str] = Counter()
    for _ in range(600):
        child, how = moved(start, fit, rng, 20, ("f32", "f16"), MOVES)
        name, _, about = how.partition(":")
        seen[name] += 1
        had, has = Counter(e.kind for e in start.edits), Counter(e.kind for e in child.edits)
        match name:
            case "add":
                assert has - had == Counter({about: 1}) and not had - has
            case "remove":
                assert (had - has)[about] >= 1 and not has - had
            case "storage":
                assert child.storage == about != start.storage and child.edits == start.edits
            case "perturb":
                assert len(set(child.edits) - set(start.edits)) == 1
            case "":
                assert child == start
            case _:
                assert child != start
    assert set(seen) >= set(MOVES) - {"reorder", "schedule"} and seen[""] < 60
    full = Counter(moved(start, fit, rng, len(start.edits))[1].partition(":")[0] for _ in range(100))
    assert not full["add"] and not full["storage"]


def test_same_generator_same_children() -> None:
    one, two = grown(1, 5), grown(2, 5)
    assert crossover(one, two, SPACE, random.Random(9)) == crossover(one, two, SPACE, random.Random(9))

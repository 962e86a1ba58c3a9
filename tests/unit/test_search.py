import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from landscapes import NAMES, Landscape, share
from synthetic import fake_result, make_space

from fitness.job import OBJECTIVES
from fitness.result import Outcome, Result
from gevo.config import SearchConfig
from gevo.genome import IDENTITY, Genome
from gevo.search import Search
from gevo.variation import draw_edit, random_genome
from mlir_passes.space import Space

CONFIG = SearchConfig(population=12)


def new_search(seed: int = 1, config: SearchConfig = CONFIG) -> Search:
    return Search(make_space(), config, OBJECTIVES, {}, seed)


def advance(search: Search, generations: int) -> list[Genome]:
    asked: list[Genome] = []
    for _ in range(generations):
        genomes = [p.genome for p in search.ask()]
        asked += genomes
        search.tell([(g, fake_result(g)) for g in genomes])
    return asked


def test_seeds_are_the_base_and_single_edits() -> None:
    seeds = new_search().ask()
    assert seeds[0].genome == IDENTITY and seeds[0].parents == ()
    assert len(seeds) == 12 and all(len(p.genome.edits) == 1 for p in seeds[1:])
    assert all(p.parents == (IDENTITY.key,) for p in seeds[1:])


def test_what_a_search_begins_with_comes_beside_the_single_edits_and_is_in_the_population() -> None:
    rng, space = random.Random(3), make_space()
    given = [g for g in (random_genome(space, rng, 6) for _ in range(20)) if fake_result(g).ok and g.size > 1][:4]
    search = Search(space, CONFIG, OBJECTIVES, {}, 1, beginning=[*given, IDENTITY])
    seeds = search.ask()
    assert [p.genome for p in seeds if p.operator == "seed:front"] == given and len(seeds) == 12 + len(given)
    search.tell([(p.genome, fake_result(p.genome)) for p in seeds])
    assert {m.genome for m in search.population} & set(given)


def test_no_genome_is_asked_twice_and_parents_are_known() -> None:
    search = new_search()
    keys: set[str] = set()
    for _ in range(8):
        proposals = search.ask()
        assert len(proposals) == 12
        for proposal in proposals:
            assert proposal.genome.key not in keys
            assert set(proposal.parents) <= keys | {IDENTITY.key}
        keys |= {p.genome.key for p in proposals}
        search.tell([(p.genome, fake_result(p.genome)) for p in proposals])


def test_only_valid_results_enter_the_population() -> None:
    search = new_search()
    asked = advance(search, 6)
    outcomes = {fake_result(g).outcome for g in asked}
    assert {Outcome.REJECTED, Outcome.DIVERGED} <= outcomes
    assert len(search.population) == 12
    assert all(fake_result(m.genome).ok for m in search.population)


def test_same_seed_same_search_whatever_the_global_generator() -> None:
    random.seed(1)
    first = advance(new_search(7), 5)
    random.seed(2)
    assert advance(new_search(7), 5) == first
    assert advance(new_search(8), 5) != first


def test_restored_search_goes_on_as_the_first_would_have() -> None:
    search = new_search()
    asked = advance(search, 4)
    state = json.loads(json.dumps(search.state()))
    again = new_search(seed=12345)
    again.restore(state, [g.key for g in asked], {g.key: (g, fake_result(g)) for g in asked})
    assert advance(again, 4) == advance(search, 4)
    assert again.state() == search.state()


def test_operators_say_how_each_genome_was_made() -> None:
    search = new_search()
    seen: set[str] = set()
    for _ in range(10):
        proposals = search.ask()
        search.tell([(p.genome, fake_result(p.genome)) for p in proposals])
        for proposal in proposals:
            assert proposal.operator
            seen |= {part.partition(":")[0] for part in proposal.operator.split("+")}
    assert seen >= {"base", "seed", "crossover", "stack", "add", "remove", "perturb"}


def test_first_single_edits_are_spread_over_the_kinds() -> None:
    kinds = {e.kind for e in (draw_edit(make_space(), random.Random(i)) for i in range(200)) if e}
    seeds = new_search(config=SearchConfig(population=2 * len(kinds) + 1)).ask()[1:]
    assert max(Counter(p.genome.edits[0].kind for p in seeds).values()) <= 3


def evolved(landscape: Landscape, seed: int, generations: int, config: SearchConfig) -> list[Result]:
    search, told = Search(make_space(), config, NAMES, {}, seed), list[Result]()
    for _ in range(generations):
        genomes = [p.genome for p in search.ask()]
        results = [landscape(g) for g in genomes]
        search.tell(list(zip(genomes, results, strict=True)))
        told += results
    return told


@pytest.mark.parametrize("pairs", [False, True])
def test_search_beats_random_genomes_at_equal_evaluations(pairs: bool) -> None:
    landscape = Landscape(pairs)
    found, guessed = list[float](), list[float]()
    for seed in range(3):
        results = evolved(landscape, seed, 12, SearchConfig(population=16))
        rng = random.Random(seed)
        guesses = [IDENTITY, *(random_genome(make_space(), rng, 6) for _ in range(len(results) - 1))]
        found.append(share(results))
        guessed.append(share([landscape(g) for g in guesses]))
    assert min(found) > max(guessed)


def test_stacked_single_edits_are_soon_better_than_the_best_of_them() -> None:
    landscape, better = Landscape(), 0
    for seed in range(4):
        search, best, stacks = Search(make_space(), SearchConfig(), NAMES, {}, seed), list[float](), list[float]()
        for generation in range(2):
            proposals = search.ask()
            results = [(p, landscape(p.genome)) for p in proposals]
            search.tell([(p.genome, r) for p, r in results])
            times = [(p.operator.startswith("stack"), r.runtime_ratio) for p, r in results if r.ok]
            (stacks if generation else best).extend(t for stacked, t in times if stacked or not generation)
        better += bool(stacks) and min(stacks) < min(best)
    assert better >= 3


def test_a_stalled_search_begins_afresh_from_its_archive() -> None:
    search = new_search(config=SearchConfig(population=12, stall=3))
    worse = fake_result(IDENTITY)
    for generation in range(8):
        proposals = search.ask()
        seeds = [p for p in proposals if p.operator.startswith("seed:")]
        assert len(seeds) == (11 if generation == 0 else 6 if generation in (4, 7) else 0)
        search.tell([(p.genome, replace(worse, fingerprint=p.genome.key)) for p in proposals])


def test_restore_refuses_records_that_are_not_all_there() -> None:
    search = new_search()
    asked = advance(search, 2)
    with pytest.raises(ValueError, match="expected 24 records"):
        new_search().restore(
            search.state(), [g.key for g in asked[:-1]], {g.key: (g, fake_result(g)) for g in asked[:-1]}
        )


def test_search_improves_on_its_seeds() -> None:
    search = new_search()
    asked = advance(search, 15)
    first = min(fake_result(g).runtime_ratio for g in asked[:12] if fake_result(g).ok)
    assert min(m.point[0] for m in search.population) < 0.8 * first


def test_a_space_without_choices_ends_instead_of_looping() -> None:
    empty = Search(Space((), {}, (), ()), CONFIG, OBJECTIVES, {}, 0)
    seeds = empty.ask()
    empty.tell([(p.genome, fake_result(p.genome)) for p in seeds])
    while seeds:
        seeds = empty.ask()
        empty.tell([(p.genome, fake_result(p.genome)) for p in seeds])
        assert empty.generation < 50

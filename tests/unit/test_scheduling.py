"""Schedule genes in a search: drawn, stored, told in words, and never of what is not permitted."""

import json
import random
from pathlib import Path

import pytest
from synthetic import fake_result, make_space

from fitness.job import OBJECTIVES
from gevo.config import SearchConfig
from gevo.fitting import Fitting
from gevo.genome import IDENTITY, Genome
from gevo.scheduling import Schedules, as_genes, gene_text
from gevo.search import Search
from gevo.variation import crossover, moved
from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.evolve import varied
from mlir_passes.schedule.genes import Before, Hold, from_plain
from mlir_passes.schedule.greedy import greedy
from mlir_passes.schedule.problem import START, Op, Problem, Tensor
from mlir_passes.schedule.steps import keep_all, replay

LAYERS = 8


def chain() -> Problem:
    """A training of a chain: each layer's output is read by the next layer and by its own gradient."""
    ops: list[Op] = []
    tensors = [Tensor("arg0", 100, START, (0, 2 * LAYERS - 1), final=True, pageable=False)]
    for n in range(LAYERS):
        ops.append(Op(f"op{n}", (n,), (n + 1,), 1.0, 1.0))
        tensors.append(Tensor(f"op{n}#0", 1000, n, tuple(sorted((n + 1, 2 * LAYERS - 1 - n)))))
    for n in range(LAYERS):
        number = LAYERS + n
        ops.append(Op(f"op{number}", tuple(sorted({number, LAYERS - n})), (number + 1,), 2.0, 2.0))
        tensors.append(Tensor(f"op{number}#0", 1000, number, (number + 1,) if n < LAYERS - 1 else ()))
    readers: list[list[int]] = [[] for _ in tensors]
    for number, op in enumerate(ops):
        for tensor in op.reads:
            readers[tensor].append(number)
    fixed = [Tensor(t.name, t.bytes, t.maker, tuple(r), t.updater, t.maker == START, t.pageable)
             for t, r in zip(tensors, readers, strict=True)]  # fmt: skip
    return Problem(tuple(ops), tuple(fixed))


def peak(problem: Problem, genome: Genome) -> int:
    decoded = decode(problem, from_plain(genome.schedule))
    return replay(decoded.problem, decoded.steps).peak_bytes


@pytest.fixture
def schedules() -> Schedules:
    problem = chain()
    most = replay(problem, keep_all(problem)).peak_bytes
    found = tuple(greedy(problem, int(most * share), allow={"remat"}) for share in (0.8, 0.6))
    assert all(found) and found[0] != found[1]
    return Schedules(problem, found)


def test_a_file_gives_back_what_was_saved(schedules: Schedules, tmp_path: Path) -> None:
    schedules.save(tmp_path / "schedules.json")
    assert Schedules.load(tmp_path / "schedules.json") == schedules


def test_drawn_schedules_are_new_valid_and_page_only_where_permitted(schedules: Schedules) -> None:
    rng, ways, genome = random.Random(3), set[str](), Genome()
    for _ in range(300):
        made = schedules.varied(genome, rng)
        assert made is not None
        assert made[0] != genome and Genome.parse(made[0].text) == made[0]
        genome = made[0]
        ways.add(made[1])
        assert not any(isinstance(g, Hold) and g.paged for g in from_plain(genome.schedule))
        peak(schedules.problem, genome)  # replays
    assert ways == {"solved", "region", "again", "hold", "keep", "order"}
    paging = Schedules(schedules.problem, schedules.found, paging=True)
    drawn = [paging.varied(Genome(), rng) for _ in range(60)]
    assert any(isinstance(g, Hold) and g.paged for made in drawn if made for g in from_plain(made[0].schedule))


def test_a_search_starts_from_the_schedules_and_keeps_varying_them(schedules: Schedules) -> None:
    search = Search(make_space(), SearchConfig(population=12), OBJECTIVES, {}, 1, schedules=schedules)
    first = [p.genome for p in search.ask()]
    assert first[0] == IDENTITY and first[1:3] == schedules.genomes()
    asked = list(first)
    for _ in range(6):
        search.tell([(g, fake_result(g)) for g in first])
        first = [p.genome for p in search.ask()]
        asked += first
    scheduled = {g.schedule for g in asked if g.schedule}
    assert len(scheduled) > 4 and any(g.schedule and g.edits for g in asked)


def test_without_schedules_no_draw_is_spent_on_them() -> None:
    draws = [moved(Genome(), make_fit(), random.Random(seed), 8)[1] for seed in range(200)]
    assert not any(how.startswith("schedule") for how in draws)


def test_crossover_splits_the_genes_that_differ(schedules: Schedules) -> None:
    one, two = schedules.genomes()
    left, right = crossover(one, two, make_fit(), random.Random(0))
    together = set(one.schedule) | set(two.schedule)
    assert set(left.schedule) | set(right.schedule) == together
    assert set(one.schedule) & set(two.schedule) <= set(left.schedule) & set(right.schedule)


def test_genes_are_told_in_words() -> None:
    hold = Hold("op17#0", False, (("op17", "op20"), ("op88", "op90")))
    assert gene_text(hold) == "op17#0 is computed again; in memory from op17 to op20, op88 to op90"
    assert gene_text(Hold("arg3", True, ())) == "arg3 is paged to the file for each use"
    assert gene_text(Before("op4", "op2")) == "op4 runs before op2"
    assert Genome(schedule=as_genes((hold,))).whole == ("schedule",)


def make_fit() -> Fitting:
    return Fitting(make_space())


def test_details_of_genes_are_told_and_kept_by_changes_of_other_genes() -> None:
    problem, rng = chain(), random.Random(0)
    names = [op.name for op in problem.ops]
    made = problem.tensors[1]
    gene = Hold(made.name, True, ((names[0], names[1]),), (names[-2],), ((names[-1], names[1]),))
    assert gene_text(gene).endswith(
        f"computed again at {names[-2]}; given back after {names[1]} when that runs for {names[-1]}"
    )
    genome, kept = Genome(schedule=as_genes([gene])), 0
    assert Genome.from_json(json.loads(json.dumps(genome.to_json()))) == genome
    for _ in range(30):
        child = varied(problem, from_plain(genome.schedule), rng)
        kept += gene in child
        assert all(hold == gene or not (hold.other or hold.leaves) for hold in child)
    assert kept > 5

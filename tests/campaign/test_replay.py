"""A recorded space answers with what was recorded; searches on it stay in it; the comparison's figures are right."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import make_space

from fitness.job import PoolEvent
from fitness.result import Measure, Outcome, Result
from gevo.config import SearchConfig
from gevo.errors import CampaignError, NotFound, RunDamaged
from gevo.genome import Genome
from gevo.objectives import floors, point
from gevo.recording import Candidate, candidates, choose, judged, record
from gevo.replay import Recording, Replay
from gevo.search import Search
from gevo.variation import crossover, draw_edit, mutate
from mlir_passes.edits import Edit
from mlir_passes.space import dangling

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("runtime_s", "peak_bytes", "error")
SPACE = make_space()
BASE = Result(
    Outcome.OK,
    fingerprint="base",
    objectives={
        "runtime_s": Measure(1e-3, "clock", 1e-5),
        "peak_bytes": Measure(1000, "plan"),
        "error": Measure(0.2, "accuracy"),
    },
    runtime_ratio=1.0,
    measured_s=1e-3,
)


def some_edits(count: int, seed: int = 3) -> list[Edit]:
    """Different edits that apply one after the other."""
    rng, edits, space = random.Random(seed), list[Edit](), SPACE
    while len(edits) < count:
        edit = draw_edit(SPACE, rng)
        if edit is not None and edit not in edits and edit.applies(space):
            edits.append(edit)
            space = edit.extend(space)
    return edits


def made_up(number: int) -> Result:
    """A result for each subset: its bits trade time against error; 5 and 7 fail, 2 does nothing."""
    if number & 0b101 == 0b101:
        return Result(Outcome.DIVERGED, "train", "metric 0 is not finite")
    number &= ~0b10
    if not number:
        return BASE
    bits = number.bit_count()
    ratio, error = round(1.0 - 0.1 * bits, 3), round(0.2 + 0.01 * number, 3)
    objectives = {
        "runtime_s": Measure(round(1e-3 * ratio, 6), "clock", 2e-5),
        "peak_bytes": Measure(1000 + 8 * (number & 4), "plan"),
        "error": Measure(error, "accuracy"),
    }
    return Result(Outcome.OK, "done", "", f"f{number}", objectives, ratio, round(1e-3 * ratio, 6))


def recording(count: int = 5) -> Recording:
    head = Recording("toy", SPACE, tuple(some_edits(count)), ("helps",) * count, BASE)
    return replace(head, results=tuple(made_up(n) for n in range(1 << count)))


class Counting:
    """An evaluator of the toy's subsets that stops as Ctrl-C does after some evaluations."""

    base = BASE

    def __init__(self, space: Recording, stop_after: int = 1 << 30) -> None:
        self.space, self.left, self.evaluated = space, stop_after, list[int]()

    def evaluate(
        self,
        genomes: Sequence[Mapping[str, Any]],
        known: Mapping[str, Result],
        on_event: Callable[[PoolEvent], None] | None = None,
    ) -> list[Result]:
        results: list[Result] = []
        for index, genome in enumerate(genomes):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            number = self.space.number(genome)
            assert number is not None
            self.evaluated.append(number)
            results.append(made_up(number))
            if on_event is not None:
                on_event(PoolEvent("finished", index, result=results[-1]))
        return results


def test_every_subset_is_answered_with_what_was_recorded_in_any_order_of_edits() -> None:
    space, rng = recording(), random.Random(0)
    for number in range(32):
        edits = [edit.to_json() for i, edit in enumerate(space.edits) if number >> i & 1]
        rng.shuffle(edits)
        answer = Replay(space).evaluate([{"edits": edits, "schedule": []}])[0]
        expected = made_up(number)
        assert replace(answer, answered_by="") == expected
        assert answer.answered_by == ("fingerprint" if expected.fingerprint == "base" else "")


def test_equal_programs_are_answered_by_their_fingerprint() -> None:
    space = recording()
    genomes = [space.genome(n).to_json() for n in (1, 3, 8)]
    first, same, other = Replay(space).evaluate(genomes, {"f8": made_up(8)})
    assert (first.answered_by, same.answered_by, other.answered_by) == ("", "fingerprint", "fingerprint")
    assert same.objectives == first.objectives and first.fingerprint == same.fingerprint == "f1"


def test_what_was_not_recorded_is_rejected_and_raises_nothing() -> None:
    space = recording()
    other = next(e for e in some_edits(12, seed=8) if e not in space.edits)
    one = space.genome(1)
    genomes = [Genome((other,)), replace(one, edits=(*one.edits, other)), replace(one, storage="f16")]
    genomes.append(replace(one, edits=one.edits * 2))
    events: list[PoolEvent] = []
    results = Replay(space).evaluate([g.to_json() for g in (*genomes, one)], {}, events.append)
    assert [r.outcome for r in results] == [Outcome.REJECTED] * 4 + [Outcome.OK]
    assert {r.detail for r in results[:4]} == {"not in the recorded space"}
    assert [e.result for e in events if e.kind == "finished"] == results


def test_a_file_gives_the_recording_back(tmp_path: Path) -> None:
    space = recording()
    space.save(tmp_path / "toy.json.gz")
    again = Recording.load(tmp_path / "toy.json.gz")
    assert again == space
    assert not dangling(again.space, again.edits)
    again.save(tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == (tmp_path / "toy.json.gz").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "other", "short", "missing"])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "toy.json.gz"
    recording().save(path)
    data = json.loads(gzip.decompress(path.read_bytes()))
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
        case "other":
            path.write_text("{}")
        case "short":
            path.write_bytes(gzip.compress(json.dumps({**data, "subsets": data["subsets"][:-1]}).encode()))
        case _:
            path.unlink()
    with pytest.raises(NotFound if damage == "missing" else RunDamaged, match=r"toy\.json\.gz") as error:
        Recording.load(path)
    assert error.value.todo


def test_a_search_on_a_menu_asks_for_recorded_genomes_only_and_finds_the_true_front() -> None:
    space = recording(4)
    floor = floors(BASE, NAMES)
    search = Search(space.menu, SearchConfig(population=6, max_edits=4), NAMES, floor, seed=2)
    found: dict[int, Result] = {}
    for _ in range(200):
        genomes = [p.genome for p in search.ask()]
        if not genomes or len(found) == 16:
            break
        results = Replay(space).evaluate([g.to_json() for g in genomes])
        numbers = [space.number(g.to_json()) for g in genomes]
        assert None not in numbers
        assert all(len(set(g.edits)) == len(g.edits) for g in genomes)
        found.update({n: r for n, r in zip(numbers, results, strict=True) if n is not None})
        search.tell(zip(genomes, results, strict=True))
    true = undominated([point(r, NAMES, floor) for r in space.results if r.ok])
    assert undominated([point(r, NAMES, floor) for r in found.values() if r.ok]) == true


def test_variation_on_a_menu_never_takes_an_entry_twice() -> None:
    space, rng = recording(6), random.Random(4)
    genomes = [Genome(), Genome()]
    for _ in range(300):
        genomes = [mutate(g, space.menu, rng, max_edits=6) for g in crossover(*genomes, space.menu, rng)]
        for genome in genomes:
            assert space.number(genome.to_json()) is not None
            assert max(Counter(genome.edits).values(), default=1) == 1


def test_an_entry_is_perturbed_into_a_free_entry_of_its_kind() -> None:
    space, rng = recording(8).menu, random.Random(1)
    for entry in space.entries:
        taken = space.after([entry])
        found = {entry.perturb(taken, rng) for _ in range(60)} - {None}
        assert found == {e for e in space.entries if e.kind == entry.kind and e != entry}


def test_an_interrupted_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole, part = recording(), tmp_path / "toy.part"
    head = replace(whole, results=())
    first, second = Counting(whole, stop_after=11), Counting(whole)
    with pytest.raises(KeyboardInterrupt):
        record(head, first, part)
    part.write_bytes(part.read_bytes()[:-7])  # the last line is torn, as by a power cut
    assert record(head, second, part) == whole
    assert sorted(first.evaluated[:-1] + second.evaluated) == list(range(32))


def test_an_unfinished_recording_that_is_damaged_is_one_clear_error(tmp_path: Path) -> None:
    whole, part = recording(), tmp_path / "toy.part"
    with pytest.raises(KeyboardInterrupt):
        record(whole, Counting(whole, stop_after=3), part)
    lines = part.read_text().splitlines()
    part.write_text("\n".join([*lines[:1], "nonsense", *lines[2:]]) + "\n")
    with pytest.raises(RunDamaged, match=r"toy\.part"):
        record(whole, Counting(whole), part)


def test_what_an_edit_does_alone_is_named_beyond_noise() -> None:
    def changed(ratio: float = 1.0, peak: int = 1000, error: float = 0.2) -> Result:
        measures = {"runtime_s": Measure(1e-3 * ratio, "clock"), "peak_bytes": Measure(peak, "plan")}
        objectives = {**measures, "error": Measure(error, "accuracy")}
        return Result(Outcome.OK, fingerprint="other", objectives=objectives, runtime_ratio=ratio)

    def told(result: Result) -> tuple[str, float]:
        found = judged(some_edits(1)[0], result, BASE)
        return found.label, round(found.gain, 6)

    assert told(BASE) == told(changed(ratio=0.97, error=0.203)) == ("neutral", 0.0)
    assert told(changed(ratio=0.9, error=0.39)) == ("helps", 0.1) and told(changed(peak=999)) == ("helps", 0.001)
    assert told(changed(ratio=0.9, error=0.05)) == ("helps", 0.75)
    assert told(changed(ratio=0.1, error=0.41)) == ("harms", 0.0)
    assert told(changed(error=0.21)) == told(changed(peak=1001)) == ("harms", 0.0)
    assert told(made_up(5)) == ("fails", 0.0)


def test_a_gain_that_is_not_seen_again_is_none_and_equal_programs_are_one_candidate() -> None:
    times: Counter[str] = Counter()

    class Noisy(Counting):
        """Times are what the key of a genome says; the first of each is 20 % too short."""

        def evaluate(self, genomes: Any, known: Any, on_event: Any = None) -> list[Result]:
            results: list[Result] = []
            for genome in genomes:
                key = Genome.from_json(genome).key
                times[key] += 1
                ratio = (0.9 if key[0] < "4" else 1.0) - 0.2 * (times[key] == 1)
                objectives = {"runtime_s": Measure(1e-3 * ratio, "clock"), "error": Measure(0.2, "accuracy")}
                results.append(Result(Outcome.OK, "done", "", key[:1], objectives, ratio, 1e-3 * ratio))
            return results

    base = replace(BASE, objectives={"runtime_s": Measure(1e-3, "clock"), "error": Measure(0.2, "accuracy")})
    noisy = Noisy(recording())
    noisy.base = base
    found = candidates(SPACE, noisy, random.Random(0))
    keys = [Genome((c.edit,)).key for c in found]
    assert len(found) == len({key[0] for key in keys}) == len({key[0] for key in times})
    assert all(
        (c.label, round(c.gain, 6)) == (("helps", 0.1) if k[0] < "4" else ("neutral", 0))
        for c, k in zip(found, keys, strict=True)
    )


def test_a_mix_of_edits_is_chosen_that_apply_together() -> None:
    labels = itertools.cycle(("helps", "helps", "harms", "neutral", "fails"))
    found = [Candidate(e, name, 0.1 * (name == "helps")) for e, name in zip(some_edits(40), labels, strict=False)]
    best = next(i for i, c in enumerate(found) if c.label == "helps" and c.edit.applies(SPACE))
    found[best] = replace(found[best], gain=0.5)
    chosen = choose(found, SPACE, 11, random.Random(0))
    assert found[best] in chosen
    assert len({c.edit for c in chosen}) == 11
    assert not dangling(SPACE, [c.edit for c in chosen])
    counts = Counter(c.label for c in chosen)
    assert counts["helps"] >= 6 and counts["harms"] >= 2 and counts["neutral"] >= 1 and counts["fails"] == 1
    assert choose(found, SPACE, 11, random.Random(0)) == chosen
    with pytest.raises(CampaignError, match="only 5 of 5"):
        choose(found[:5], SPACE, 6, random.Random(0))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the comparison; skipped where SciPy is not installed."""
    pytest.importorskip("scipy")
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import compare_search

    return compare_search


def test_hypervolume_is_the_share_of_the_box_that_is_dominated(bench: Any) -> None:
    rng, steps = random.Random(5), 8
    for _ in range(20):
        points = [tuple(rng.randint(0, 10) / steps for _ in range(3)) for _ in range(6)]
        cells = itertools.product(range(steps), repeat=3)
        hit = sum(any(all(steps * v <= c for v, c in zip(p, cell, strict=True)) for p in points) for cell in cells)
        assert bench.hypervolume(points) == pytest.approx(hit / steps**3)


def test_a_curve_is_the_hypervolume_of_what_was_found_so_far(bench: Any) -> None:
    rng = random.Random(6)
    points = [None if rng.random() < 0.3 else tuple(rng.random() * 1.2 for _ in range(3)) for _ in range(40)]
    found = bench.curve((0.5, 0.5, 0.5), points, 45)
    for at in range(45):
        so_far = [(0.5, 0.5, 0.5), *(p for p in points[: at + 1] if p is not None)]
        assert found[at] == pytest.approx(bench.hypervolume(so_far))


def test_p_values_are_corrected_as_holm_did_and_a12_counts_pairs(bench: Any) -> None:
    from search_stats import a12, against, holm

    # four tests with p 0.01, 0.04, 0.03, 0.005: the worked example of Wikipedia's "Holm-Bonferroni method"
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    one, two = [1.0, 2.0, 3.0], [2.0, 0.0, 1.0, 3.0]
    assert a12(one, two) == pytest.approx(7.5 / 12)  # 6 pairs won, 3 tied, counted by hand
    better = against([float(v) for v in range(11, 22)], {"worse": [float(v) for v in range(11)], "same": [5.0] * 11})
    # completely apart, 11 against 11: two-sided exact p is 2 / C(22, 11)
    assert better["worse"].p == pytest.approx(2 * 2 / 705432, rel=1e-6) and better["worse"].a12 == 1.0


def test_every_method_keeps_to_the_budget_and_to_the_space(bench: Any) -> None:
    space = recording(6)
    problem = bench.replayed(space, NAMES)
    true = bench.hypervolume([problem.scaled(p) for p in bench.true_points(problem, space)])
    for name in bench.present(list(bench.METHODS), problem):
        for evaluations in (20, 50):
            points = bench.run(problem, name, evaluations, seed=1)
            assert len(points) <= evaluations
            scaled = [p and problem.scaled(p) for p in points]
            assert bench.curve(problem.scaled(problem.point(BASE)), scaled, 50)[-1] <= true * (1 + 1e-9)
        assert bench.run(problem, name, 40, seed=3) == bench.run(problem, name, 40, seed=3)


def test_on_the_recorded_twofc_gevo_finds_more_than_random_search_and_no_more_than_there_is(bench: Any) -> None:
    with bench.opened(str(BENCHMARKS / "data" / "twofc.json.gz"), NAMES, 1) as (problem, true):
        found = bench.compared(problem, ["gevo", "random search"], evaluations=100, seeds=5)
    ends = {name: sorted(outcome.final) for name, outcome in found.items()}
    assert ends["gevo"][2] > ends["random search"][2]
    assert 0.9 * true < ends["gevo"][2] <= ends["gevo"][4] <= true * (1 + 1e-9)


def test_what_was_asked_before_costs_nothing_and_the_base_is_free(bench: Any) -> None:
    space = recording(5)
    book = bench.Book(bench.replayed(space, NAMES), 3)
    first = book.results([space.genome(0), space.genome(1), space.genome(1), space.genome(5)])
    assert len(book.points) == 2 and book.points[1] is None and first[1] == first[2]
    book.results([space.genome(1), space.genome(8)])
    with pytest.raises(bench.Spent):
        book.results([space.genome(9)])
    assert len(book.points) == 3


def undominated(points: list[tuple[float, ...]]) -> set[tuple[float, ...]]:
    """The points that no other dominates, by brute force."""
    return {p for p in points if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)}

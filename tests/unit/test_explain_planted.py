"""Explanations of planted landscapes: what they find is what was planted."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import make_space

from fitness.job import Context
from fitness.result import Measure, Outcome, Result
from gevo.campaign import TimeUp
from gevo.explain.effects import ADDITIVE, ANTAGONISM, SYNERGY, TOGETHER, effects, pairs, single_subsets, sums
from gevo.explain.estimate import Estimate, estimate
from gevo.explain.explain import Measuring
from gevo.explain.lab import Lab, Plan, scales
from gevo.explain.left_out import LeftOut, known, measured
from gevo.explain.minimise import Minimiser
from gevo.explain.view import line
from gevo.genome import Genome
from gevo.intervals import T_975
from mlir_passes.edits import Edit
from mlir_passes.edits.base import Use
from mlir_passes.edits.delete import Delete
from mlir_passes.edits.rewire import Rewire

OBJECTIVES = ("runtime_s", "peak_bytes", "error")
ROUNDS = 5


def edit(number: int) -> Edit:
    """One of ten edits of the made-up space that need none of the others."""
    return Rewire(f"op{number + 1}", 1, Use("arg0"))


@dataclass(frozen=True)
class Landscape:
    """Effects by gene and by pair, as log ratios of runtime and differences of error; what fails alone; noise."""

    runtime: Mapping[int, float]
    runtime_pairs: Mapping[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    error: Mapping[int, float] = field(default_factory=dict[int, float])
    error_pairs: Mapping[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    fails: Callable[[frozenset[int]], bool] = lambda genes: False
    silent: frozenset[int] = frozenset()  # genes that give the same program
    noise: float = 0.002
    error_noise: float = 0.0
    draw: int = 0  # of the noise

    def result(self, genome: Genome, seed: int) -> Result:
        genes = frozenset(i for i in range(10) if edit(i) in genome.edits)
        if self.fails(genes):
            return Result(Outcome.DIVERGED, "quality", "not finite", str(sorted(genes)))
        fingerprint = str(sorted(genes - self.silent))
        rng = random.Random(f"{fingerprint} {seed} {self.draw}")
        log = sum(v for g, v in self.runtime.items() if g in genes)
        log += sum(v for p, v in self.runtime_pairs.items() if genes >= set(p))
        ratio = math.exp(log + rng.gauss(0, self.noise))
        error = 0.1 + sum(v for g, v in self.error.items() if g in genes) + rng.gauss(0, self.error_noise)
        error += sum(v for p, v in self.error_pairs.items() if genes >= set(p))
        return Result(
            Outcome.OK,
            fingerprint=fingerprint,
            objectives={
                "runtime_s": Measure(ratio * 1e-3, "clock", 2 * self.noise * 1e-3),
                "peak_bytes": Measure(1e5, "plan"),
                "error": Measure(error, "accuracy:validation"),
            },
            runtime_ratio=ratio,
            measured_s=ratio * 1e-3,
        )


class PlantedPool:
    """A pool over a landscape that answers known programs without evaluating them, as the real one does."""

    def __init__(self, landscape: Landscape, seed: int, log: list[str]) -> None:
        self._landscape, self._seed, self._log = landscape, seed, log

    def __enter__(self) -> "PlantedPool":
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    @property
    def base(self) -> Result:
        return self._landscape.result(Genome(), self._seed)

    def evaluate(
        self, genomes: Sequence[Mapping[str, Any]], known: Mapping[str, Result], on_event: Callable[[Any], None]
    ) -> list[Result]:
        found: list[Result] = []
        for index, data in enumerate(genomes):
            result = self._landscape.result(Genome.from_json(data), self._seed)
            if result.fingerprint in known:
                result = replace(known[result.fingerprint], answered_by="fingerprint")
            else:
                self._log.append(result.fingerprint)
            found.append(result)
            on_event(SimpleNamespace(kind="finished", index=index, result=result))
        return found


def lab(tmp_path: Path, landscape: Landscape, count: int, **more: Any) -> tuple[Lab, list[str]]:
    plan = Plan(tuple(Context("", "", "", OBJECTIVES, seeds=(s,)) for s in range(1, ROUNDS + 1)), ROUNDS)
    genome = Genome(tuple(edit(i) for i in range(count)))
    log: list[str] = []
    made = Lab(
        genome,
        make_space(),
        plan,
        lambda context: PlantedPool(landscape, context.seeds[0], log),  # type: ignore[arg-type,return-value]
        tmp_path / "kept.json",
        **more,
    )
    return made, log


def scales_of(landscape: Landscape) -> Any:
    return scales(landscape.result(Genome(), 0), OBJECTIVES)


def minimised(tmp_path: Path, landscape: Landscape, count: int) -> tuple[int, ...]:
    made, _ = lab(tmp_path, landscape, count)
    return Minimiser(made, scales_of(landscape)).run()


@pytest.mark.parametrize("planted", [{3}, {0, 9}, {1, 4, 5}, {2, 3, 6, 7, 8}])
def test_minimised_edits_are_the_planted_ones(tmp_path: Path, planted: set[int]) -> None:
    landscape = Landscape({g: -0.1 - 0.02 * g for g in planted})
    assert set(minimised(tmp_path, landscape, 10)) == planted


def test_an_edit_that_lowers_the_error_only_is_kept(tmp_path: Path) -> None:
    landscape = Landscape({2: -0.2}, error={5: -0.02}, error_noise=0.002)
    assert minimised(tmp_path, landscape, 8) == (2, 5)


def test_an_edit_that_does_harm_goes_and_its_cost_is_not_lost_again(tmp_path: Path) -> None:
    landscape = Landscape({1: 0.05, 3: -0.04, 4: -0.3})
    assert minimised(tmp_path, landscape, 6) == (3, 4)


def test_two_edits_that_cancel_each_other_go_as_a_pair(tmp_path: Path) -> None:
    landscape = Landscape({0: -0.2, 2: 0.3, 4: 0.0}, {(2, 4): -0.3}, fails=lambda g: 4 in g and 2 not in g)
    assert minimised(tmp_path, landscape, 6) == (0,)
    # without edit 4 the runtime is worse, without edit 2 the program fails: only a pair can go


def test_of_edits_that_change_nothing_none_is_left(tmp_path: Path) -> None:
    assert minimised(tmp_path, Landscape({}), 7) == ()


def left_out(tmp_path: Path, landscape: Landscape, count: int) -> tuple[tuple[int, ...], LeftOut]:
    made, _ = lab(tmp_path, landscape, count)
    measuring = Measuring(made, scales_of(landscape), lambda text: None)
    kept = measuring.run()
    found = known(made, kept, scales_of(landscape))
    assert found == measured(made, kept, scales_of(landscape)) and measuring.left == 0
    return kept, found


def test_an_edit_that_destroys_and_the_one_that_repairs_it_are_neutral_only_together(tmp_path: Path) -> None:
    """Edit 2 makes the program fail without 4; 5 takes back what 1 costs in time; 3 does harm; 6 does nothing."""
    landscape = Landscape({0: -0.3, 1: 0.3, 3: 0.05}, {(1, 5): -0.3}, fails=lambda genes: 2 in genes and 4 not in genes)
    kept, found = left_out(tmp_path, landscape, 7)
    assert kept == (0,)
    assert found == LeftOut(neutral=(6,), together=((1, 5), (2, 4)), harmful=(3,))


def test_one_edit_may_repair_two_and_two_may_repair_one(tmp_path: Path) -> None:
    two = Landscape({0: -0.3}, fails=lambda g: bool(g & {1, 2}) and 3 not in g)
    (tmp_path / "two").mkdir()
    assert left_out(tmp_path / "two", two, 5) == ((0,), LeftOut(neutral=(4,), together=((1, 2, 3),)))
    half = Landscape({0: -0.3, 1: 0.2, 2: 0.2}, {(1, 3): -0.2, (2, 3): -0.2}, fails=lambda g: 3 in g and 0 not in g)
    (tmp_path / "half").mkdir()
    assert left_out(tmp_path / "half", half, 4) == ((0,), LeftOut(together=((1, 2, 3),)))
    both = Landscape({0: -0.3}, fails=lambda g: 1 in g and not {2, 3} <= g)
    (tmp_path / "both").mkdir()
    assert left_out(tmp_path / "both", both, 4) == ((0,), LeftOut(together=((1, 2, 3),)))


def test_a_destroyed_error_is_neutral_only_with_its_repair_even_where_nothing_is_kept(tmp_path: Path) -> None:
    landscape = Landscape({}, error={0: 0.5}, error_pairs={(0, 1): -0.5}, error_noise=0.002)
    assert left_out(tmp_path, landscape, 3) == ((), LeftOut(neutral=(2,), together=((0, 1),)))


def test_what_does_nothing_is_said_to_do_nothing_by_itself_in_nearly_all_of_many_draws(tmp_path: Path) -> None:
    wrong = 0
    for draw in range(30):
        landscape = Landscape({0: -0.3}, noise=0.01, error_noise=0.004, draw=draw)
        (tmp_path / str(draw)).mkdir()
        made, _ = lab(tmp_path / str(draw), landscape, 4)
        found = measured(made, (0,), scales_of(landscape))
        wrong += 3 - len(found.neutral)
    assert wrong <= 6  # of 90, each looked at twice in two objectives at 99 %


def test_what_was_not_measured_is_not_called_neutral(tmp_path: Path) -> None:
    landscape = Landscape({0: -0.2}, fails=lambda genes: 1 in genes and 2 not in genes)
    made, _ = lab(tmp_path, landscape, 4)
    assert known(made, (0,), scales_of(landscape)) == LeftOut(unknown=(1, 2, 3))


def test_removing_what_gives_the_same_program_is_free(tmp_path: Path) -> None:
    landscape = Landscape({0: -0.2}, silent=frozenset({1, 2, 3}))
    made, log = lab(tmp_path, landscape, 4)
    assert Minimiser(made, scales_of(landscape)).run() == (0,)
    assert set(log) == {"[]", "[0]"}


def test_noise_alone_is_no_effect_in_nearly_all_of_many_draws(tmp_path: Path) -> None:
    """Two objectives with 95 % intervals that are looked at up to three times: about 5 to 10 % are wrong."""
    kept = 0
    for draw in range(100):
        landscape = Landscape({}, noise=0.02, error_noise=0.01, draw=draw)
        (tmp_path / str(draw)).mkdir()
        made, _ = lab(tmp_path / str(draw), landscape, 1)
        kept += bool(Minimiser(made, scales_of(landscape)).run())
    assert kept <= 15


def planted_pairs() -> Landscape:
    """0 and 1 add up; 2 and 3 help each other; 4 and 5 stand in each other's way; 6 and 7 work only together."""
    singles = {0: -0.1, 1: -0.2, 2: -0.1, 3: -0.1, 4: -0.2, 5: -0.2}
    return Landscape(singles, {(2, 3): -0.15, (4, 5): 0.15, (6, 7): -0.25})


def test_effects_alone_and_within_are_the_planted_ones(tmp_path: Path) -> None:
    landscape = planted_pairs()
    made, _ = lab(tmp_path, landscape, 8)
    genes = made.all
    made.need(single_subsets(genes), ROUNDS)
    within = {0: -0.1, 1: -0.2, 2: -0.25, 3: -0.25, 4: -0.05, 5: -0.05, 6: -0.25, 7: -0.25}
    alone = {**landscape.runtime, 6: 0.0, 7: 0.0}
    for effect in effects(made, genes, scales_of(landscape)):
        for found, true in ((effect.alone, alone), (effect.within, within)):
            value = found["runtime_s"]
            assert value.mean == pytest.approx(true[effect.gene], abs=0.006)
            assert value.low - 0.004 < true[effect.gene] < value.high + 0.004
            assert found["error"].mean == 0.0 and found["peak_bytes"].mean == 0.0


def test_epistasis_is_named_as_planted_and_nowhere_else(tmp_path: Path) -> None:
    landscape = planted_pairs()
    made, _ = lab(tmp_path, landscape, 8)
    made.need([(), *((g,) for g in made.all), *combinations(made.all, 2)], ROUNDS)
    names = {p.genes: p.names["runtime_s"] for p in pairs(made, made.all, scales_of(landscape))}
    special = {(2, 3): SYNERGY, (4, 5): ANTAGONISM, (6, 7): TOGETHER}
    assert names == {pair: special.get(pair, ADDITIVE) for pair in combinations(range(8), 2)}
    surplus = {p.genes: p.surplus["runtime_s"].mean for p in pairs(made, made.all, scales_of(landscape))}
    assert surplus[2, 3] == pytest.approx(-0.15, abs=0.01) and surplus[4, 5] == pytest.approx(0.15, abs=0.01)


def test_an_edit_that_fails_without_its_partner_is_said_to_work_only_together(tmp_path: Path) -> None:
    landscape = Landscape({0: -0.1, 1: -0.1}, fails=lambda genes: 1 in genes and 0 not in genes)
    made, _ = lab(tmp_path, landscape, 2)
    made.need([*single_subsets((0, 1)), (0, 1)], ROUNDS)
    (pair,) = pairs(made, (0, 1), scales_of(landscape))
    one, two = effects(made, (0, 1), scales_of(landscape))
    assert pair.name == TOGETHER and two.alone_ends == "diverged" and one.without_ends == "diverged"
    assert "runtime_s" not in two.alone and one.alone["runtime_s"].mean == pytest.approx(-0.1, abs=0.01)


def test_sums_of_single_effects_stand_beside_the_joint_effect(tmp_path: Path) -> None:
    landscape = planted_pairs()
    made, _ = lab(tmp_path, landscape, 8)
    made.need(single_subsets(made.all), ROUNDS)
    found = sums(made, made.all, scales_of(landscape)[0])
    joint = sum(landscape.runtime.values()) + sum(landscape.runtime_pairs.values())
    assert found.joint is not None and found.alone is not None and found.within is not None
    assert found.joint.mean == pytest.approx(joint, abs=0.01)
    assert found.alone.mean == pytest.approx(sum(landscape.runtime.values()), abs=0.03)
    assert found.within.mean == pytest.approx(-0.1 - 0.2 - 0.5 - 0.1 - 0.5, abs=0.03)


def test_a_second_lab_evaluates_nothing_again_and_finds_the_same(tmp_path: Path) -> None:
    landscape = planted_pairs()
    made, log = lab(tmp_path, landscape, 8)
    first = Measuring(made, scales_of(landscape), lambda text: None)
    with made:
        kept, evaluated = first.run(), len(log)
    again, log = lab(tmp_path, landscape, 8)
    second = Measuring(again, scales_of(landscape), lambda text: None)
    assert second.run() == kept == tuple(range(8)) and evaluated > 100 and log == [] and second.left == 0
    assert effects(again, kept, scales_of(landscape)) == effects(made, kept, scales_of(landscape))


def test_an_interrupted_lab_keeps_what_was_evaluated_and_goes_on(tmp_path: Path) -> None:
    landscape = planted_pairs()

    def stop(after: int) -> Callable[[Lab], None]:
        def watch(made: Lab) -> None:
            if made.evaluated == after:
                raise KeyboardInterrupt

        return watch

    made, log = lab(tmp_path, landscape, 8, watch=stop(20))
    with pytest.raises(KeyboardInterrupt), made:
        Measuring(made, scales_of(landscape), lambda text: None).run()
    again, more = lab(tmp_path, landscape, 8)
    Measuring(again, scales_of(landscape), lambda text: None).run()
    (tmp_path / "whole").mkdir()
    whole, all_at_once = lab(tmp_path / "whole", landscape, 8)
    Measuring(whole, scales_of(landscape), lambda text: None).run()
    assert len(log) == 20 and len(log) + len(more) == len(all_at_once)


def test_when_time_is_up_what_is_there_is_told(tmp_path: Path) -> None:
    landscape = planted_pairs()
    ticks = iter(range(10_000))
    made, log = lab(tmp_path, landscape, 8, deadline=30.0, clock=lambda: float(next(ticks)))
    measuring = Measuring(made, scales_of(landscape), lambda text: None)
    kept = measuring.run()
    assert measuring.stopped and kept and 0 < len(log) < 40 and measuring.left > 0
    with pytest.raises(TimeUp):
        made.results((0,), ROUNDS)


def test_intervals_are_students(tmp_path: Path) -> None:
    """Against the textbook: 2.1, 1.9, 2.0 have mean 2 and standard error 0.1/sqrt(3)."""
    found = estimate([2.1, 1.9, 2.0])
    assert found is not None and found.high - found.mean == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert estimate([1.0]) is None and T_975[3] == 2.776
    assert Estimate(-0.2, -0.3, -0.1).beyond(0.01) == -1 and Estimate(-0.2, -0.5, 0.1).beyond(0.01) == 0
    assert Estimate(0.005, 0.004, 0.006).beyond(0.01) == 0


def test_an_edit_that_needs_another_leaves_with_it(tmp_path: Path) -> None:
    """A copy that a later edit wires in: without the copy, that edit points at nothing."""
    from mlir_passes.edits.copy import Copy

    space = make_space()
    copy = next(c for s in range(200) if (c := Copy.draw(space, random.Random(s))) is not None and c.applies(space))
    user = Delete(copy.new_site, (Use("arg1" if space.types[f"{copy.site}#0"] == space.types["arg1"] else "arg0"),))
    genome = Genome((copy, user))
    plan = Plan((Context("", "", "", OBJECTIVES),), 3)
    made = Lab(genome, space, plan, lambda context: None, tmp_path / "kept.json")  # type: ignore[arg-type,return-value]
    assert made.closed((1,)) == () and made.closed((0, 1)) == (0, 1)


def test_progress_says_what_is_left_and_how_long_that_takes() -> None:
    text = line("pairs of 3 edits", 5, 15, 10.0)
    assert text.startswith("######..................") and "5 evaluated, about 15 left, about 30 s" in text
    assert "time unknown" in line("start", 0, 10, 0.0) and text.endswith("pairs of 3 edits")

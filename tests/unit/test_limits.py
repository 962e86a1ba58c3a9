import json
import random
from dataclasses import replace

import pytest
from synthetic import fake_result, make_space

from fitness.job import OBJECTIVES
from fitness.result import Measure, Outcome, Result
from gevo.config import CampaignConfig, SearchConfig
from gevo.front import front
from gevo.genome import IDENTITY, Genome
from gevo.limits import limits, limits_text, over_text, parse_deadline, slowest, violation
from gevo.record import Record, base_record, record_id
from gevo.search import Search
from gevo.variation import draw_edit

BASE = fake_result(IDENTITY)  # 1 ms, 100,000 bytes, error 0.10


def result(ratio: float = 1.0, error: float = 0.10) -> Result:
    measures = {"runtime_s": Measure(1e-3 * ratio, "clock"), "error": Measure(error, "accuracy")}
    return Result(Outcome.OK, objectives={**BASE.objectives, **measures}, runtime_ratio=ratio)


@pytest.mark.parametrize(
    ("text", "parsed"), [("1.1x", (1.1, "x")), ("3ms", (3.0, "ms")), ("250 us", (250.0, "us")), ("2S", (2.0, "s"))]
)
def test_deadlines_are_ratios_or_times(text: str, parsed: tuple[float, str]) -> None:
    assert parse_deadline(text) == parsed


@pytest.mark.parametrize("text", ["", "fast", "1.1", "0x", "-3ms", "3min"])
def test_other_deadlines_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a ratio to the base such as"):
        parse_deadline(text)


@pytest.mark.parametrize(("deadline", "times"), [("", 20.0), ("1.1x", 3.3), ("0.5x", 1.5), ("9x", 20.0), ("3ms", 20.0)])
def test_what_is_far_over_the_deadline_in_its_first_steps_is_not_measured(deadline: str, times: float) -> None:
    assert slowest(CampaignConfig("toy", deadline=deadline)) == pytest.approx(times)


def test_limits_refer_to_the_base() -> None:
    assert limits(BASE, CampaignConfig("toy")) == {}
    config = CampaignConfig("toy", deadline="0.5ms", max_error_increase=0.02, memory_budget=4096)
    assert limits(BASE, config) == {"runtime_s": 0.5, "peak_bytes": 4096.0, "error": pytest.approx(0.12)}
    assert limits(BASE, CampaignConfig("toy", deadline="1.1x")) == {"runtime_s": 1.1}
    assert limits_text({"runtime_s": 1.1, "error": 0.12}) == "runtime_s at most 1.100x, error at most 0.1200"


def test_what_is_limited_is_measured_and_carried_through_json() -> None:
    config = CampaignConfig("toy", objectives=("peak_bytes",), deadline="1.1x", max_error_increase=0.0)
    assert config.measured == ("runtime_s", "peak_bytes", "error")
    assert CampaignConfig("toy", objectives=("peak_bytes",)).measured == ("peak_bytes",)
    assert CampaignConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    old = {k: v for k, v in config.to_json().items() if k not in ("deadline", "max_error_increase")}
    assert CampaignConfig.from_json(old) == CampaignConfig("toy", objectives=("peak_bytes",))


def test_violation_is_the_sum_of_shares_over_the_limits() -> None:
    limit = {"runtime_s": 1.1, "error": 0.12}
    assert violation(result(1.1, 0.12), limit, {}) == 0.0
    assert violation(result(1.32, 0.12), limit, {}) == pytest.approx(0.2)
    assert violation(result(1.32, 0.18), limit, {}) == pytest.approx(0.7)
    assert violation(result(1.11), limit, {"runtime_s": 0.02}) == 0.0  # within the noise
    assert violation(result(error=0.001), {"error": 0.0}, {}) == pytest.approx(1.0)
    assert over_text(result(1.32, 0.18), limit, {}) == "runtime_s 1.320x, at most 1.100x; error 0.1800, at most 0.1200"
    assert over_text(result(1.0, 0.12), limit, {}) == ""


def records(count: int = 60) -> list[Record]:
    rng, space = random.Random(5), make_space()
    genomes = list(dict.fromkeys(Genome((e,)) for e in (draw_edit(space, rng) for _ in range(count)) if e))
    made = [Record(record_id(i), 0, g.key, g.text, (), 0.0, fake_result(g)) for i, g in enumerate(genomes, 2)]
    return [base_record(BASE), *made]


def test_the_front_is_that_of_what_meets_the_limits() -> None:
    everyone, limit = records(), {"error": 0.105, "runtime_s": 0.95}
    found = front(everyone, OBJECTIVES, {}, limits=limit)
    assert found is not None and found.members and not found.base_on_front
    assert found.base_over == "runtime_s 1.000x, at most 0.950x"
    fit = [r for r in everyone if r.result.ok and not violation(r.result, limit, {})]
    only = front([everyone[0], *fit], OBJECTIVES, {})
    assert only is not None
    assert [r.id for r in found.members] == [r.id for r in only.members if not r.is_base]
    free = front(everyone, OBJECTIVES, {})
    assert free is not None and len(free.members) > len(found.members) and free.base_over == ""


def test_a_search_is_led_to_a_limit_that_nothing_meets_at_first() -> None:
    config = SearchConfig(population=12)
    limit = {"runtime_s": 0.35}
    search = Search(make_space(), config, ("peak_bytes", "error"), {}, 3, limits=limit)
    over: list[float] = []
    for _ in range(14):
        asked = [p.genome for p in search.ask()]
        search.tell([(g, fake_result(g)) for g in asked])
        over.append(min(m.over for m in search.population))
    assert over[0] > 0.2 and over[-1] == 0.0
    assert over == sorted(over, reverse=True)
    assert all(m.over == 0.0 for m in search.population)


def test_infeasible_results_enter_only_where_there_is_room() -> None:
    search = Search(make_space(), SearchConfig(population=12), OBJECTIVES, {}, 3, limits={"error": 0.105})
    for _ in range(5):
        asked = [p.genome for p in search.ask()]
        search.tell([(g, fake_result(g)) for g in asked])
    within = [m for m in search.population if not m.over]
    assert within and search.population[: len(within)] == within
    assert replace(search.population[0], over=0.0) == search.population[0]

"""Measured again: each kind of record gets its verdict, what is kept and missing, and who may see it."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic import FakePool
from toy import begin, essence, search

from fitness.job import OBJECTIVES, Context
from fitness.result import Measure, Outcome, Result
from gevo import launch
from gevo.config import Budget
from gevo.confirm import FEW, Confirming, Progress, confirm_front, wave
from gevo.confirm_setup import REPETITIONS, Setup, setup
from gevo.confirm_setup import begin as begin_confirmation
from gevo.confirmed import Confirmation, Confirmed, Verdict, load
from gevo.errors import RunDamaged
from gevo.front import front
from gevo.genome import IDENTITY, Genome
from gevo.objectives import bounds, floors
from gevo.pick import best, best_first
from gevo.record import Record, record_id
from gevo.store import Run

ROWS = 1000
SEEDS = (1, 2, 3, 4, 5)
BASE = {"ratio": 1.0, "peak": 1000, "energy": 1.0, "error": 0.10}
# What the search measured, and what is true: the ratio of runtime, and the errors of the test split.
PLANTED: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "real": ({"ratio": 0.80, "error": 0.11}, {"ratio": 0.82, "error": 0.11}),
    "fast": ({"ratio": 0.85}, {"ratio": 0.87}),
    "lucky": ({"ratio": 0.90}, {"ratio": 1.0}),
    "overfitted": ({"ratio": 0.95, "error": 0.07}, {"ratio": 0.95, "error": 0.15}),
    "worse": ({"ratio": 0.78, "error": 0.11}, {"ratio": 0.78, "error": 0.16}),
    "as-said": ({"ratio": 0.78, "error": 0.14}, {"ratio": 0.78, "error": 0.145}),
    "gone": ({"error": 0.09}, {"error": 0.103}),
    "better": ({"error": 0.06}, {"error": 0.07}),
    "small": ({"ratio": 1.02, "peak": 600}, {"ratio": 1.02}),
    "smaller-not-faster": ({"ratio": 0.92, "peak": 900}, {"ratio": 1.0}),
    "bytes-not-faster": ({"ratio": 0.91, "peak": 999}, {"ratio": 1.0}),
    "fails": ({"ratio": 0.70}, {"ratio": 0.70, "fails": 1}),
}
VERDICTS = {
    "real": Verdict.HOLDS,
    "fast": Verdict.HOLDS,
    "lucky": Verdict.LUCKY,
    "overfitted": Verdict.OVERFITTED,
    "worse": Verdict.OVERFITTED,
    "as-said": Verdict.HOLDS,
    "gone": Verdict.OVERFITTED,
    "better": Verdict.HOLDS,
    "small": Verdict.HOLDS,
    "smaller-not-faster": Verdict.HOLDS,
    "bytes-not-faster": Verdict.LUCKY,
    "fails": Verdict.FAILED,
}


def as_found(given: Mapping[str, float], fingerprint: str) -> Result:
    had = {**BASE, **given}
    objectives = {
        "runtime_s": Measure(had["ratio"] * 1e-3, "clock", 0.005e-3),
        "peak_bytes": Measure(had["peak"], "plan"),
        "energy_j": Measure(had["energy"], "model:fake"),
        "error": Measure(had["error"], "accuracy:validation"),
    }
    return Result(
        Outcome.OK,
        fingerprint=fingerprint,
        objectives=objectives,
        runtime_ratio=had["ratio"],
        measured_s=1e-3,
        stage_s={"check": 0.1, "quality": 1.0, "timing": 0.1},
    )


def planted(name: str, number: int) -> Record:
    site = f"op{list(PLANTED).index(name)}"  # a genome is a name here: what its edit does plays no part
    genome = Genome.from_json({"edits": [{"kind": "delete", "site": site, "instead": []}], "schedule": []})
    return Record(record_id(number), 0, name, genome.text, (), 1.0, as_found(PLANTED[name][0], name))


BASE_RECORD = Record(record_id(1), 0, IDENTITY.key, IDENTITY.text, (), 0.0, as_found({}, "base"))
RECORDS = {name: planted(name, number) for number, name in enumerate(PLANTED, 2)}
NAMES = {record.id: name for name, record in RECORDS.items()}
ALL = [BASE_RECORD, *RECORDS.values()]


class World:
    """Pools whose answers are the planted truth with noise; it remembers what they were opened with and asked."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.opened: list[tuple[Context, int]] = []
        self.asked: list[list[str]] = []
        self.stop_after, self.answered, self.noise = stop_after, 0, random.Random(5)

    def open(self, context: Context, workers: int, base: Result | None) -> Any:
        self.opened.append((context, workers))
        return Pool(self, context, base)


class Pool:
    def __init__(self, world: World, context: Context, base: Result | None) -> None:
        self.world, self.context = world, context
        self.base = base or self._scored(BASE["error"])

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def evaluate(self, genomes: Sequence[Any], known: Mapping[str, Result], on_event: Callable[[Any], None]) -> None:
        names = [list(PLANTED)[int(g["edits"][0]["site"][2:])] for g in genomes]
        self.world.asked.append(names)
        for index, name in enumerate(names):
            if self.world.answered == self.world.stop_after:
                raise KeyboardInterrupt
            self.world.answered += 1
            on_event(SimpleNamespace(kind="finished", index=index, result=self._answer(name)))

    def _answer(self, name: str) -> Result:
        truth = {**BASE, **PLANTED[name][1]}
        if "fails" in truth:
            return Result(Outcome.DIVERGED, "quality", "seed 3: not finite by step 20")
        if "error" in self.context.objectives:
            return self._scored(truth["error"])
        ratio = truth["ratio"] * (1.0 + self.world.noise.gauss(0.0, 0.004))
        return Result(Outcome.OK, objectives={"runtime_s": Measure(ratio, "clock")}, runtime_ratio=ratio)

    def _scored(self, error: float) -> Result:
        each = tuple(error + 0.02 * math.sin(seed) + self.world.noise.gauss(0.0, 0.001) for seed in self.context.seeds)
        measure = Measure(float(np.mean(each)), "accuracy:test", 0.0, each)
        return Result(Outcome.OK, objectives={"error": measure})


def made(folder: Path, seeds: Sequence[int] = SEEDS) -> Path:
    """A prepared workload with initial states for these seeds beside 0, which the search used."""
    folder.mkdir()
    batch = [{"name": n, "shape": [8, 2], "dtype": "float32"} for n in ("x", "y")]
    signature = {"name": "toy", "frontend": "none", "batch": batch, "quality": {"steps": 30, "seeds": [0]}}
    (folder / "signature.json").write_text(json.dumps(signature))
    (folder / "data.json").write_text('{"folder": "."}')
    for seed in (0, *seeds):
        (folder / f"init_{seed}.npz").touch()
    for split, rows in (("validation", 500), ("test", ROWS)):
        for leaf in range(2):
            np.save(folder / f"{split}_{leaf}.npy", np.zeros((rows, 2), np.float32))
    return folder


def manifest(names: Sequence[str] = OBJECTIVES) -> dict[str, Any]:
    base = BASE_RECORD.result
    return {
        "config": {"objectives": list(names), "seed": 7},
        "floors": floors(base, names),
        "bounds": bounds(base, names),
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("toy") / "prepared")


@pytest.fixture(scope="module")
def this(prepared: Path) -> Setup:
    return setup(manifest(), Context(str(prepared), "base.mlir", "cache"), BASE_RECORD, workers=3)


def confirming(this: Setup, world: World, found: Confirmation | None = None, **more: Any) -> Confirming:
    keep = more.pop("keep", lambda new: None)
    return Confirming(this, begin_confirmation(this, found, Path("run")), world.open, keep, **more)


@pytest.fixture(scope="module")
def whole(this: Setup) -> Confirmation:
    """All planted records, confirmed."""
    done = confirming(this, World())
    assert done.measure(list(RECORDS.values()))
    return done.found


@pytest.mark.parametrize("name", list(PLANTED))
def test_each_kind_of_record_gets_its_verdict(whole: Confirmation, name: str) -> None:
    row = whole.rows[RECORDS[name].id]
    assert row.verdict is VERDICTS[name], row
    assert row.words


def test_words_say_what_is_there_and_what_is_not(whole: Confirmation) -> None:
    words = {name: whole.rows[record.id].words for name, record in RECORDS.items()}
    assert words["real"] == "faster"
    assert words["smaller-not-faster"] == "less memory; no faster when timed again"
    assert words["bytes-not-faster"] == "less memory by under 1%; no faster when timed again"
    assert words["overfitted"].startswith("error +0.05") and "-0.0300 on validation" in words["overfitted"]
    assert words["gone"] == "no less error on test"
    assert words["fails"] == "diverged in quality: seed 3: not finite by step 20"


@pytest.mark.parametrize(
    ("limits", "verdict", "words"),
    [
        ({"error": BASE["error"] + 0.02}, Verdict.HOLDS, "faster"),
        ({"error": BASE["error"] + 0.002}, Verdict.OVERFITTED, "at most +0.0020"),
        ({"runtime_s": 0.818}, Verdict.HOLDS, "faster"),
        ({"runtime_s": 0.80}, Verdict.LUCKY, "when timed again, at most 0.800x"),
    ],
)
def test_a_limit_that_was_met_in_the_search_must_be_met_now(
    this: Setup, limits: dict[str, float], verdict: Verdict, words: str
) -> None:
    done = confirming(replace(this, limits=limits), World())
    done.measure([RECORDS["real"]])  # 0.82 of the time, 0.01 more error
    row = done.found.rows[RECORDS["real"].id]
    assert row.verdict is verdict and words in row.words


def test_figures_are_medians_and_differences_paired_by_seed(whole: Confirmation) -> None:
    row = whole.rows[RECORDS["real"].id]
    assert row.ratio is not None and len(row.ratios) == REPETITIONS
    assert (row.ratio.value, row.ratio.low, row.ratio.high) == (
        np.median(row.ratios), min(row.ratios), max(row.ratios),
    )  # fmt: skip
    assert row.difference is not None
    assert row.difference.value == pytest.approx(np.mean(np.subtract(row.errors, whole.base_errors)))
    assert row.difference.low < 0.01 < row.difference.high < 0.03  # the seeds' own spread of 0.03 is paired away


def test_seeds_and_split_are_those_that_the_search_did_not_use(this: Setup) -> None:
    world = World()
    confirming(this, world).measure([RECORDS["real"]])
    (scored, workers), (timed, alone) = world.opened
    assert (scored.split, scored.seeds, scored.objectives, workers) == ("test", SEEDS, ("error",), 3)
    assert (timed.objectives, alone) == (("runtime_s",), 1)  # other workers would disturb the clock
    assert timed.timing.rounds == timed.timing.least > this.context.timing.rounds
    assert scored.limits.wall_s == 5 * this.context.limits.wall_s


def test_a_repetition_times_all_in_an_order_of_its_own_that_the_seed_decides(this: Setup) -> None:
    records = [r for name, r in RECORDS.items() if name != "fails"]

    def orders() -> list[list[str]]:
        world = World()
        confirming(this, world).measure(records)
        return world.asked[1:]

    first = orders()
    assert len(first) == REPETITIONS and all(sorted(turn) == sorted(first[0]) for turn in first)
    assert len({tuple(turn) for turn in first}) == REPETITIONS
    assert orders() == first


def test_a_workload_with_one_state_is_scored_from_it_and_told_so(tmp_path: Path) -> None:
    one = setup(manifest(), Context(str(made(tmp_path / "one", ())), "base.mlir", "cache"), BASE_RECORD)
    assert one.seeds == (0,) and "no other initial state" in one.method
    done = confirming(one, World())
    done.measure([RECORDS["overfitted"], RECORDS["real"]])
    row = done.found.rows[RECORDS["overfitted"].id]
    assert row.difference is not None and row.verdict is Verdict.OVERFITTED
    spread = math.sqrt(sum(e * (1 - e) for e in (*row.errors, *done.found.base_errors)) / ROWS)
    assert row.difference.half == pytest.approx(1.96 * spread)
    assert done.found.rows[RECORDS["real"].id].verdict is Verdict.HOLDS


def test_what_the_run_did_not_measure_is_not_measured_now(prepared: Path) -> None:
    context = Context(str(prepared), "base.mlir", "cache")
    world = World()
    timed = setup(manifest(("runtime_s", "peak_bytes")), context, BASE_RECORD)
    assert confirming(timed, world).measure([RECORDS["real"]])
    assert [c.objectives for c, _ in world.opened] == [("runtime_s",)]
    world, scored = World(), setup(manifest(("peak_bytes", "error")), context, BASE_RECORD)
    done = confirming(scored, world)
    assert done.measure([RECORDS["better"]]) and world.opened[0][0].objectives == ("error",)
    assert done.found.rows[RECORDS["better"].id].verdict is Verdict.HOLDS and len(world.opened) == 1


def test_time_is_measured_on_demand_where_the_search_had_none(prepared: Path) -> None:
    untimed = manifest(("peak_bytes", "error"))
    world = World()
    done = confirming(setup(untimed, Context(str(prepared), "base.mlir", "cache"), BASE_RECORD, timed=True), world)
    assert done.measure([RECORDS["better"]])
    assert {c.objectives for c, _ in world.opened} == {("error",), ("runtime_s",)}
    row = done.found.rows[RECORDS["better"].id]
    assert row.verdict is Verdict.HOLDS and row.ratio is not None and len(row.ratios) == REPETITIONS
    assert set(done.found.methods) == {"runtime_s", "error"}


@pytest.mark.parametrize("stop_after", [1, 4, 13])
def test_ctrl_c_keeps_what_is_done_and_a_second_call_measures_what_is_missing(
    this: Setup, tmp_path: Path, stop_after: int
) -> None:
    records = [RECORDS[name] for name in ("real", "lucky", "small")]
    planned = len(records) * (1 + REPETITIONS)
    with pytest.raises(KeyboardInterrupt):
        confirming(this, World(stop_after), keep=lambda new: new.save(tmp_path)).measure(records)
    kept = load(tmp_path)
    assert kept is not None
    assert sum(len(row.ratios) + bool(row.errors) for row in kept.rows.values()) == stop_after
    world, seen = World(), list[Progress]()
    done = confirming(this, world, kept, watch=seen.append, keep=lambda new: new.save(tmp_path))
    assert done.measure(records) and world.answered == planned - stop_after
    assert seen[-1] == Progress(planned - stop_after, planned - stop_after, seen[-1].record)
    assert {NAMES[i]: row.verdict for i, row in done.found.rows.items()} == {n: VERDICTS[NAMES[r.id]] for n, r in
        zip(("real", "lucky", "small"), records, strict=True)}  # fmt: skip
    assert done.missing(records) == [] and load(tmp_path) == done.found


def until(deadline: float) -> dict[str, Any]:
    """A clock that ticks once an evaluation, and when time is up."""
    ticks = itertools.count(1)
    return {"deadline": deadline, "clock": lambda: next(ticks)}


def test_time_that_is_up_leaves_verdicts_to_three_repetitions(this: Setup) -> None:
    done = confirming(this, World(), **until(4.5))
    assert not done.measure([RECORDS["real"]])
    row = done.found.rows[RECORDS["real"].id]
    assert len(row.ratios) == 4 and row.verdict is Verdict.HOLDS
    assert row.ratio is not None and row.ratio.level == pytest.approx(0.875)
    short = confirming(this, World(), **until(1.5))
    assert not short.measure([RECORDS["lucky"]])
    assert short.found.rows[RECORDS["lucky"].id].verdict is None


def test_the_first_records_have_their_verdicts_when_time_is_up(this: Setup) -> None:
    records = [r for name, r in RECORDS.items() if name != "fails"][:10]
    world = World()
    done = confirming(this, world, **until(2.2 * FEW * (1 + REPETITIONS)))
    assert not done.measure(records)
    assert [done.found.rows[r.id].verdict is not None for r in records] == [True] * 2 * FEW + [False] * 2
    assert len(world.opened) == 2  # evaluators stay open


def test_another_machine_or_another_way_is_not_mixed_in(this: Setup, whole: Confirmation) -> None:
    elsewhere = replace(whole, machine={**whole.machine, "cpu": "Abacus"})
    with pytest.raises(RunDamaged, match="begun on Abacus"):
        begin_confirmation(this, elsewhere, Path("run"))
    with pytest.raises(RunDamaged, match="measured in another way"):
        begin_confirmation(this, replace(whole, seeds=(8, 9)), Path("run"))
    for other in (elsewhere, replace(whole, seeds=(8, 9)), replace(whole, methods={})):
        new = begin_confirmation(this, other, Path("run"), again=True)
        assert new.rows == {} and new.seeds == this.seeds and new.machine["cpu"] != "Abacus"
    assert begin_confirmation(this, whole, Path("run"), again=True) == whole  # of which only some are measured again


def test_file_is_read_back_as_it_was_and_damage_is_named(whole: Confirmation, tmp_path: Path) -> None:
    whole.save(tmp_path)
    assert load(tmp_path) == whole
    data = json.loads((tmp_path / "confirmed.json").read_text())
    assert data["split"] == "test" and data["seeds"] == list(SEEDS) and data["machine"]["cpu"]
    (tmp_path / "confirmed.json").write_text('{"format": 1}')
    with pytest.raises(RunDamaged, match="cannot be read"):
        load(tmp_path)
    assert load(tmp_path / "elsewhere") is None


def test_front_loses_what_does_not_hold_and_the_next_best_is_measured(this: Setup) -> None:
    world = World()
    done = confirming(this, world)
    before = front(ALL, this.objectives, this.floors)
    assert before is not None and {NAMES[r.id] for r in before.members} >= {"fails", "overfitted"}
    assert confirm_front(done, ALL, 24)
    after = front(ALL, this.objectives, this.floors, done.found)
    assert after is not None
    members = {NAMES[r.id] for r in after.members if not r.is_base}
    assert members and all(VERDICTS[name] is Verdict.HOLDS for name in members)
    assert "real" in members and "real" not in {NAMES[r.id] for r in before.members}  # "fails" stood before it
    assert {NAMES[r.id] for r in after.left} == {NAMES[i] for i, row in done.found.rows.items() if row.bad}
    everything = front(ALL, this.objectives, this.floors, done.found, everything=True)
    assert everything is not None and everything.members == before.members and not everything.left
    assert wave(done, ALL, 24) == []


def test_the_same_program_leaves_with_a_record_that_does_not_hold(this: Setup, whole: Confirmation) -> None:
    twin = replace(RECORDS["lucky"], id="r0099", key="twin")
    found = front([*ALL, twin], this.objectives, this.floors, whole)
    assert found is not None and twin not in found.members
    assert whole.of(twin) == whole.rows[RECORDS["lucky"].id]


def test_fastest_is_one_that_holds_by_its_ratio_measured_again(this: Setup, whole: Confirmation) -> None:
    exact = [BASE_RECORD, *(replace(RECORDS[n], result=as_found({"ratio": r}, n)) for n, r in
        (("lucky", 0.6), ("fast", 0.9), ("small", 0.8)))]  # fmt: skip
    assert best(exact, BASE_RECORD, "runtime_s", None).key == "lucky"
    assert best(exact, BASE_RECORD, "runtime_s", whole).key == "fast"  # "small" is slower than the base, timed again
    costs = whole.put(
        [replace(whole.rows[RECORDS["fast"].id], difference=whole.rows[RECORDS["overfitted"].id].difference)]
    )
    assert best(exact, BASE_RECORD, "runtime_s", costs).is_base  # more error on test data than the base


def test_the_first_few_are_the_best_and_span_the_front() -> None:
    rng = np.random.default_rng(3)
    angles = rng.uniform(0, np.pi / 2, 30)
    records = [
        replace(
            planted("real", i), result=as_found({"ratio": 1 - np.cos(a) / 2, "peak": 1000 - 500 * np.sin(a)}, str(i))
        )
        for i, a in enumerate(angles, 2)
    ]
    found = front([BASE_RECORD, *records], ("runtime_s", "peak_bytes"), {})
    assert found is not None
    ordered = best_first(found)
    assert sorted(r.id for r in ordered) == sorted(r.id for r in found.members)
    least = {min(found.members, key=lambda r: r.value(name)).id for name in ("runtime_s", "peak_bytes")}
    assert {r.id for r in ordered[:2]} == least

    def gap(chosen: Sequence[Record]) -> float:
        """The largest distance of a member to the nearest of `chosen`, in shares of the extent."""
        place = {r.id: np.array([r.value("runtime_s") * 1e3, r.value("peak_bytes") / 1e3]) for r in found.members}
        return max(min(np.linalg.norm(place[r.id] - place[c.id]) for c in chosen) for r in found.members)

    drawn = [gap(random.Random(i).sample(ordered, 6)) for i in range(200)]
    assert gap(ordered[:6]) < np.quantile(drawn, 0.05)


def test_a_time_limit_takes_the_first_that_fit(this: Setup) -> None:
    done = confirming(this, World())
    whole = wave(done, ALL, 24)
    each = [this.expected_s(r) for r in whole]
    assert all(3 < s < 4 for s in each)  # five trainings of a second by three workers, six repetitions of 0.3 s
    assert wave(done, ALL, 24, each[0] + each[1] + 0.1) == whole[:2]
    assert wave(done, ALL, 3) == whole[:3] and wave(done, ALL, 24, 1.0) == []


def test_the_search_never_sees_what_was_confirmed(tmp_path: Path) -> None:
    begin(tmp_path / "plain")
    search(tmp_path / "plain", FakePool(), Budget(generations=4))
    begin(tmp_path / "confirmed")
    search(tmp_path / "confirmed", FakePool(), Budget(generations=2))
    rows = {r.id: Confirmed(r.id, "", verdict=Verdict.LUCKY) for r in Run(tmp_path / "confirmed").records()}
    Confirmation("now", {"cpu": ""}, "test", SEEDS, {}, rows=rows).save(tmp_path / "confirmed")
    search(tmp_path / "confirmed", FakePool(), Budget(generations=3))
    (tmp_path / "confirmed" / "confirmed.json").write_text("not JSON: who reads it, fails")
    search(tmp_path / "confirmed", FakePool(), Budget(generations=4))
    assert essence(Run(tmp_path / "confirmed").records()) == essence(Run(tmp_path / "plain").records())


def test_the_search_does_not_even_import_it() -> None:
    code = "import sys, gevo.campaign; print(*(m for m in sys.modules if m.startswith('gevo.confirm')))"
    root = Path(launch.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    assert done.stdout.split() == []

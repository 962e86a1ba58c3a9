import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from synthetic import FakePool, fake_result
from toy import begin, essence, search

from fitness.result import Measure, Outcome, Result
from gevo.campaign import Ending
from gevo.config import Budget
from gevo.errors import RunDamaged
from gevo.genome import Genome
from gevo.store import Run, RunWriter

GENERATIONS = 6
BUDGET = Budget(generations=GENERATIONS)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    begin(folder)
    assert search(folder, FakePool(), BUDGET) is Ending.SPENT
    return essence(Run(folder).records())


def test_base_is_the_first_record_and_is_not_evaluated_again(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    pool = FakePool()
    search(tmp_path / "run", pool, Budget(generations=1))
    first = Run(tmp_path / "run").records()[0]
    assert first.genome == Genome() and first.parents == () and first.result == pool.base
    assert first.key not in pool.evaluated and len(pool.evaluated) == 7


def test_workers_do_not_change_the_archive(tmp_path: Path, uninterrupted: list[dict[str, object]]) -> None:
    for workers in (2, 3):
        folder = tmp_path / str(workers)
        begin(folder)
        search(folder, FakePool(workers), BUDGET)
        assert essence(Run(folder).records()) == uninterrupted


def test_another_seed_gives_another_archive(tmp_path: Path, uninterrupted: list[dict[str, object]]) -> None:
    begin(tmp_path / "run", seed=2)
    search(tmp_path / "run", FakePool(), BUDGET)
    assert essence(Run(tmp_path / "run").records()) != uninterrupted


@pytest.mark.parametrize("wait_records", [3, 19, 30])
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path: Path, wait_records: int, uninterrupted: list[dict[str, object]]
) -> None:
    folder = tmp_path / "run"
    begin(folder)
    toy = Path(__file__).with_name("toy.py")
    paths = os.pathsep.join([str(toy.parent), str(toy.parent.parent), str(toy.parent.parent.parent)])
    command = [sys.executable, str(toy), str(folder), str(GENERATIONS), "0.02"]
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths})
    deadline = time.monotonic() + 30
    while len(Run(folder).records()) < wait_records and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    killed = Run(folder).records()
    assert wait_records <= len(killed) < 8 * GENERATIONS
    (folder / "log.jsonl").open("ab").write(b"0badc0de 99 {torn")
    pool = FakePool()
    assert search(folder, pool, BUDGET) is Ending.SPENT
    assert essence(Run(folder).records()) == uninterrupted
    assert not {r.key for r in killed} & set(pool.evaluated)  # nothing is evaluated twice
    assert Run(folder).writer() is None


@pytest.mark.parametrize("step", ["append", "part", "state", "clear"])
def test_crash_between_any_two_writes_loses_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch, uninterrupted: list[dict[str, object]]
) -> None:
    class Crash(Exception):
        pass

    def crash_at_third(real: Callable[..., object], before: bool) -> Callable[..., object]:
        calls = count(1)

        def stand_in(*args: object, **kwargs: object) -> object:
            third = next(calls) == 3
            if third and before:
                raise Crash
            result = real(*args, **kwargs)
            if third:
                raise Crash
            return result

        return stand_in

    begin(tmp_path / "run")
    target, name, before = {
        "append": ("gevo.log.LogWriter", "append", False),
        "part": ("gevo.store.pq", "write_table", True),
        "state": ("gevo.store.RunWriter", "checkpoint", True),
        "clear": ("gevo.log.LogWriter", "clear", True),
    }[step]
    with monkeypatch.context() as patch:
        module, _, attribute = target.rpartition(".")
        owner = getattr(sys.modules[module], attribute)
        patch.setattr(owner, name, crash_at_third(getattr(owner, name), before))
        with pytest.raises(Crash):
            search(tmp_path / "run", FakePool(), BUDGET)
    search(tmp_path / "run", FakePool(), BUDGET)
    assert essence(Run(tmp_path / "run").records()) == uninterrupted


def test_ctrl_c_keeps_every_finished_record(tmp_path: Path, uninterrupted: list[dict[str, object]]) -> None:
    begin(tmp_path / "run")
    calls = count()

    def interrupt(genome: Genome) -> Result:
        if next(calls) == 10:
            raise KeyboardInterrupt
        return fake_result(genome)

    assert search(tmp_path / "run", FakePool(answer=interrupt), BUDGET) is Ending.INTERRUPTED
    assert len(Run(tmp_path / "run").records()) == 11
    search(tmp_path / "run", FakePool(), BUDGET)
    assert essence(Run(tmp_path / "run").records()) == uninterrupted


def test_budgets_end_a_run_where_they_say_and_more_can_be_added(
    tmp_path: Path, uninterrupted: list[dict[str, object]]
) -> None:
    folder = tmp_path / "run"
    begin(folder)
    ticks = count(0, 0.5)
    assert search(folder, FakePool(), Budget(evaluations=13)) is Ending.SPENT
    assert len(Run(folder).records()) == 13
    assert search(folder, FakePool(), Budget(evaluations=13)) is Ending.SPENT
    assert len(Run(folder).records()) == 13
    assert search(folder, FakePool(), Budget(seconds=20.0), clock=lambda: next(ticks)) is Ending.SPENT
    timed = Run(folder).records()
    assert 13 < len(timed) < 48 and timed[-1].elapsed_s <= 20.0
    search(folder, FakePool(), BUDGET)
    assert essence(Run(folder).records()) == uninterrupted


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_valid_result_without_finite_figures_becomes_an_outcome(tmp_path: Path, value: float) -> None:
    def broken(genome: Genome) -> Result:
        good = fake_result(Genome())
        objectives = {**good.objectives, "energy_j": Measure(value, "model:fake")}
        return replace(good, fingerprint=genome.key, objectives=objectives)

    begin(tmp_path / "run")
    search(tmp_path / "run", FakePool(answer=broken), Budget(generations=2))
    records = Run(tmp_path / "run").records()
    assert [r.result.outcome for r in records[1:]] == [Outcome.WRONG] * 15
    assert "energy_j is Measure" in records[1].result.detail


def test_everything_failing_does_not_end_the_search(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    pool = FakePool(answer=lambda genome: Result(Outcome.CRASHED, "run", "signal 11"))
    assert search(tmp_path / "run", pool, Budget(generations=4)) is Ending.SPENT
    assert len(Run(tmp_path / "run").records()) == 32


def test_known_fingerprints_are_those_of_finished_generations(tmp_path: Path) -> None:
    class Watching(FakePool):
        def __init__(self) -> None:
            super().__init__()
            self.known: list[set[str]] = []

        def evaluate(self, genomes, known, on_event=None):  # type: ignore[no-untyped-def]
            self.known.append(set(known))
            return super().evaluate(genomes, known, on_event)

    begin(tmp_path / "run")
    pool = Watching()
    search(tmp_path / "run", pool, Budget(generations=3))
    records = Run(tmp_path / "run").records()
    for generation, known in enumerate(pool.known):
        assert known - {"base"} == {r.result.fingerprint for r in records if r.generation < generation} - {"", "base"}
    assert all("base" in known for known in pool.known)


def test_energy_methods_do_not_mix(tmp_path: Path) -> None:
    def metered(genome: Genome) -> Result:
        good = fake_result(Genome())
        return replace(good, objectives={**good.objectives, "energy_j": Measure(1.0, "rapl")})

    begin(tmp_path / "run")
    search(tmp_path / "run", FakePool(), Budget(generations=1))
    with pytest.raises(RunDamaged, match="measured as model:fake when this run began, and is now as rapl"):
        search(tmp_path / "run", FakePool(answer=metered), Budget(generations=2))


def test_state_without_its_records_is_an_error(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    search(tmp_path / "run", FakePool(), Budget(generations=3))
    (tmp_path / "run" / "records" / "gen-00001.parquet").unlink()
    with pytest.raises(RunDamaged, match="state and records differ: expected 24 records"):
        search(tmp_path / "run", FakePool(), Budget(generations=4))


def test_a_run_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    seen: list[int] = []

    def reading(genome: Genome) -> Result:
        seen.append(len(Run(tmp_path / "run").records()))
        return fake_result(genome)

    with RunWriter(tmp_path / "run"):
        pass
    search(tmp_path / "run", FakePool(answer=reading), Budget(generations=3))
    assert seen == list(range(1, 24))

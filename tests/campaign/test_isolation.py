"""Bad candidates, dying workers and interrupts: each ends as its own outcome, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fitness.errors import FitnessError
from fitness.job import Context, Limits, PoolEvent
from fitness.pool import Pool
from fitness.result import Outcome, Result

EVALUATOR = "bad_candidates:evaluator"
LIMITS = Limits(wall_s=20.0, cpu_s=20.0, memory_bytes=256 << 20)
CONTEXT = Context(prepared="", base="", cache="", objectives=("peak_bytes",), limits=LIMITS)


def tree() -> set[int]:
    """Every process below this one, zombies too."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    below = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            return below - {os.getpid()}
        below |= more


def sessions(of: set[int]) -> set[int]:
    """Live processes of the sessions `of`: orphans of a worker keep its session. A dead one is init's to reap."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) in of and ") Z " not in (entry / "stat").read_text():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


def wait_gone(pids: set[int]) -> None:
    end = time.monotonic() + 5
    while pids and time.monotonic() < end:
        pids = {p for p in pids if alive(p)}
        time.sleep(0.01)
    assert not pids


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The workers find `bad_candidates`, and no process outlives its test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    before = tree()
    yield
    assert tree() <= before


def pool(workers: int = 1, **changes: Any) -> Pool:
    context = replace(CONTEXT, limits=replace(LIMITS, **changes))
    return Pool(context, workers, evaluator=EVALUATOR)


def one(genome: dict[str, Any], **limits: Any) -> Result:
    """The result of one bad candidate; the next job must still work and nobody may be left."""
    with pool(**limits) as p:
        workers = tree()
        bad, good = p.evaluate([genome, {"value": 7}])
        assert good.ok and good.objectives["peak_bytes"].value == 7
        assert tree() == workers
        assert sessions(workers) == workers
    return bad


@pytest.mark.parametrize(
    ("genome", "outcome", "says"),
    [
        ({"do": "segfault", "stage": "check"}, Outcome.CRASHED, "SIGSEGV"),
        ({"do": "segfault", "stage": "compile"}, Outcome.COMPILE_FAILED, "SIGSEGV"),
        ({"do": "abort", "stage": "compile"}, Outcome.COMPILE_FAILED, "cast<Ty>() argument of incompatible type"),
        ({"do": "abort", "stage": "quality"}, Outcome.CRASHED, "SIGABRT"),
        ({"do": "no_memory", "stage": "compile"}, Outcome.OUT_OF_MEMORY, "bad_alloc"),
        ({"do": "allocate", "stage": "quality"}, Outcome.OUT_OF_MEMORY, "268435456"),
        ({"do": "allocate_in_c", "stage": "check"}, Outcome.OUT_OF_MEMORY, "SIGSEGV"),
        ({"do": "throw", "stage": "check"}, Outcome.CRASHED, "a bug in the evaluator"),
        ({"do": "throw", "stage": "plan"}, Outcome.COMPILE_FAILED, "a bug in the evaluator"),
        ({"do": "leave", "stage": "timing"}, Outcome.CRASHED, "exit code 0 without a result"),
        ({"do": "recurse", "stage": "check"}, Outcome.CRASHED, "SIGSEGV"),
        ({"do": "torn", "stage": "check"}, Outcome.CRASHED, "SIGSEGV"),
    ],
)
def test_bad_candidate_ends_as_its_own_outcome(genome: dict[str, Any], outcome: Outcome, says: str):
    result = one({"value": 1, **genome})
    assert (result.outcome, result.stage) == (outcome, genome["stage"])
    assert says in result.detail
    assert result.fingerprint == "1"
    assert not result.objectives


def test_sleeping_candidate_hits_the_wall_limit():
    result = one({"do": "sleep", "stage": "timing", "value": 1}, wall_s=0.5)
    assert (result.outcome, result.stage) == (Outcome.TIMED_OUT, "timing")
    assert 0.4 < result.stage_s["timing"] < 5
    assert "wall limit of 0.5 s" in result.detail


def test_looping_candidate_hits_the_cpu_limit():
    result = one({"do": "loop", "stage": "check", "value": 1}, cpu_s=1)
    assert (result.outcome, result.stage) == (Outcome.TIMED_OUT, "check")
    assert "CPU limit of 1 s" in result.detail


def test_candidate_that_prints_does_not_disturb_the_pool():
    assert one({"do": "print_much", "value": 1}).ok


def test_what_a_candidate_starts_dies_with_it():
    assert one({"do": "spawn", "value": 1}).ok


def test_child_is_alone_in_its_group_with_one_thread_a_library_and_no_frontend():
    with pool() as p:
        limits, modules = p.evaluate([{"do": "limits", "value": 1}, {"do": "modules", "value": 2}])
    assert limits.detail.split()[:3] == ["1", "1", "True"]
    assert int(limits.detail.split()[3]) != os.getsid(0)
    assert not {"jax", "jaxlib", "torch", "gevo", "pytest"} & set(modules.detail.split())


def test_killed_worker_is_replaced_and_its_job_done_again(tmp_path: Path):
    events: list[PoolEvent] = []
    jobs = [{"do": "kill_worker", "once": str(tmp_path / "once"), "value": 1}, {"value": 2}]
    with pool() as p:
        results = p.evaluate(jobs, on_event=events.append)
    assert [r.outcome for r in results] == [Outcome.OK, Outcome.OK]
    assert [(e.kind, e.index) for e in events if e.kind in ("worker_lost", "finished")] == [
        ("worker_lost", 0),
        ("finished", 0),
        ("finished", 1),
    ]


def test_job_that_kills_its_worker_twice_is_named():
    with pool(2) as p:
        results = p.evaluate(
            [{"do": "kill_worker", "stage": "check", "value": 1}, *({"value": i} for i in range(2, 6))]
        )
    assert (results[0].outcome, results[0].stage) == (Outcome.CRASHED, "check")
    assert "died or hung twice" in results[0].detail
    assert all(r.ok for r in results[1:])


def test_worker_killed_from_outside_takes_its_child_along():
    children: set[int] = set()

    def kill(event: PoolEvent) -> None:
        if event.kind == "stage" and not children:
            children.update(tree() - workers)
            (worker,) = workers
            os.kill(worker, signal.SIGKILL)

    with pool() as p:
        workers = tree()
        (result,) = p.evaluate([{"sleep": 0.5, "value": 1}], on_event=kill)
        assert result.ok
        assert len(children) == 1
        wait_gone(children)


def test_idle_worker_that_dies_is_replaced():
    with pool(2) as p:
        for pid in tree():
            os.kill(pid, signal.SIGKILL)
        assert [r.ok for r in p.evaluate([{"value": i} for i in range(2, 6)])] == [True] * 4


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_do_not_depend_on_the_number_of_workers(workers: int):
    jobs: list[dict[str, Any]] = [
        {"value": 10, "sleep": 0.2},
        {"value": 10},
        {"do": "segfault", "value": 11, "stage": "check"},
        {"value": 12},
        {"value": 10},
        {"do": "segfault", "value": 11, "stage": "check"},
        {"value": 99},
        {"fingerprint": "base"},
    ]
    known = {"99": Result(Outcome.DIVERGED, "quality", "seen before", "99")}
    with pool(workers) as p:
        results = p.evaluate(jobs, known)
    seen = [(r.outcome.value, r.fingerprint, r.answered_by) for r in results]
    assert seen == [
        ("ok", "10", ""),
        ("ok", "10", "fingerprint"),
        ("crashed", "11", ""),
        ("ok", "12", ""),
        ("ok", "10", "fingerprint"),
        ("crashed", "11", "fingerprint"),
        ("diverged", "99", "fingerprint"),
        ("ok", "base", "fingerprint"),
    ]
    assert results[4].objectives == results[0].objectives


def test_events_tell_each_job_from_start_to_result():
    events: list[PoolEvent] = []
    with pool() as p:
        (result,) = p.evaluate([{"value": 1, "stage": "check"}], on_event=events.append)
    assert [(e.kind, e.index, e.stage) for e in events] == [
        ("started", 0, ""),
        ("stage", 0, "check"),
        ("finished", 0, ""),
    ]
    assert events[-1].result == result


def test_base_that_fails_is_an_error_that_says_how():
    with pytest.raises(FitnessError, match="the base does not load: ValueError: no such profile"):
        Pool(replace(CONTEXT, profile="does not load"), evaluator=EVALUATOR).__enter__()
    with pytest.raises(FitnessError, match="workers do not start: SIGABRT"):
        Pool(replace(CONTEXT, profile="aborts"), evaluator=EVALUATOR).__enter__()


def test_given_base_is_not_evaluated_again():
    base = Result(Outcome.OK, fingerprint="5", detail="from the store")
    with Pool(CONTEXT, base=base, evaluator=EVALUATOR) as p:
        (result,) = p.evaluate([{"value": 5}])
    assert (result.detail, result.answered_by) == ("from the store", "fingerprint")


def test_exception_in_a_batch_kills_all_at_once():
    def stop(event: PoolEvent) -> None:
        if event.kind == "stage":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pool(2) as p:
        p.evaluate([{"do": "loop", "value": 1}, {"do": "sleep", "value": 2}], on_event=stop)


def test_interrupt_signal_reaches_the_pool_and_kills_all():
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), pool(2) as p:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        p.evaluate([{"do": "loop", "value": 1}, {"do": "sleep", "value": 2}])
    assert time.monotonic() - started < 5


def test_nothing_survives_a_killed_pool(tmp_path: Path):
    code = (
        "from fitness.job import Context\nfrom fitness.pool import Pool\n"
        "c = Context(prepared='', base='', cache='')\n"
        f"with Pool(c, 2, evaluator={EVALUATOR!r}) as p:\n"
        " print('ready', flush=True)\n"
        " p.evaluate([{'do': 'loop', 'value': 1}, {'do': 'sleep', 'value': 2}],"
        " on_event=lambda e: print(e.kind, flush=True))\n"
    )
    main = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert main.stdout
    heard = [main.stdout.readline().strip() for _ in range(5)]
    assert heard.count("stage") == 2
    family = tree() - {main.pid}
    assert len(family) == 4
    main.kill()
    main.communicate()
    wait_gone(family)

"""Threads: schedules by brute force, and teams of threads against one thread, bit for bit."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fitness_toys import pull
from hypothesis import given, settings
from hypothesis import strategies as st
from spmd_toys import mill, mill_state

from fitness import spmd, team
from fitness.cpu import CpuRunner
from fitness.errors import FitnessError
from mlir_passes.program import Buffer, Kernel, KernelCall, Plan

ROOT = Path(__file__).resolve().parents[2]
ARENA = 12
COSTS = (0, spmd.WORTH // 3, spmd.WORTH, 100 * spmd.WORTH)


@pytest.fixture(autouse=True, scope="module")
def usual_least() -> Iterator[int]:
    """Even the cheapest step is shared here; the usual limit."""
    with pytest.MonkeyPatch.context() as patch:
        least = spmd.LEAST
        patch.setattr(spmd, "LEAST", 0)
        yield least


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, dict[str, Kernel]]:
    """Any calls on any overlapping buffers: more than a planner would make."""
    spans = draw(st.lists(st.tuples(st.integers(0, ARENA - 1), st.integers(0, 4)), min_size=1, max_size=6))
    roles = st.sampled_from(["state", "activation", "activation", "workspace"])
    buffers = tuple(Buffer(f"b{i}", draw(roles), at, size, (size,), "uint8") for i, (at, size) in enumerate(spans))
    kernels: dict[str, Kernel] = {}
    for number in range(draw(st.integers(1, 4))):
        costs, shards, inputs = (
            draw(st.sampled_from(COSTS)),
            draw(st.sampled_from([1, 1, 2, 7])),
            draw(st.integers(0, 2)),
        )
        kernels[f"k{number}"] = Kernel(f"k{number}", "", "toy", "", costs, 0, 0, shards, inputs)
    args = st.lists(st.integers(0, len(buffers) - 1), max_size=4).map(tuple)
    calls = draw(st.lists(st.builds(KernelCall, st.sampled_from(sorted(kernels)), args), max_size=10))
    return Plan(buffers, tuple(calls), (), (), (), ARENA + 4), kernels


@settings(max_examples=300, deadline=None)
@given(plans(), st.integers(2, 4))
def test_a_schedule_does_every_slice_once_and_orders_all_that_conflicts(
    made: tuple[Plan, dict[str, Kernel]], threads: int
):
    plan, kernels = made
    phases = spmd.schedule(plan, kernels, threads)
    tasks = sum(len(phase) for phase in phases)
    assert all(sorted(t for t, _ in order) == list(range(tasks)) for order in spmd.orders(phases, threads))
    where: dict[int, list[tuple[int, int, int]]] = {}
    done: dict[int, list[tuple[int, int]]] = {}
    for p, phase in enumerate(phases):
        for t, task in enumerate(phase):
            for k, part in enumerate(task.parts):
                where.setdefault(part.call, []).append((p, t, k))
                done.setdefault(part.call, []).append((part.begin, part.end))
    for number, call in enumerate(plan.calls):
        cuts = sorted(done[number])
        assert cuts[0][0] == 0 and cuts[-1][1] == kernels[call.kernel].shards
        assert all(a[1] == b[0] and a[0] < a[1] for a, b in itertools.pairwise(cuts))
    for i, j in itertools.combinations(range(len(plan.calls)), 2):
        if not touches(plan, kernels, i) & touches(plan, kernels, j, written=True) and not (
            touches(plan, kernels, i, written=True) & touches(plan, kernels, j)
        ):
            continue
        for a, b in itertools.product(where[i], where[j]):
            assert a[0] < b[0] or (a[:2] == b[:2] and a[2] < b[2]), (i, j)


def touches(plan: Plan, kernels: dict[str, Kernel], number: int, written: bool = False) -> set[int]:
    call = plan.calls[number]
    args = call.args[kernels[call.kernel].inputs :] if written else call.args
    return {
        byte for i in args for byte in range(plan.buffers[i].offset, plan.buffers[i].offset + plan.buffers[i].bytes)
    }


def one_call(cost: int, shards: int, role: str = "activation") -> int:
    buffers = (Buffer("x", "state", 0, 4, (1,), "float32"), Buffer("y", role, 64, 4, (1,), "float32"))
    kernels = {"k": Kernel("k", "k", "toy", "", cost, 0, 0, shards, 1)}
    plan = Plan(buffers, (KernelCall("k", (0, 1)),), (0,), (), (), 68)
    return sum(len(phase) for phase in spmd.schedule(plan, kernels, 2))


def test_only_calls_that_are_worth_it_and_can_be_split_are():
    assert one_call(spmd.WORTH - 1, 100) == 1
    assert one_call(spmd.WORTH, 100) == 2
    assert one_call(100 * spmd.WORTH, 1) == 1
    assert one_call(100 * spmd.WORTH, 3) == 3
    assert one_call(100 * spmd.WORTH, 100, role="workspace") == 1
    assert one_call(10 * spmd.LONG, 100) == 10
    assert one_call(5 * spmd.GRAIN, 100) == 4


def test_a_cheap_step_is_left_to_one_thread(usual_least: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spmd, "LEAST", usual_least)
    assert one_call(usual_least - 1, 100) == 1
    assert one_call(usual_least, 100) == 8


def independent(costs: tuple[int, ...]) -> list[list[list[int]]]:
    """Calls (by number) of the tasks of the phases of whole calls on buffers of their own."""
    buffers = tuple(Buffer(f"b{i}", "state", 64 * i, 4, (1,), "float32") for i in range(len(costs)))
    kernels = {f"k{i}": Kernel(f"k{i}", "", "toy", "", cost, 0, 0) for i, cost in enumerate(costs)}
    plan = Plan(buffers, tuple(KernelCall(f"k{i}", (i,)) for i in range(len(costs))), (), (), (), 1 << 20)
    phases = spmd.schedule(plan, kernels, 2)
    return [[[part.call for part in task.parts] for task in phase] for phase in phases]


def test_costly_whole_calls_that_are_independent_run_at_once_and_cheap_ones_stay_together():
    assert independent((1, 1, 1)) == [[[0, 1, 2]]]
    assert independent((spmd.WORTH, 1, 2 * spmd.WORTH, 1)) == [[[2], [0], [1, 3]]]


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_more_threads_give_the_bits_of_one(threads: int):
    program = mill()
    one, more = CpuRunner(program), CpuRunner(program, slack=64, guard=True, threads=threads)
    for runner in (one, more):
        runner.write_state([mill_state()])
    for times in (1, 1, 5, 0, 40):
        one.run(times)
        more.run(times)
        assert one.outputs() == more.outputs()
    assert more.high_water([mill_state()], []) == program.plan.peak_bytes


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("steps_a_call", [1, 10_000])
def test_ten_thousand_short_steps(threads: int, steps_a_call: int):
    program = mill(rows=9, cols=1, layers=2, chain=1)
    one, more = CpuRunner(program), CpuRunner(program, threads=threads)
    for runner in (one, more):
        runner.write_state([mill_state(9, 1)])
    for _ in range(10_000 // steps_a_call):
        more.run(steps_a_call)
        if steps_a_call == 1:
            one.run()
            assert one.outputs() == more.outputs()
    one.run(10_000 if steps_a_call > 1 else 0)
    assert one.outputs() == more.outputs()


def test_sleepers_are_woken(monkeypatch: pytest.MonkeyPatch):
    """With a spin of one pause every wait is a sleep, and every opening of a phase a wake."""
    monkeypatch.setattr(team, "SPINS", 1)
    monkeypatch.setattr(team, "_GIVE_WAY_NS", 1)
    team._code.cache_clear()
    try:
        test_more_threads_give_the_bits_of_one(3)
        test_ten_thousand_short_steps(3, 10_000)
    finally:
        team._code.cache_clear()


def test_a_step_with_nothing_to_share_starts_no_thread():
    before = thread_count()
    runner = CpuRunner(pull(), threads=4)
    runner.write_state([np.full(8, 2.0, np.float32)])
    runner.run()
    assert thread_count() == before


def test_threads_start_at_the_first_run_and_end_with_the_runner():
    before = thread_count()
    runner = CpuRunner(mill(), threads=3)
    assert thread_count() == before
    runner.write_state([mill_state()])
    runner.run()
    assert thread_count() == before + 2
    del runner
    gc.collect()
    assert thread_count() == before


def test_helpers_sleep_between_runs():
    runner = CpuRunner(mill(), threads=3)
    runner.write_state([mill_state()])
    runner.run()
    time.sleep(0.05)
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.02


def test_a_forked_child_gets_threads_of_its_own():
    program = mill()
    one, two = CpuRunner(program), CpuRunner(program, threads=2)
    for runner in (one, two):
        runner.write_state([mill_state()])
        runner.run(3)
    pid = os.fork()
    if not pid:
        one.run(50)
        two.run(50)
        os._exit(0 if one.outputs() == two.outputs() and thread_count() == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    one.run(2)
    two.run(2)
    assert one.outputs() == two.outputs()


def test_no_room_for_a_thread_is_said(monkeypatch: pytest.MonkeyPatch):
    runner = CpuRunner(mill(), threads=2)

    class Full:
        def __init__(self, name: object) -> None:
            self.pthread_create = lambda *arguments: 11
            self.pthread_join = lambda *arguments: 0

    monkeypatch.setattr(team.c, "CDLL", Full)
    with pytest.raises(FitnessError, match="no thread: Resource temporarily unavailable"):
        runner.run()


@pytest.mark.parametrize("ending", ["", "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"])
def test_the_interpreter_ends_with_helpers_asleep(ending: str):
    text = f"""
import os, signal, sys, time
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from fitness.cpu import CpuRunner
from spmd_toys import mill
runner = CpuRunner(mill(), threads=3)
runner.run(5)
held = runner.state
print("ran", flush=True)
{ending}
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "ran\n"
    assert done.returncode == (-signal.SIGINT if ending else 0), done.stderr


def test_ctrl_c_stops_a_loop_of_steps():
    text = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from fitness.cpu import CpuRunner
from spmd_toys import mill
runner = CpuRunner(mill(), threads=2)
try:
    runner.run()
    print("running", flush=True)
    while True:
        runner.run()
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.read() == "stopped\n"
    assert child.wait(10) == 0


def test_an_unsplit_kernel_may_ignore_its_slices():
    program = mill()
    whole = {key: replace(kernel, shards=1) for key, kernel in program.kernels.items()}
    assert spmd.schedule(program.plan, whole, 2) == ((spmd.Task(tuple(spmd.Slices(i, 0, 1) for i in range(6)), 0),),)


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))

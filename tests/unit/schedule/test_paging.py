"""Programs that page memory and compute again, run for real, against the same step with everything in memory."""

from __future__ import annotations

import gc
import os
import random
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from equal_costs import Equal
from fitness_toys import METRIC, WORK, pull
from passes.small_steps import MLP, floats
from random_lines import random_steps

from fitness import paging
from fitness.calls import StepCalls
from fitness.cpu import CpuRunner
from fitness.errors import FitnessError
from fitness.page_file import PageFile
from fitness.program import load_manifest, load_program, load_step, save_program
from fitness.step import Step
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program
from mlir_passes.plan import Settled, make_plan
from mlir_passes.plan_line import Line
from mlir_passes.program import Buffer, KernelCall, Plan, Program, Transfer
from mlir_passes.schedule.from_graph import problem_of
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, keep_all, replay
from mlir_passes.schedule.steps import Step as Move

STATE = [floats(3, 4), floats(4, 2)]
BATCHES = [[floats(5, 3, seed=n), floats(5, 2, seed=n)] for n in range(4)]


@dataclass(frozen=True)
class Small:
    """The small training step: its problem, and its program along any line of that."""

    kept: Program
    settled: Settled
    keys: Sequence[str]
    workspaces: Mapping[str, int]

    @property
    def problem(self) -> Problem:
        return problem_of(self.settled, self.keys, self.workspaces, 2, 2, Equal())

    def along(self, steps: Sequence[Move]) -> Program:
        line = Line(self.problem, tuple(steps))
        return replace(self.kept, plan=make_plan(self.settled, self.keys, self.workspaces, 2, 2, line))


@pytest.fixture(scope="module")
def small() -> Small:
    seen: list[tuple[Settled, Sequence[str], Mapping[str, int]]] = []

    def line_of(settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int]) -> Line:
        seen.append((settled, keys, workspaces))
        problem = problem_of(settled, keys, workspaces, 2, 2, Equal())
        return Line(problem, keep_all(problem))

    program = compile_program(canonical_text(MLP, "step"), "step", 2, 2, ObjectCache(None), line_of=line_of)
    return Small(program, *seen[0])


def forward_value(problem: Problem) -> tuple[int, int, int]:
    """A value with a gap between its first two readers, and these."""
    found = ((i, *t.readers[:2]) for i, t in enumerate(problem.tensors) if t.maker >= 0 and len(t.readers) > 1)
    return next((value, first, second) for value, first, second in found if second > first + 1)


def computed_again(problem: Problem) -> tuple[Move, ...]:
    """A value is freed after its first reader, and made again for its second one."""
    value, first, second = forward_value(problem)
    line: list[Move] = []
    for move in keep_all(problem):
        if move == Move(Kind.COMPUTE, second):
            line.append(Move(Kind.COMPUTE, problem.tensors[value].maker))
        line.append(move)
        if move == Move(Kind.COMPUTE, first):
            line.append(Move(Kind.FREE, value))
    return tuple(line)


def paged(problem: Problem) -> tuple[Move, ...]:
    """A value is written out while its first reader runs, and read in while the op before its second one does."""
    value, first, second = forward_value(problem)
    line: list[Move] = []
    for move in keep_all(problem):
        if move == Move(Kind.COMPUTE, first):
            line.append(Move(Kind.OUT, value))
        if move == Move(Kind.COMPUTE, second - 1):
            line.append(Move(Kind.IN, value))
        if move == Move(Kind.COMPUTE, second):
            line.append(Move(Kind.IN_DONE, value))
        line.append(move)
        if move == Move(Kind.COMPUTE, first):
            line += [Move(Kind.OUT_DONE, value), Move(Kind.FREE, value)]
    return tuple(line)


def stored(problem: Problem) -> tuple[Move, ...]:
    """All state has its home in the store: it is read in for each op that needs it, and written back if updated."""
    line: list[Move] = []
    for move in keep_all(problem):
        needed = problem.ops[move.index].reads if move.kind == Kind.COMPUTE else ()
        state = [t for t in needed if problem.tensors[t].maker == START and problem.tensors[t].pageable]
        line += [Move(Kind.IN, t) for t in state] + [Move(Kind.IN_DONE, t) for t in state] + [move]
        changed = [t for t in state if problem.tensors[t].updater == move.index]
        line += [Move(Kind.OUT, t) for t in changed] + [Move(Kind.OUT_DONE, t) for t in changed]
        line += [Move(Kind.FREE, t) for t in state]
    return tuple(line)


def trained(runner: CpuRunner, steps: int = 5) -> list[bytes]:
    """State and metrics after each of some steps."""
    runner.write_state(STATE)
    found: list[bytes] = []
    for number in range(steps):
        runner.write_batch(BATCHES[number % len(BATCHES)])
        runner.run()
        found.append(runner.outputs())
    return found


@pytest.fixture(scope="module")
def expected(small: Small) -> list[bytes]:
    return trained(CpuRunner(small.kept))


def check_whole(program: Program, expected: list[bytes], folder: Path) -> None:
    """Results bit for bit those of the step in memory; memory and file as planned, to the byte."""
    runner = CpuRunner(program, slack=256, page_dir=folder)
    assert trained(runner) == expected
    assert runner.high_waters(STATE, BATCHES[0]) == (program.plan.peak_bytes, program.plan.paged_bytes)
    runner.write_state(STATE)
    runner.write_batch(BATCHES[0])
    runner.run(7)
    one = CpuRunner(program, page_dir=folder)
    one.write_state(STATE)
    one.write_batch(BATCHES[0])
    for _ in range(7):
        one.run()
    assert runner.outputs() == one.outputs()


@pytest.mark.parametrize("made", [computed_again, paged, stored])
def test_a_schedule_gives_the_same_bits(small: Small, expected: list[bytes], tmp_path: Path, made):
    steps = made(small.problem)
    usage = replay(small.problem, steps)
    assert usage.remats + usage.pages_in
    check_whole(small.along(steps), expected, tmp_path)


def test_random_schedules_give_the_same_bits(small: Small, expected: list[bytes], tmp_path: Path):
    overlapping = 0
    for seed in range(60):
        program = small.along(random_steps(small.problem, random.Random(seed)))
        overlapping += any(e.what == "begin" for here in events_of(program) for e in here)
        check_whole(program, expected, tmp_path)
    assert overlapping > 20


def events_of(program: Program):
    return paging.events(program.plan.transfers, len(program.plan.calls))


@pytest.mark.parametrize("spins", [1, 2000])
def test_thousands_of_steps_in_one_call_neither_hang_nor_differ(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spins: int
):
    """With a spin of one pause every wait is a sleep, and every transfer a wake."""
    monkeypatch.setattr(paging, "SPINS", spins)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    kept = CpuRunner(small.kept)
    for made in (paged, stored):
        runner = CpuRunner(small.along(made(small.problem)), page_dir=tmp_path)
        for one in (runner, kept):
            one.write_state(STATE)
            one.write_batch(BATCHES[0])
            one.run(2000)
        assert runner.outputs() == kept.outputs()


def test_threads_do_not_change_a_paged_step(small: Small, expected: list[bytes], tmp_path: Path):
    assert trained(CpuRunner(small.along(paged(small.problem)), threads=4, page_dir=tmp_path)) == expected


def test_kernels_and_transfers_join_where_the_plan_says():
    """Both sides step by step in random order: nothing begins early, everything has ended where it must."""
    for seed in range(400):
        rng = random.Random(seed)
        calls = rng.randint(0, 6)
        starts = sorted(rng.randint(0, calls) for _ in range(rng.randint(0, 6)))
        transfers = [Transfer("in", 0, 1, s, s if rng.random() < 0.4 else rng.randint(s, calls)) for s in starts]
        planned = paging.events(transfers, calls)
        here = {e.number for position in planned for e in position if e.what == "do"}
        queue = [number for number in range(len(transfers)) if number not in here]
        began, done, taken, finished = 0, 0, 0, list[int]()
        for position, found in enumerate(planned):
            for event in found:
                if event.what == "begin":
                    began += event.number
                elif event.what == "end":
                    taken += event.number
                    assert taken <= began, "it waits for what may not begin"
                    assert any(transfers[n].end <= position for n in queue[taken - 1 :]), "it waits too early"
                    finished, done = finished + queue[done:taken], max(done, taken)
                else:
                    assert done == began, "a transfer of the thread may be on its way"
                    finished.append(event.number)
                while done < began and rng.random() < 0.3:
                    finished, done = [*finished, queue[done]], done + 1
            assert all(transfers[number].start <= position for number in [*finished, *queue[:began]])
            surely = set(here & set(finished)) | set(queue[:taken])
            assert {n for n, t in enumerate(transfers) if t.end <= position} <= surely
        assert finished == sorted(finished) == list(range(len(transfers)))
        assert (began, taken) == (len(queue), len(queue))


def test_the_file_has_no_name_and_survives_its_folder(small: Small, expected: list[bytes], tmp_path: Path):
    folder = tmp_path / "pages"
    folder.mkdir()
    runner = CpuRunner(small.along(stored(small.problem)), page_dir=folder)
    assert list(folder.iterdir()) == []
    shutil.rmtree(folder)
    assert trained(runner) == expected


def test_a_missing_folder_is_named(small: Small, tmp_path: Path):
    with pytest.raises(FitnessError, match=r"no page file of \d+ bytes: No such file.*nowhere.*--page-dir"):
        CpuRunner(small.along(paged(small.problem)), page_dir=tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(FitnessError, match="Not a directory"):
        CpuRunner(small.along(paged(small.problem)), page_dir=tmp_path / "file")


def test_no_room_for_the_file_is_said_before_the_first_step(tmp_path: Path):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, usual[1]))
    try:
        with pytest.raises(FitnessError, match="no page file of 65537 bytes: File too large"):
            PageFile(tmp_path, (1 << 16) + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert list(tmp_path.iterdir()) == []


def page_fd(folder: Path) -> int:
    """The descriptor of the page file made in a folder."""
    names = {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)}
    (found,) = [fd for fd, name in names.items() if name.startswith(str(folder))]
    return found


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@contextmanager
def replaced(fd: int, path: str) -> Iterator[None]:
    """While inside, `fd` is another file."""
    kept, other = os.dup(fd), os.open(path, os.O_RDWR)
    os.dup2(other, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)
        os.close(other)


@pytest.mark.parametrize("made", [paged, stored])
def test_a_full_device_ends_the_run_with_an_error_and_the_runner_lives_on(
    small: Small, expected: list[bytes], tmp_path: Path, made
):
    runner = CpuRunner(small.along(made(small.problem)), page_dir=tmp_path)
    runner.write_state(STATE)
    with (
        replaced(page_fd(tmp_path), "/dev/full"),
        pytest.raises(FitnessError, match=r"failed: No space left on device \(errno 28\).*" + str(tmp_path)),
    ):
        runner.run(3)
    assert trained(runner) == expected


def test_a_file_that_lost_its_end_is_an_error(small: Small, expected: list[bytes], tmp_path: Path):
    runner = CpuRunner(small.along(stored(small.problem)), page_dir=tmp_path)
    runner.write_state(STATE)
    os.ftruncate(page_fd(tmp_path), 0)
    with pytest.raises(FitnessError, match="Input/output error"):
        runner.run(2)
    with pytest.raises(FitnessError, match="shorter than it was"):
        os.ftruncate(page_fd(tmp_path), 0)
        runner.outputs()
    assert trained(runner) == expected


def test_what_cannot_be_read_in_is_zero_for_the_kernels(tmp_path: Path):
    """Else a kernel could take what stood there for an index."""
    state = Buffer("w'page", "page", 0, 32, (8,), "float32")
    calls = (KernelCall("k2", (2, 1)),)
    plan = Plan((state, METRIC, WORK), calls, (0,), (), (1,), 224, (Transfer("in", 2, 0, 0, 0),), 32)
    runner = CpuRunner(replace(pull(), plan=plan), page_dir=tmp_path)
    runner.write_state([np.full(8, 2.0, np.float32)])
    runner.run()
    assert runner.metrics[0] == 32.0
    os.ftruncate(page_fd(tmp_path), 16)
    with pytest.raises(FitnessError, match="Input/output error"):
        runner.run()
    assert runner.metrics[0] == 16.0


def test_a_forked_child_pages_to_a_file_of_its_own(small: Small, expected: list[bytes], tmp_path: Path):
    runner = CpuRunner(small.along(stored(small.problem)), page_dir=tmp_path)
    runner.write_state(STATE)
    pid = os.fork()
    if not pid:
        same = runner.state[0].tobytes() == STATE[0].tobytes()
        runner.write_state([leaf + 1 for leaf in STATE])
        runner.run(20)
        os._exit(0 if same and trained(runner) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    runner.write_batch(BATCHES[0])
    runner.run()
    assert runner.outputs() == expected[0]


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def test_the_thread_ends_with_the_runner_and_only_overlapped_transfers_have_one(small: Small, tmp_path: Path):
    steps = paged(small.problem)
    before = thread_count()
    blocking = CpuRunner(
        small.along([s for s in steps if s.kind not in (Kind.OUT_DONE, Kind.IN_DONE)]), page_dir=tmp_path
    )
    trained(blocking)
    assert thread_count() == before
    runner = CpuRunner(small.along(steps), page_dir=tmp_path)
    assert thread_count() == before
    trained(runner)
    assert thread_count() == before + 1
    files = len(os.listdir("/proc/self/fd"))
    del runner
    gc.collect()
    assert thread_count() == before
    assert len(os.listdir("/proc/self/fd")) == files - 1


def test_state_in_the_page_file_is_read_only_and_passed_back_as_it_is(
    small: Small, expected: list[bytes], tmp_path: Path
):
    runner = CpuRunner(small.along(stored(small.problem)), page_dir=tmp_path)
    step = Step(runner, ["w1", "w2"], ["x", "t"])
    state: Sequence[np.ndarray] = STATE
    for number in range(5):
        state, metrics = step(state, BATCHES[number % len(BATCHES)])
        assert b"".join(a.tobytes() for a in (*state, *metrics)) == expected[number]
    with pytest.raises(ValueError, match="read-only"):
        state[0][...] = 0
    again, _ = step([STATE[0], state[1]], BATCHES[0])
    runner.write_state([STATE[0], state[1]])
    runner.write_batch(BATCHES[0])
    runner.run()
    assert [a.tobytes() for a in again] == [a.tobytes() for a in runner.state]


def test_after_a_failed_run_state_that_is_passed_again_is_written_again(
    small: Small, expected: list[bytes], tmp_path: Path
):
    runner = CpuRunner(small.along(stored(small.problem)), page_dir=tmp_path)
    step = Step(runner, ["w1", "w2"], ["x", "t"])
    state, _ = step(STATE, BATCHES[0])
    with replaced(page_fd(tmp_path), "/dev/full"), pytest.raises(FitnessError, match="No space left"):
        step(state, BATCHES[1])
    step([leaf + 1 for leaf in STATE], BATCHES[3])  # other content in the file
    with replaced(page_fd(tmp_path), "/dev/full"), pytest.raises(FitnessError, match="No space left"):
        step(state, BATCHES[1])
    again, metrics = step(state, BATCHES[1])
    assert b"".join(a.tobytes() for a in (*again, *metrics)) == expected[1]


def test_a_saved_program_pages_as_before_and_older_versions_refuse_it(
    small: Small, expected: list[bytes], tmp_path: Path
):
    program = small.along(stored(small.problem))
    signature = {
        what: [{"name": f"{what}{i}", "shape": a.shape, "dtype": a.dtype.name} for i, a in enumerate(arrays)]
        for what, arrays in (("state", STATE), ("batch", BATCHES[0]))
    }
    save_program(tmp_path / "paged", program, {"signature": signature})
    save_program(tmp_path / "kept", small.kept, {"signature": signature})
    assert load_program(tmp_path / "paged").plan == program.plan
    assert [load_manifest(tmp_path / name)["format"] for name in ("kept", "paged")] == [1, 2]
    state, _ = load_step(tmp_path / "paged", page_dir=tmp_path)(STATE, BATCHES[0])
    assert b"".join(a.tobytes() for a in state) == expected[0][: sum(a.nbytes for a in STATE)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"page": 0}, "is none"),
        ({"kind": "up"}, "is none"),
        ({"end": 99}, "to call 99"),
        ({"start": 99}, "from call 99"),
    ],
)
def test_a_plan_with_an_impossible_transfer_never_runs(
    small: Small, tmp_path: Path, change: dict[str, object], said: str
):
    program = small.along(paged(small.problem))
    first, *others = program.plan.transfers
    plan = replace(program.plan, transfers=(replace(first, **change), *others))
    with pytest.raises(FitnessError, match=said):
        CpuRunner(replace(program, plan=plan), page_dir=tmp_path)


def test_calls_one_at_a_time_refuse_a_paged_program(small: Small):
    with pytest.raises(FitnessError, match="paged"):
        StepCalls(small.along(paged(small.problem)), STATE, BATCHES)

"""Trains a workload's base with its own compiled program, and keeps what it learned for predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.lessons import Lessons, read_lessons
from fitness.quality import CHECK_EVERY, Judge, finite, score
from fitness.result import Failure
from fitness.typed import retyped
from gevo.errors import BaseFails, CampaignError
from gevo.tune import Bench, open_bench
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from workloads.cache import cache_folder
from workloads.trained import keep, trained_file

OnStep = Callable[[int, float], None]  # steps done; the first metric


@dataclass(frozen=True)
class Course:
    """A training: how many steps, and from which seed's initial state in which seed's order of batches."""

    steps: int
    seed: int
    threads: int


@dataclass(frozen=True)
class Learned:
    """What came of a training. error: by split, of the workload's own kind."""

    state: tuple[Array, ...]
    error: dict[str, float]


def open_training(workload: str) -> Bench:
    """The training that `workload` names, as a search starts from it; raises CampaignError for a prediction."""
    bench = open_bench(workload)
    if bench.prepared.signature.is_prediction:
        raise CampaignError(
            "a prediction has nothing to train", workload, "Name the training that its weights come from"
        )
    return bench


def steps_of(bench: Bench, steps: int, epochs: int) -> int:
    """The steps asked for, those of so many epochs, or the workload's own."""
    if steps and epochs:
        raise CampaignError("both --steps and --epochs are given", bench.workload, "Give one of them")
    rows, batch = len(bench.prepared.split("train")[0]), bench.prepared.signature.batch[0].shape[0]
    return steps or epochs * (rows // batch) or bench.prepared.signature.quality.steps


def train(bench: Bench, course: Course, on_step: OnStep) -> Learned:
    """The state after the training, scored on validation and test split; raises BaseFails if it is not finite.

    The same seed gives the same bytes on one CPU, with any number of threads: kernels are made by default, however
    they are tuned.
    """
    prepared = bench.prepared
    try:
        initial = prepared.initial_state(course.seed)
    except FileNotFoundError:
        known = sorted(int(p.stem.removeprefix("init_")) for p in prepared.folder.glob("init_*.npz"))
        todo = f"Prepared are {', '.join(map(str, known))}; others by Quality(seeds=...) in the workload"
        raise CampaignError(f"no initial state for seed {course.seed}", bench.workload, todo) from None
    runner = CpuRunner(bench.program({}), threads=course.threads)
    runner.write_state(initial)
    for done, batch in enumerate(prepared.batches(course.seed, course.steps), 1):
        runner.write_batch(batch)
        runner.run()
        last = done == course.steps
        if (done % CHECK_EVERY == 0 or last) and not finite((*runner.state, *runner.metrics)):
            raise BaseFails(f"the training is not finite by step {done}", bench.workload, "Lower its learning rate")
        on_step(done, float(runner.metrics[0]) if runner.metrics and not runner.metrics[0].shape else 0.0)
    state = tuple(runner.read_state())
    judge = _judge(bench, runner, course.threads)
    errors = {split: _error(runner, judge, state, lessons(bench, split)) for split in ("validation", "test")}
    return Learned(state, errors)


def keep_trained(bench: Bench, learned: Learned) -> Path:
    """The file in the cache that a prediction finds the state in, see `workloads.trained`."""
    path = trained_file(bench.prepared)
    keep(learned.state, path)
    return path


def lessons(bench: Bench, split: str) -> Lessons:
    return read_lessons(bench.prepared, split, keep_bytes=0)


def _judge(bench: Bench, runner: CpuRunner, threads: int) -> Judge:
    """The base's own functions."""
    signature, text = bench.prepared.signature, bench.prepared.predict_text
    if text is None or signature.quality.kind != "accuracy":
        return Judge(runner)
    sizes = len(signature.state), len(signature.predict_inputs)
    program = compile_text(text, "predict", *sizes, ObjectCache(cache_folder() / "objects"))
    program = retyped(program, signature.state, signature.predict_inputs)
    return Judge(runner, CpuRunner(program, threads=threads))


def _error(runner: CpuRunner, judge: Judge, state: tuple[Array, ...], given: Lessons) -> float:
    runner.write_state(state)
    error = score(runner, judge, given)
    if isinstance(error, Failure):
        raise FitnessError(error.detail, given.prepared.signature.name)
    return error

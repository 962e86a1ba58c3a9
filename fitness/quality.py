"""Quality of a variant: train with it on real data, then score what it learned with the base's own functions.

A variant of a prediction learns nothing: its own scores are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.lessons import Lessons
from fitness.result import Failure, Measure, Outcome
from workloads.dtypes import is_float

CHECK_EVERY = 20
Rows = slice | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Judge:
    """What scores a trained state: the base step and, for accuracy, the base predict. Never the variant."""

    step: CpuRunner
    predict: CpuRunner | None = None


def quality(runner: CpuRunner, judge: Judge, lessons: Lessons) -> Measure | Failure:
    """Mean error over the workload's seeds with their standard deviation as spread; diverging is a Failure.

    A training is done first, and the base scores what was learned; a prediction scores by itself, with the state of
    each seed.
    """
    errors: list[float] = []
    for seed in lessons.seeds:
        error = _predicted(runner, lessons, seed) if lessons.is_prediction else _learned(runner, judge, lessons, seed)
        if isinstance(error, Failure):
            return error
        errors.append(error)
    trained = "" if lessons.is_prediction else f":{lessons.rule.steps} steps"
    method = f"{lessons.rule.kind}:{lessons.split}{trained}"
    right = _right_bits(runner if lessons.is_prediction else judge.predict, lessons)
    return Measure(float(np.mean(errors)), method, float(np.std(errors)), tuple(errors), right)


def _right_bits(predict: CpuRunner | None, lessons: Lessons) -> str:
    """`Measure.right` of the state that `predict` holds; only the final check asks for it."""
    if predict is None or lessons.split != "test" or len(lessons.seeds) > 1 or lessons.rule.kind != "accuracy":
        return ""
    right = right_rows(predict, lessons)
    return "" if isinstance(right, Failure) else np.packbits(right).tobytes().hex()


def _predicted(runner: CpuRunner, lessons: Lessons, seed: int) -> float | Failure:
    runner.write_state(lessons.initial_state(seed))
    return accuracy_error(runner, lessons)


def _learned(runner: CpuRunner, judge: Judge, lessons: Lessons, seed: int) -> float | Failure:
    return train(runner, lessons, seed) or score(runner, judge, lessons)


def score(runner: CpuRunner, judge: Judge, lessons: Lessons) -> float | Failure:
    """The error of the state that a training left in `runner`, on the scored split."""
    if lessons.rule.kind != "accuracy":
        return _loss(runner, judge, lessons)
    if judge.predict is None:
        raise ValueError("accuracy needs a predict program")
    judge.predict.write_state(runner.state)
    return accuracy_error(judge.predict, lessons)


def train(runner: CpuRunner, lessons: Lessons, seed: int) -> Failure | None:
    """Run the seed's batches from the seed's initial state; the runner's arena keeps the end."""
    runner.write_state(lessons.initial_state(seed))
    done = 0
    for batch in lessons.batches(seed):
        runner.write_batch(batch)
        runner.run()
        done += 1
        if done % CHECK_EVERY == 0 and not finite((*runner.state, *runner.metrics)):
            return Failure(Outcome.DIVERGED, f"seed {seed}: not finite by step {done}")
    if not finite((*runner.state, *runner.metrics)):
        return Failure(Outcome.DIVERGED, f"seed {seed}: not finite by step {done}")
    return None


def finite(arrays: Sequence[Array]) -> bool:
    """Whether no float among `arrays` is NaN or infinite."""
    return all(bool(np.isfinite(a).all()) for a in arrays if is_float(a.dtype))


def accuracy_error(predict: CpuRunner, lessons: Lessons) -> float | Failure:
    """1 - share of rows where the argmax of the scores is the label, with the state that `predict` holds."""
    right = right_rows(predict, lessons)
    return right if isinstance(right, Failure) else 1.0 - int(right.sum()) / len(right)


def right_rows(predict: CpuRunner, lessons: Lessons) -> Array | Failure:
    """Of each row of the scored split, whether the argmax of its scores is its label."""
    arrays = lessons.scored
    inputs, labels = arrays[: len(predict.batch)], arrays[len(predict.batch)]
    if labels.ndim > 1:
        labels = labels.argmax(axis=-1)
    right: list[Array] = []
    for rows, count in _blocks(len(labels), predict.batch[0].shape[0]):
        predict.write_batch([a[rows] for a in inputs])
        predict.run()
        scores = predict.metrics[0]
        if not finite([scores]):
            return Failure(Outcome.DIVERGED, "the scores are not finite")
        right.append(scores.argmax(axis=-1)[:count] == labels[rows][:count])
    return np.concatenate(right)


def _loss(runner: CpuRunner, judge: Judge, lessons: Lessons) -> float | Failure:
    """Mean of the base step's first metric over the split's whole batches, the trained state held."""
    arrays = lessons.scored
    state = runner.read_state()
    losses: list[float] = []
    size = judge.step.batch[0].shape[0]
    for rows, count in _blocks(len(arrays[0]), size):
        if count < size and losses:
            break
        judge.step.write_state(state)
        judge.step.write_batch([a[rows] for a in arrays])
        judge.step.run()
        losses.append(float(judge.step.metrics[0]))
    mean = float(np.mean(losses))
    return mean if np.isfinite(mean) else Failure(Outcome.DIVERGED, "the loss of the trained state is not finite")


def _blocks(rows: int, size: int) -> Iterator[tuple[Rows, int]]:
    """Rows in blocks of exactly `size`, wrapping at the end, with the count of rows not seen before."""
    for start in range(0, rows, size):
        whole = start + size <= rows
        block: Rows = slice(start, start + size) if whole else np.arange(start, start + size) % rows
        yield block, min(size, rows - start)

"""Quality of a variant: train with it on real data, then score what it learned with the base's own functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.lessons import Lessons
from fitness.result import Failure, Measure, Outcome

CHECK_EVERY = 20
Rows = slice | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Judge:
    """What scores a trained state: the base step and, for accuracy, the base predict. Never the variant."""

    step: CpuRunner
    predict: CpuRunner | None = None


def quality(runner: CpuRunner, judge: Judge, lessons: Lessons) -> Measure | Failure:
    """Mean error over the workload's seeds with their standard deviation as spread; diverging is a Failure."""
    rule = lessons.rule
    errors: list[float] = []
    for seed in lessons.seeds:
        failure = train(runner, lessons, seed)
        if failure:
            return failure
        score = _accuracy_error if rule.kind == "accuracy" else _loss
        error = score(runner, judge, lessons)
        if isinstance(error, Failure):
            return error
        errors.append(error)
    method = f"{rule.kind}:{lessons.split}:{rule.steps} steps"
    return Measure(float(np.mean(errors)), method, float(np.std(errors)), tuple(errors))


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
    return all(bool(np.isfinite(a).all()) for a in arrays if np.issubdtype(a.dtype, np.floating))


def _accuracy_error(runner: CpuRunner, judge: Judge, lessons: Lessons) -> float | Failure:
    """1 - share of rows where the argmax of the scores is the label."""
    predict = judge.predict
    if predict is None:
        raise ValueError("accuracy needs a predict program")
    arrays = lessons.scored
    inputs, labels = arrays[: len(predict.batch)], arrays[len(predict.batch)]
    if labels.ndim > 1:
        labels = labels.argmax(axis=-1)
    predict.write_state(runner.state)
    right = 0
    for rows, count in _blocks(len(labels), predict.batch[0].shape[0]):
        predict.write_batch([a[rows] for a in inputs])
        predict.run()
        scores = predict.metrics[0]
        if not finite([scores]):
            return Failure(Outcome.DIVERGED, "the scores of the trained state are not finite")
        right += int((scores.argmax(axis=-1)[:count] == labels[rows][:count]).sum())
    return 1.0 - right / len(labels)


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

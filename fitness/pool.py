"""Evaluates batches of genomes over worker processes. One thread, one loop; results do not depend on the workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from fitness.batch import Batch
from fitness.crew import Crew
from fitness.death import Death, cause
from fitness.errors import FitnessError
from fitness.handle import Handle
from fitness.job import Context, PoolEvent
from fitness.page_file import PageFile
from fitness.result import Outcome, Result

EVALUATOR = "fitness.evaluate:evaluator"
IDENTITY: Mapping[str, Any] = {"edits": [], "schedule": []}
REPEATS = 5  # timings of the base against itself, beside its first, that show how noisy this machine is
Genomes = Sequence[Mapping[str, Any]]
OnEvent = Callable[[PoolEvent], None]


class Pool:
    """`with Pool(context, workers) as pool: results = pool.evaluate(genomes, known)`.

    base: the base's result of an earlier pool of this campaign; without it the base is evaluated on entry.
    Every `runtime_s` is the variant's ratio to the base times the base's seconds, so that times of different
    moments, workers and sessions compare. Must be used from one thread, which must outlive it.
    """

    def __init__(
        self, context: Context, workers: int = 1, base: Result | None = None, evaluator: str = EVALUATOR
    ) -> None:
        self._context, self._evaluator = context, evaluator
        self._limits = context.limits
        self._crew = Crew(context, evaluator, max(1, workers))
        self._base = base
        self._number = 0

    @property
    def base(self) -> Result:
        if self._base is None:
            raise FitnessError("the pool is not open", todo="Use it in a `with` block")
        return self._base

    def __enter__(self) -> Pool:
        if self._context.page_dir:
            PageFile(Path(self._context.page_dir), 0)  # raises now, or each variant that pages would end with that
        try:
            self._crew.start()
            self._base = self._base or self._evaluate_base()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill every worker and every child now."""
        self._crew.close()

    def evaluate(
        self, genomes: Genomes, known: Mapping[str, Result] | None = None, on_event: OnEvent | None = None
    ) -> list[Result]:
        """The genomes' results, in order. known: results by fingerprint that answer for equal variants."""
        return self._run(genomes, {**(known or {}), self.base.fingerprint: self.base}, on_event)

    def against_itself(self, count: int) -> list[float]:
        """Ratios of the base to itself, each from a process of its own as a variant's is."""
        return self._repeated(self.base, count)

    def _evaluate_base(self) -> Result:
        result = self._run([IDENTITY], {}, None)[0]
        if not result.ok:
            raise FitnessError(f"the base does not run: {result.outcome} in {result.stage}: {result.detail}")
        return as_base(result, self._repeated(result, REPEATS)) if "runtime_s" in result.objectives else result

    def _repeated(self, base: Result, count: int) -> list[float]:
        """`against_itself` for a base that is not this pool's yet; nothing but time is measured."""
        context = replace(self._context, objectives=("runtime_s",))
        with Pool(context, 1, base, self._evaluator) as pool:
            again = [pool._run([IDENTITY], {}, None)[0] for _ in range(count)]
        return [result.runtime_ratio for result in again if result.ok]

    def _run(self, genomes: Genomes, known: Mapping[str, Result], on_event: OnEvent | None) -> list[Result]:
        run = _Run(self._crew, Batch(len(genomes), known), on_event or _ignore, self._anchored, self._died)
        try:
            while not run.batch.done or self._crew.busy:
                self._give_out(run.batch, genomes)
                for handle, messages in self._crew.listen():
                    run.hear(handle, messages)
        except BaseException:
            self.close()
            raise
        return run.batch.results()

    def _give_out(self, batch: Batch, genomes: Genomes) -> None:
        for handle in self._crew.idle:
            index = batch.next()
            if index is None:
                return
            self._number += 1
            handle.give(self._number, index, genomes[index])

    def _anchored(self, result: Result) -> Result:
        """`result` with its time as the ratio times the base's seconds."""
        if self._base is None or "runtime_s" not in result.objectives.keys() & self._base.objectives.keys():
            return result
        runtime, base_s = result.objectives["runtime_s"], self._base.objectives["runtime_s"].value
        scale = base_s * result.runtime_ratio / runtime.value
        anchored = replace(runtime, value=base_s * result.runtime_ratio, spread=runtime.spread * scale)
        return replace(result, objectives={**result.objectives, "runtime_s": anchored})

    def _died(self, handle: Handle, death: Death) -> Result:
        failure = cause(death, handle.stage, self._limits)
        handle.enter(handle.stage)  # counts the time up to the death
        return Result(
            failure.outcome,
            stage=handle.stage,
            detail=failure.detail,
            fingerprint=handle.fingerprint,
            stage_s=handle.stage_s,
        )


@dataclass(frozen=True)
class _Run:
    """One batch under way: what each message of a worker does to the book."""

    crew: Crew
    batch: Batch
    on_event: OnEvent
    anchored: Callable[[Result], Result]
    died: Callable[[Handle, Death], Result]

    def hear(self, handle: Handle, messages: list[dict[str, Any]] | None) -> None:
        if messages is None:
            self.lose(handle)
        for message in messages or ():
            self.act(handle, message)

    def act(self, handle: Handle, message: Mapping[str, Any]) -> None:
        match message, handle.job:
            case {"event": "ready"}, _:
                handle.free(ready=True)
            case {"event": "failed", "detail": detail}, _:
                raise FitnessError(f"the base does not load: {detail}", "worker", "See `gevo doctor`")
            case {"event": "started", "pid": pid}, int(index):
                handle.child = pid
                self.on_event(PoolEvent("started", index))
            case {"event": "stage", "stage": stage}, int(index):
                handle.enter(stage)
                self.on_event(PoolEvent("stage", index, stage))
            case {"event": "fingerprint", "fingerprint": fingerprint}, int(index):
                handle.fingerprint = fingerprint
                finished = self.batch.answer(index, fingerprint)
                handle.send({"answer": handle.number, "known": finished is not None})
                self.tell(finished or [])
            case {"event": "result", "result": result}, int(index):
                handle.reported = True
                self.tell(self.batch.finish(index, self.anchored(Result.from_json(result))))
            case {"event": "ended", "death": death}, int(index):
                if not handle.reported and not self.batch.answered(index):
                    self.tell(self.batch.finish(index, self.died(handle, Death(**death))))
                handle.free()
            case _:
                pass

    def lose(self, handle: Handle) -> None:
        """A worker died or hangs: another takes its place, and its job is tried once more."""
        index = handle.job
        self.crew.replace(handle)
        if index is None or handle.reported or self.batch.answered(index):
            return
        self.on_event(PoolEvent("worker_lost", index, handle.stage))
        if self.batch.retry(index):
            return
        detail = f"its worker died or hung twice, last in stage {handle.stage or 'start'}"
        lost = Result(Outcome.CRASHED, handle.stage, detail, handle.fingerprint, stage_s=handle.stage_s)
        self.tell(self.batch.finish(index, lost))

    def tell(self, finished: Sequence[tuple[int, Result]]) -> None:
        for index, result in finished:
            self.on_event(PoolEvent("finished", index, result=result))


def as_base(result: Result, again: Sequence[float]) -> Result:
    """The base with ratio 1 by definition; its spread is the noise of one evaluation's runtime.

    again: its ratios to itself in further processes. The spread is twice their root mean square distance from 1, and
    that of the first: with six of them, nine in ten evaluations of the base come out nearer to 1 (Student).
    """
    runtime = result.objectives["runtime_s"]
    off = [ratio - 1.0 for ratio in (result.runtime_ratio, *again)]
    noise = 2.0 * math.sqrt(sum(o * o for o in off) / len(off)) * result.measured_s
    runtime = replace(runtime, value=result.measured_s, spread=max(runtime.spread, noise))
    return replace(result, objectives={**result.objectives, "runtime_s": runtime}, runtime_ratio=1.0)


def _ignore(event: PoolEvent) -> None:
    pass

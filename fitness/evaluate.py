"""The cascade of one evaluation, cheap stages first. It runs in a forked child: each stage is told before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from fitness.bench import SLACK, Bench, load_bench
from fitness.check import check
from fitness.cpu import CpuRunner
from fitness.energy import energy
from fitness.job import Context, Job
from fitness.quality import quality
from fitness.result import Failure, Measure, Outcome, Result
from fitness.stages import COMPILE_STAGES, REJECTING_STAGES, STAGES
from fitness.timing import Timed, above_roofline, compare
from mlir_passes.errors import PassError
from mlir_passes.objects import ObjectCache
from mlir_passes.program import Program

_DETAIL = 500


class Channel(Protocol):
    """What a child says to its pool."""

    def stage(self, name: str) -> None:
        """Say which stage begins."""
        ...

    def known(self, fingerprint: str) -> bool:
        """Ask whether the pool has, or will have, the result of this variant."""
        ...


Evaluate = Callable[[Job, Channel], Result | None]


def evaluator(context: Context) -> Evaluate:
    """What a worker calls once: the base made ready, and the function that evaluates a job against it."""
    bench = load_bench(context)
    return lambda job, channel: evaluate(bench, job, channel)


def evaluate(bench: Bench, job: Job, channel: Channel) -> Result | None:
    """The job's result; None if the pool knows the variant already."""
    clock = _Clock(channel)
    cache = ObjectCache(Path(bench.context.cache))
    found = Result(Outcome.OK)
    try:
        clock.enter("edit")
        variant = bench.variant(job.genome, clock.enter)
        found = replace(found, fingerprint=variant.fingerprint)
        if channel.known(variant.fingerprint):
            return None
        dropped: list[str] = []
        program = bench.compile(variant, cache, clock.enter, dropped.extend)
        left_out = f"left out of its schedule: {'; '.join(dropped)}"[:_DETAIL] if dropped else ""
        found = replace(found, detail=left_out, paged_bytes=program.plan.paged_bytes)
        measured = _measure(bench, program, clock, found)
    except MemoryError:
        measured = Failure(Outcome.OUT_OF_MEMORY, "an allocation failed at the memory limit")
    except Exception as error:
        measured = _failure(error, clock)
    clock.stop()
    facts = {"stage_s": clock.stage_s, "cache_hits": cache.hits, "cache_misses": cache.misses}
    if isinstance(measured, Failure):
        return replace(found, outcome=measured.outcome, detail=measured.detail, stage=clock.current, **facts)
    return replace(measured, **facts)


def _measure(bench: Bench, program: Program, clock: _Clock, found: Result) -> Result | Failure:
    """`found` with the objectives asked for, or what stops them, in the order of their cost."""
    wanted, context = bench.context.objectives, bench.context
    peak = program.plan.peak_bytes
    if context.memory_budget and peak > context.memory_budget:
        return Failure(Outcome.OUT_OF_MEMORY, f"the arena needs {peak} bytes, the budget is {context.memory_budget}")
    clock.enter("load")
    pages = Path(context.page_dir) if context.page_dir else None
    runner = CpuRunner(program, SLACK, threads=context.threads, page_dir=pages)
    clock.enter("check")
    failure = check(runner, bench.base, bench.state, bench.batches, context.slow_ratio)
    if failure:
        return failure
    values = {"peak_bytes": Measure(float(peak), "plan")}
    if "error" in wanted:
        clock.enter("quality")  # before the time: half of all variants end here, most of them early
        error = quality(runner, bench.judge, bench.lessons)
        if isinstance(error, Failure):
            return error
        values["error"] = error
    if "runtime_s" in wanted:
        clock.enter("timing")
        timed = _time(bench, runner, program)
        if isinstance(timed, Failure):
            return timed
        values["runtime_s"] = _runtime(timed)
        found = replace(found, runtime_ratio=timed.ratio, measured_s=timed.runtime_s)
    if "energy_j" in wanted:
        clock.enter("energy")
        values["energy_j"] = energy(program, bench.profile, context.threads)
    return replace(found, objectives={name: values[name] for name in wanted})


def _time(bench: Bench, runner: CpuRunner, program: Program) -> Timed | Failure:
    timed = compare(bench.subject(runner), bench.subject(bench.base), bench.context.timing)
    if isinstance(timed, Failure):
        return timed
    flops = sum(program.kernels[call.kernel].flops for call in program.plan.calls)
    return above_roofline(flops, timed.runtime_s, bench.peak_flops) or timed


def _runtime(timed: Timed) -> Measure:
    return Measure(
        timed.ratio * timed.base_s, f"median ratio to base of {timed.pairs} window pairs", timed.spread * timed.base_s
    )


def _failure(error: Exception, clock: _Clock) -> Failure:
    """What an exception means by the stage it came from."""
    if isinstance(error, PassError) and error.stage in STAGES:
        clock.current = error.stage
    if isinstance(error, PassError) and clock.current in REJECTING_STAGES:
        return Failure(Outcome.REJECTED, str(error)[:_DETAIL])
    text = str(error) if isinstance(error, PassError) else f"{type(error).__name__}: {error}"
    compiling = clock.current in COMPILE_STAGES
    return Failure(Outcome.COMPILE_FAILED if compiling else Outcome.CRASHED, text[:_DETAIL])


class _Clock:
    """Which stage runs, and the wall seconds of each."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._since = 0.0
        self.current = ""
        self.stage_s: dict[str, float] = {}

    def enter(self, stage: str) -> None:
        if stage == self.current:
            return
        self.stop()
        self.current = stage
        self._since = time.perf_counter()
        self._channel.stage(stage)

    def stop(self) -> None:
        if self.current:
            spent = time.perf_counter() - self._since
            self.stage_s[self.current] = self.stage_s.get(self.current, 0.0) + spent

"""Finds better schedules for the kernels of a step: each candidate compiled, checked and timed in a child of its own.

Kernels come in the order of their share of the step. For each one: first what the families list, one phase at a time,
the costliest first; then small steps from the best (`mlir_passes.kernels.search`). The best few are timed again, and
one that does not hold is dropped. A candidate that fails is data: it is counted, and the search goes on.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fitness.calls import Capture, StepCalls
from fitness.cpu import Array
from fitness.errors import FitnessError
from fitness.isolated import isolated
from fitness.job import Limits
from fitness.result import Failure
from fitness.rival import Made, Ratio, compare, to_json
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.kernels.families import candidates, family
from mlir_passes.kernels.machine import trips
from mlir_passes.kernels.nest import Nest, NotCovered
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.search import neighbours
from mlir_passes.lower_cpu import compile_choice, kernel_hash, machine, read_nest
from mlir_passes.objects import KernelObject
from mlir_passes.pipeline import kernel_text
from mlir_passes.program import Kernel, Program

MARGIN = 0.97  # a choice stays the default unless its time is under this share of it
STEP = 0.99  # a small step is taken if it gives this share of the best time so far
SHORTEST_S = 1e-6  # kernels below this time are left alone
SMALLEST_SHARE = 0.003  # and those below this share of the step
_FINALISTS = 3
_SMALL_PHASE = 0.05  # of a kernel's work, below which a phase keeps its default
_ROUNDS, _FINAL_ROUNDS = 16, 60
_LEAST_S = 2.0  # for one kernel, however small its share of the time left
_PROFILE_S = 1.0
LIMITS = Limits(wall_s=20.0, cpu_s=20.0, memory_bytes=2 << 30)
_STAGE = "timing"


@dataclass(frozen=True)
class Options:
    """seconds: for all kernels together, 0 for no limit. most: candidates of one kernel."""

    seconds: float = 0.0
    most: int = 150
    seed: int = 0
    limits: Limits = LIMITS


@dataclass(frozen=True)
class Target:
    """A kernel worth tuning. share: of the step's time, all its calls together."""

    hash: str
    kernel: Kernel
    code: bytes
    nest: Nest
    capture: Capture
    share: float

    @property
    def loops(self) -> str:
        """Trip counts of its largest phase, the reduced ones after "sum"."""
        phase = max(self.nest.phases, key=lambda p: trips(self.nest, p.loops))
        sizes = self.nest.sizes
        outer = "x".join(str(sizes[loop]) for loop in (*self.nest.rows, *self.nest.parallel(phase)))
        inner = "x".join(str(sizes[loop]) for loop in self.nest.reduced(phase))
        return f"{outer or '1'} sum {inner}" if inner else outer or "1"

    @property
    def family(self) -> str:
        return family(self.nest, max(self.nest.phases, key=lambda p: trips(self.nest, p.loops)))


@dataclass(frozen=True)
class Tuned:
    """What was found for a kernel. ratio: its time over the default's; 1 where the default stays.

    tried, failed: candidates, and those of them that did not compile, did not run or gave wrong results.
    finished: False where the time was up before all was tried.
    """

    hash: str
    choice: Choice
    family: str
    loops: str
    default_s: float
    ratio: float
    spread: float
    tried: int
    failed: int
    note: str
    finished: bool


@dataclass(frozen=True)
class Try:
    """A candidate's measurement, for whoever watches. ratio: NaN where it failed."""

    target: Target
    number: int
    ratio: float
    best: float


@dataclass(frozen=True)
class Step:
    """The step whose kernels are tuned: its program by default, and what it starts from."""

    program: Program
    state: Sequence[Array]
    batches: Sequence[Sequence[Array]]


def targets(step: Step, limits: Limits = LIMITS) -> list[Target]:
    """The kernels worth tuning, the largest share of the step first."""
    program = step.program

    def work() -> list[float]:
        return StepCalls(program, step.state, step.batches).times(_PROFILE_S)

    found = isolated(work, replace(limits, wall_s=10 * limits.wall_s, cpu_s=10 * limits.cpu_s), "load")
    if isinstance(found, Failure):
        raise FitnessError(f"the step does not run: {found.outcome}: {found.detail}", "tuning")
    spent: dict[str, list[float]] = {}
    for call, call_s in zip(program.plan.calls, found, strict=True):
        spent.setdefault(call.kernel, []).append(call_s)
    whole = sum(found)
    shares = {key: sum(times) / whole for key, times in spent.items()}
    large = [k for k, times in spent.items() if min(times) >= SHORTEST_S and shares[k] >= SMALLEST_SHARE]
    nests = {key: nest for key in large if (nest := _nest(program.kernels[key])) is not None}
    captured = StepCalls(program, step.state, step.batches).capture(nests)
    made: list[Target] = []
    for key, nest in nests.items():
        kernel = program.kernels[key]
        name = kernel_hash(kernel_text(kernel))
        made.append(Target(name, kernel, program.objects[key], nest, captured[key], shares[key]))
    return sorted(made, key=lambda target: -target.share)


def _nest(kernel: Kernel) -> Nest | None:
    try:
        return read_nest(kernel_text(kernel), new_context())
    except NotCovered:
        return None


def tune(
    found: Sequence[Target],
    step_bytes: int,
    options: Options,
    known: Mapping[str, Choice],
    on_try: Callable[[Try], None],
) -> Iterator[Tuned]:
    """What is best for each target, one after the other. known: where a search that was cut short goes on."""
    end = time.monotonic() + options.seconds if options.seconds else math.inf
    for number, target in enumerate(found):
        left = end - time.monotonic()
        if left <= 0:
            return
        share = target.share / sum(t.share for t in found[number:])
        own = min(end, time.monotonic() + max(_LEAST_S, left * share))
        yield _Search(target, step_bytes, options, own, on_try).run(known.get(target.hash, DEFAULT))


class _Search:
    """The search for one kernel."""

    def __init__(
        self, target: Target, step_bytes: int, options: Options, end: float, on_try: Callable[[Try], None]
    ) -> None:
        self._target, self._step_bytes, self._options = target, step_bytes, options
        self._end, self._on_try = end, on_try
        self._random = random.Random(f"{options.seed} {target.hash}")
        self._context = new_context()
        self._ratios: dict[Choice, float] = {}
        self._failed = 0
        self._note = ""
        self._whole = True

    def run(self, known: Choice) -> Tuned:
        nest = self._target.nest
        lists = candidates(nest, machine())
        best = tuple(schedules[0] for schedules in lists)
        self._ratios[Choice(schedules=best)] = 1.0
        if blas.product(nest) is not None and blas.symbol():
            self._ratio(BLAS)
        if known.schedules:
            best = self._better(best, known.schedules)
        for number in self._phases():
            for schedule in lists[number][1:]:
                best = self._better(best, _with(best, number, schedule))
            best = self._climb(best, number)
        return self._settled()

    def _phases(self) -> list[int]:
        """Numbers of the phases that do most of the work, the costliest first."""
        nest = self._target.nest
        costs = [trips(nest, p.loops) * len(nest.reach(nest.roots(p))) for p in nest.phases]
        worth = [i for i, cost in enumerate(costs) if cost >= _SMALL_PHASE * sum(costs)]
        return sorted(worth, key=lambda i: -costs[i])

    def _climb(self, best: tuple[Schedule, ...], number: int) -> tuple[Schedule, ...]:
        """Small steps of one phase until none helps."""
        nest = self._target.nest
        while True:
            steps = neighbours(best[number], nest, nest.phases[number], machine())
            self._random.shuffle(steps)
            before = best
            for schedule in steps:
                best = self._better(best, _with(best, number, schedule))
                if best != before:
                    break
            if best == before:
                return best

    def _better(self, best: tuple[Schedule, ...], other: tuple[Schedule, ...]) -> tuple[Schedule, ...]:
        """The faster of two, `best` unless the other is so by more than noise."""
        ratio = self._ratio(Choice(schedules=other))
        return other if ratio < STEP * self._ratios[Choice(schedules=best)] else best

    def _ratio(self, choice: Choice) -> float:
        """Time of a choice over the default's, infinite if it fails or there is no time or room to try it."""
        if choice in self._ratios:
            return self._ratios[choice]
        if time.monotonic() >= self._end or len(self._ratios) >= self._options.most:
            self._whole = self._whole and len(self._ratios) >= self._options.most
            return math.inf
        found = self._measured(choice, _ROUNDS, screen=True)
        self._ratios[choice] = found.ratio if found else math.inf
        best = min(self._ratios.values())
        self._on_try(Try(self._target, len(self._ratios) - 1, found.ratio if found else math.nan, best))
        return self._ratios[choice]

    def _measured(self, choice: Choice, rounds: int, screen: bool) -> Ratio | None:
        measure = partial(measured, self._target, choice, self._context, self._step_bytes, rounds, screen)
        found: Any = isolated(measure, self._options.limits, _STAGE)
        if isinstance(found, Failure):
            found = {"wrong": f"{found.outcome}: {found.detail}"}
        if "wrong" in found:
            self._failed += 1
            self._note = f"{choice.text} {found['wrong']}"[:500]
            return None
        return Ratio(**found)

    def _settled(self) -> Tuned:
        """The fastest of the best few, timed for longer; the default unless that is faster by the margin."""
        target = self._target
        promising = [choice for choice, ratio in self._ratios.items() if ratio < MARGIN]
        finals: list[tuple[Ratio, Choice]] = []
        for choice in sorted(promising, key=lambda choice: self._ratios[choice])[:_FINALISTS]:
            ratio = self._measured(choice, _FINAL_ROUNDS, screen=False)
            if ratio is not None:
                finals.append((ratio, choice))
        won, choice = min(finals, key=lambda pair: pair[0].ratio, default=(None, DEFAULT))
        if won is None or won.ratio >= MARGIN:
            base = self._measured(Choice(), _ROUNDS, screen=False) if won is None else won
            won, choice = Ratio(1.0, 0.0, base.default_s if base else math.nan), DEFAULT
        return Tuned(
            hash=target.hash,
            choice=choice,
            family=target.family,
            loops=target.loops,
            default_s=won.default_s,
            ratio=won.ratio,
            spread=won.spread,
            tried=len(self._ratios) - 1,
            failed=self._failed,
            note=self._note,
            finished=self._whole,
        )


def measured(
    target: Target, choice: Choice, context: Any, step_bytes: int, rounds: int, screen: bool
) -> dict[str, Any]:
    """A choice compiled and compared with the default; plain data. It may crash, hang or eat memory."""
    kernel = target.kernel
    try:
        made = compile_choice(kernel_text(kernel), "rival", context, choice)
    except NotCovered as error:
        return {"wrong": f"not covered: {error}"}
    if made.workspace:
        return {"wrong": "it wants a workspace"}
    default = Made(KernelObject(target.code, 0, kernel.shards), kernel.symbol)
    return to_json(compare(target.capture, default, Made(made, "k_rival"), step_bytes, rounds, screen))


def _with(schedules: tuple[Schedule, ...], number: int, schedule: Schedule) -> tuple[Schedule, ...]:
    return (*schedules[:number], schedule, *schedules[number + 1 :])

"""Finds better schedules for the kernels of a step: each candidate compiled, checked and timed in a child of its own.

Kernels come in the order of their share of the step. For each one: first what the families list, one phase at a time,
the costliest first; then small steps from the best (`mlir_passes.kernels.search`). The best few are timed again, the
fastest of them within the step, and what does not hold there is dropped. A candidate that fails is data: it is
counted, and the search goes on.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from fitness.calls import Capture, StepCalls
from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.isolated import isolated
from fitness.job import Limits, Timing
from fitness.result import Failure, Outcome
from fitness.rival import Made, Ratio, compare, summary, to_json
from fitness.timing import Subject, Timed
from fitness.timing import compare as compare_steps
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.kernels.families import candidates, defaults, family
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
_STARTS, _NEAR = 3, 1.15  # schedules of a list that small steps start from: not this much slower than the best
_SMALL_PHASE = 0.05  # of a kernel's work, below which a phase keeps its default
_ROUNDS, _FINAL_ROUNDS = 24, 120
_DUEL_S = 0.5
_STEP_WINDOW_S, _LEAST_ROUNDS, _MOST_ROUNDS = 0.002, 15, 500
_STEP_S = 4.0  # for the comparison of whole steps
_LEAST_S = 2.0  # for one kernel, however small its share of the time left
_PROFILE_S = 1.0
LIMITS = Limits(wall_s=20.0, cpu_s=20.0, memory_bytes=2 << 30)
_STAGE = "timing"
_NOTE = 1000  # characters: a choice, and the end of what a child said


@dataclass(frozen=True)
class Options:
    """seconds: for all kernels together, 0 for no limit. most: candidates of one kernel."""

    seconds: float = 0.0
    most: int = 150
    seed: int = 0
    limits: Limits = LIMITS


@dataclass(frozen=True)
class Target:
    """A kernel worth tuning. call_s: seconds of a call within the step. share: of the step's time, of all calls."""

    hash: str
    kernel: Kernel
    code: bytes
    nest: Nest
    capture: Capture
    call_s: float
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
    """What was found for a kernel. ratio: its time over the default's within the step; 1 where the default stays.

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
    whole = sum(found) or math.inf  # calls that no clock sees
    shares = {key: sum(times) / whole for key, times in spent.items()}
    large = [k for k, times in spent.items() if min(times) >= SHORTEST_S and shares[k] >= SMALLEST_SHARE]
    nests = {key: nest for key in large if (nest := _nest(program.kernels[key])) is not None}
    captured = StepCalls(program, step.state, step.batches).capture(nests)
    made: list[Target] = []
    for key, nest in nests.items():
        kernel = program.kernels[key]
        name = kernel_hash(kernel_text(kernel))
        made.append(Target(name, kernel, program.objects[key], nest, captured[key], _mean(spent[key]), shares[key]))
    return sorted(made, key=lambda target: -target.share)


def _mean(times: Sequence[float]) -> float:
    return sum(times) / len(times)


def _nest(kernel: Kernel) -> Nest | None:
    try:
        return read_nest(kernel_text(kernel), new_context())
    except NotCovered:
        return None


def tune(
    step: Step,
    found: Sequence[Target],
    options: Options,
    known: Mapping[str, Choice],
    on_try: Callable[[Try], None],
) -> Iterator[Tuned]:
    """What is best for each target, one after the other.

    known: choices by kernel, where a search that was cut short goes on. What wins for one kernel is tried early for
    those of the same family and loops.
    """
    winners: dict[tuple[str, str], list[Choice]] = {}
    end = time.monotonic() + options.seconds if options.seconds else math.inf
    for number, target in enumerate(found):
        left = end - time.monotonic()
        if left <= 0:
            return
        rest = sum(t.share for t in found[number:])
        share = target.share / rest if rest else 1 / (len(found) - number)
        own = min(end, time.monotonic() + max(_LEAST_S, left * share))
        alike = winners.setdefault((target.family, target.loops), [])
        result = _Search(step, target, options, own, on_try).run([known.get(target.hash, DEFAULT), *alike])
        if result.choice not in (DEFAULT, *alike):
            alike.insert(0, result.choice)
        yield result


class _Search:
    """The search for one kernel."""

    def __init__(self, step: Step, target: Target, options: Options, end: float, on_try: Callable[[Try], None]) -> None:
        self._step, self._target, self._options = step, target, options
        self._end, self._on_try = end, on_try
        self._random = random.Random(f"{options.seed} {target.hash}")
        self._context = new_context()
        self._start = Choice(schedules=tuple(defaults(target.nest, machine())))
        self._ratios: dict[Choice, float] = {}
        self._failed = 0
        self._note = ""
        self._whole = True

    def run(self, ideas: Sequence[Choice]) -> Tuned:
        """ideas: choices to try first; what does not fit the kernel fails like any other."""
        nest = self._target.nest
        lists = candidates(nest, machine())
        best = self._start.schedules
        self._ratios[self._start] = 1.0
        if blas.product(nest) is not None and blas.symbol():
            self._ratio(BLAS)
        for idea in ideas:
            if len(idea.schedules) == len(best):
                best = self._better(best, idea.schedules)
        for number in self._phases():
            for schedule in lists[number][1:]:
                best = self._better(best, _with(best, number, schedule))
            for start in self._starts(best, number, lists[number]):
                found = self._climb(start, number)
                best = min(best, found, key=lambda schedules: self._ratios[Choice(schedules=schedules)])
        return self._settled()

    def _phases(self) -> list[int]:
        """Numbers of the phases that do most of the work, the costliest first."""
        nest = self._target.nest
        costs = [trips(nest, p.loops) * len(nest.reach(nest.roots(p))) for p in nest.phases]
        worth = [i for i, cost in enumerate(costs) if cost >= _SMALL_PHASE * sum(costs)]
        return sorted(worth, key=lambda i: -costs[i])

    def _starts(
        self, best: tuple[Schedule, ...], number: int, listed: Sequence[Schedule]
    ) -> list[tuple[Schedule, ...]]:
        """Where to climb from: the best, and the next ones that are not far behind."""
        others = [_with(best, number, schedule) for schedule in listed]
        others.sort(key=lambda schedules: self._ratios.get(Choice(schedules=schedules), math.inf))
        near = _NEAR * self._ratios[Choice(schedules=best)]
        near_ones = [o for o in others if o != best and self._ratios.get(Choice(schedules=o), math.inf) < near]
        return [best, *near_ones[: _STARTS - 1]]

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
        step_bytes = self._step.program.plan.peak_bytes
        how = (self._context, step_bytes, rounds, screen)
        return self._isolated(choice, partial(measured, self._target, choice, *how))

    def _isolated(self, choice: Choice, measure: Callable[[], dict[str, Any]]) -> Ratio | None:
        """What `measure` finds in a child of its own; None, and a note, if that fails."""
        found: Any = isolated(measure, self._options.limits, _STAGE)
        if isinstance(found, Failure):
            found = {"wrong": f"{found.outcome}: {found.detail}"}
        if "wrong" in found:
            self._failed += 1
            self._note = f"{choice.text} {found['wrong']}"[:_NOTE]
            return None
        return Ratio(**found)

    def _settled(self) -> Tuned:
        """The fastest of the best few, timed for longer; the default unless that is faster by the margin."""
        target = self._target
        promising = [choice for choice, ratio in self._ratios.items() if ratio < MARGIN and choice != self._start]
        finals: list[tuple[Ratio, Choice]] = []
        for choice in sorted(promising, key=lambda choice: self._ratios[choice])[:_FINALISTS]:
            ratio = self._measured(choice, _FINAL_ROUNDS, screen=False)
            if ratio is not None:
                finals.append((ratio, choice))
        won, choice = min(finals, key=lambda pair: pair[0].ratio, default=(None, DEFAULT))
        if won is not None and won.ratio < MARGIN:
            won = self._isolated(choice, partial(dueled, self._step, target, choice, self._context))
        if won is None or not holds(won):
            won, choice = Ratio(1.0, 0.0), DEFAULT
        return Tuned(
            hash=target.hash,
            choice=choice,
            family=target.family,
            loops=target.loops,
            default_s=target.call_s,
            ratio=won.ratio,
            spread=won.spread,
            tried=len(self._ratios) - 1,
            failed=self._failed,
            note=self._note,
            finished=self._whole,
        )


def holds(found: Ratio) -> bool:
    """Whether a choice is worth leaving the default for."""
    return found.ratio < MARGIN and found.sure


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


def dueled(step: Step, target: Target, choice: Choice, context: Any) -> dict[str, Any]:
    """A choice compared with the default within the step; plain data."""
    made = compile_choice(kernel_text(target.kernel), "rival", context, choice)
    blas.symbol()  # it may call the library
    pairs = StepCalls(step.program, step.state, step.batches).duel(target.kernel.key, made, "k_rival", _DUEL_S)
    return to_json(summary(pairs))


def _with(schedules: tuple[Schedule, ...], number: int, schedule: Schedule) -> tuple[Schedule, ...]:
    return (*schedules[:number], schedule, *schedules[number + 1 :])


def whole_step(step: Step, tuned: Program) -> Timed | Failure:
    """The step of `tuned` against the default one: windows in turn, from the same state."""

    def work() -> dict[str, Any]:
        new, old = (Subject(CpuRunner(p), step.state, step.batches) for p in (tuned, step.program))
        pair_s = 2 * max(_STEP_WINDOW_S, old.window(3))
        rounds = min(_MOST_ROUNDS, max(_LEAST_ROUNDS, round(_STEP_S / pair_s)))
        found = compare_steps(new, old, Timing(rounds=rounds, least=rounds, window_s=_STEP_WINDOW_S))
        return {"wrong": found.detail} if isinstance(found, Failure) else asdict(found)

    found = isolated(work, replace(LIMITS, wall_s=600.0, cpu_s=600.0, memory_bytes=16 << 30), _STAGE)
    if isinstance(found, Failure):
        return found
    return Failure(Outcome.WRONG, found["wrong"]) if "wrong" in found else Timed(**found)

"""Subsets of a genome's genes, evaluated again and again: each round trains from a seed of its own and times anew.

What is evaluated is kept in a file, so that a second call and a call after Ctrl-C begin with it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from fitness.job import Context
from fitness.result import Outcome, Result
from gevo.campaign import Evaluator, TimeUp
from gevo.errors import RunDamaged
from gevo.explain.estimate import Estimate, estimate
from gevo.files import write_json
from gevo.genome import IDENTITY, Genome
from mlir_passes.space import Space, dangling

FORMAT = 1
SAVE_EVERY_S = 2.0  # the file is written whole; also when the lab is left, however that comes about
ROUNDS = 5  # seeds that a prepared workload has beside the search's
Genes = tuple[int, ...]


class OpenEvaluator(Evaluator, Protocol):
    """An evaluator that is entered before it is used, as `fitness.pool.Pool`."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


OpenPool = Callable[[Context], OpenEvaluator]
Watch = Callable[["Lab"], None]


@dataclass(frozen=True)
class Plan:
    """How often each variant is measured: one round a context, in turn."""

    contexts: tuple[Context, ...]
    rounds: int = ROUNDS

    def context(self, number: int) -> Context:
        return self.contexts[number % len(self.contexts)]


class Lab:
    """Results of subsets of the genes of `genome` by round. Genes are numbers: its edits in order, then its storage
    and its schedule as a whole, if they are not the base's. A subset in which an edit points at nothing stands for
    itself without that edit."""

    def __init__(
        self,
        genome: Genome,
        space: Space,
        plan: Plan,
        open_pool: OpenPool,
        path: Path,
        watch: Watch = lambda lab: None,
        deadline: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.genome, self.plan, self.watch = genome, plan, watch
        self._space, self._open, self._path = space, open_pool, path
        self._deadline, self._clock = deadline, clock
        self._results: dict[tuple[Genes, int], Result] = {}
        self._pools: dict[int, Evaluator] = {}
        self._stack = ExitStack()
        self.all: Genes = tuple(range(len(genome.edits) + len(genome.whole)))
        self.evaluated = 0
        self.left = 0  # evaluations that are still to come, as whoever asks for them thinks
        self._unsaved, self._next_save = False, 0.0
        self._load()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._save()
        finally:
            self._stack.__exit__(kind, error, at)

    def genome_of(self, genes: Iterable[int]) -> Genome:
        """The genome with only these genes."""
        chosen = set(genes)
        count = len(self.genome.edits)
        edits = tuple(e for i, e in enumerate(self.genome.edits) if i in chosen)
        left_out = [name for i, name in enumerate(self.genome.whole, count) if i not in chosen]
        return replace(self.genome, edits=edits, **{name: getattr(IDENTITY, name) for name in left_out})

    def closed(self, genes: Iterable[int]) -> Genes:
        """The genes in order without edits that need one which is not among them."""
        chosen = tuple(sorted(set(genes)))
        edits = [i for i in chosen if i < len(self.genome.edits)]
        bad = {edits[i] for i in dangling(self._space, [self.genome.edits[i] for i in edits])}
        return tuple(i for i in chosen if i not in bad)

    def known(self, genes: Iterable[int]) -> list[Result]:
        """The results of a subset, round by round, as far as they were measured."""
        key, found = self.closed(genes), list[Result]()
        for number in range(self.plan.rounds):
            if (key, number) not in self._results:
                break
            found.append(self._results[key, number])
        return found

    def results(self, genes: Iterable[int], rounds: int) -> list[Result]:
        """The results of a subset in the first rounds, measured if need be."""
        key = self.closed(genes)
        self.need([key], rounds)
        return self.known(key)[:rounds]

    def need(self, subsets: Iterable[Iterable[int]], rounds: int) -> None:
        """Measure what is missing of these subsets in the first rounds. A subset that fails is not measured again."""
        keys = list(dict.fromkeys(self.closed(genes) for genes in subsets))
        for number in range(rounds):
            missing = [k for k in keys if (k, number) not in self._results and not self._failed(k)]
            if missing:
                self._evaluate(missing, number)

    def missing(self, subsets: Iterable[Iterable[int]], rounds: int) -> int:
        """How many evaluations `need` would make."""
        keys = dict.fromkeys(self.closed(genes) for genes in subsets)
        return sum((k, n) not in self._results and not self._failed(k) for k in keys for n in range(rounds))

    def _failed(self, key: Genes) -> bool:
        first = self._results.get((key, 0))
        return first is not None and not first.ok

    def _evaluate(self, keys: Sequence[Genes], number: int) -> None:
        if ((), number) not in self._results:
            self._batch([()], number)
        todo = [key for key in keys if key]
        if todo:
            self._batch(todo, number)

    def _batch(self, todo: Sequence[Genes], number: int) -> None:
        pool = self._pool(number)
        known = {r.fingerprint: r for (_, n), r in self._results.items() if n == number and r.ok}

        def on_event(event: Any) -> None:
            if event.kind == "finished":
                self._keep(todo[event.index], number, event.result)
            if self._clock() >= self._deadline:
                raise TimeUp

        found = pool.evaluate([self.genome_of(key).to_json() for key in todo], known, on_event)
        for key, result in zip(todo, found, strict=True):
            self._keep(key, number, result)

    def _pool(self, number: int) -> Evaluator:
        which = number % len(self.plan.contexts)
        if which not in self._pools:
            if self._clock() >= self._deadline:
                raise TimeUp
            self._pools[which] = self._stack.enter_context(self._open(self.plan.context(number)))
        return self._pools[which]

    def _keep(self, key: Genes, number: int, result: Result) -> None:
        if (key, number) in self._results:
            return
        self.evaluated += not result.answered_by
        self.left = max(0, self.left - 1)
        # the base's ratio to itself is 1, and how far from it a measurement comes out is noise
        self._results[key, number] = result if key else replace(result, runtime_ratio=1.0)
        self._unsaved = True
        if time.monotonic() >= self._next_save:
            self._save()
        self.watch(self)

    def _save(self) -> None:
        if not self._unsaved:
            return
        samples = [
            {"genes": list(key), "round": number, "seeds": self._seeds(number), "result": result.to_json()}
            for (key, number), result in self._results.items()
        ]
        write_json(self._path, {"format": FORMAT, "key": self.genome.key, "samples": samples})
        self._unsaved, self._next_save = False, time.monotonic() + SAVE_EVERY_S

    def _load(self) -> None:
        if not self._path.is_file():
            return
        try:
            data = json.loads(self._path.read_text())
            fits = data["format"] == FORMAT and data["key"] == self.genome.key
            for sample in data["samples"] if fits else []:
                if sample["round"] < self.plan.rounds and sample["seeds"] == self._seeds(sample["round"]):
                    self._results[tuple(sample["genes"]), sample["round"]] = Result.from_json(sample["result"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunDamaged(f"cannot be read: {error}", self._path, "Delete it; it is measured again") from error

    def _seeds(self, number: int) -> list[int]:
        return list(self.plan.context(number).seeds)


@dataclass(frozen=True)
class Scale:
    """How results of one objective are compared: by difference of `value`, which is the logarithm of a figure except
    for the error. floor: differences up to it are none. noise: about twice the standard deviation of one measurement,
    0 where it is not known."""

    objective: str
    floor: float
    exact: bool
    noise: float = 0.0

    @property
    def relative(self) -> bool:
        return self.objective != "error"

    def value(self, result: Result) -> float:
        if self.objective == "runtime_s":
            return math.log(result.runtime_ratio)
        measured = result.objectives[self.objective].value
        return math.log(max(measured, 1e-300)) if self.relative else measured

    def text(self, difference: float) -> str:
        """A difference as a reader knows it: "-12.3 %" or "+0.0042"."""
        return f"{self.shown(difference):+.1f} %" if self.relative else f"{difference:+.4f}"

    def shown(self, difference: float) -> float:
        """A difference in percent, or for the error as it is; no more than a table can hold."""
        return 100 * math.expm1(min(difference, 50.0)) if self.relative else difference


# Smaller differences are of no interest: GEVO drops an edit that is worth less than 1 % of runtime (facts of its
# gevo-analyze); a plan's bytes and a model's joules have no noise, and a tenth of a percent of them is nothing.
FLOORS: Mapping[str, float] = {"runtime_s": 0.01, "peak_bytes": 0.001, "energy_j": 0.001, "error": 0.001}


def scales(base: Result, objectives: Sequence[str]) -> tuple[Scale, ...]:
    """How to compare each objective of a run. An error that is a loss has a floor in parts of the base's. The spread
    of the base's runtime is the noise of one evaluation (`fitness.pool.as_base`)."""
    found: list[Scale] = []
    for name in objectives:
        measure = base.objectives[name]
        loss = name == "error" and not measure.method.startswith("accuracy")
        floor = FLOORS[name] * (abs(measure.value) if loss else 1.0)
        noise = measure.spread / measure.value if name == "runtime_s" else 0.0
        found.append(Scale(name, floor, name == "peak_bytes" or measure.method.startswith("model:"), noise))
    return tuple(found)


def difference(one: Sequence[Result], two: Sequence[Result], scale: Scale, rounds: int = 0) -> Estimate | None:
    """How much `one` has more than `two`, round by round; None where one of them failed or was measured too little."""
    pairs = list(zip(one, two, strict=False))[: rounds or None]
    if not pairs or not all(a.ok and b.ok for a, b in pairs):
        return None
    values = [scale.value(a) - scale.value(b) for a, b in pairs]
    return Estimate(values[0], values[0], values[0]) if scale.exact else estimate(values)


def failed(results: Sequence[Result]) -> Outcome | None:
    """How a subset ended in its first round that is not valid; None if all are."""
    return next((r.outcome for r in results if not r.ok), None)

"""One search with its store and its evaluator: asks, has evaluated, records, tells, until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

from fitness.result import Outcome, Result
from gevo.beginning import load_beginning
from gevo.config import Budget, CampaignConfig
from gevo.errors import RunDamaged
from gevo.objectives import not_finite
from gevo.record import Record, record_id
from gevo.scheduling import FILE as SCHEDULES
from gevo.scheduling import Schedules
from gevo.search import Proposal, Search
from gevo.store import Run, RunWriter
from gevo.tally import Tally
from mlir_passes.space import Space


class Evaluator(Protocol):
    """What a campaign needs of `fitness.pool.Pool`: the measured base, and results in the order of the genomes."""

    @property
    def base(self) -> Result: ...

    def evaluate(
        self,
        genomes: Sequence[Mapping[str, Any]],
        known: Mapping[str, Result],
        on_event: Callable[[Any], None] | None = None,
    ) -> list[Result]: ...


class Ending(StrEnum):
    """Why a campaign stopped."""

    SPENT = "the budget is spent"
    EXHAUSTED = "no genome is left that was not evaluated"
    INTERRUPTED = "interrupted"


class TimeUp(KeyboardInterrupt):
    """Raised from an event to stop an evaluation in flight; the evaluator kills its workers as for Ctrl-C."""


class Campaign:
    """Stands where the run's folder says: after the last whole generation, with the records of the next one kept.

    A generation is asked for again after a crash. The generator's state makes it the same one; what the log
    has of it is answered from there. So the archive at the end does not depend on where the crash came.
    """

    def __init__(
        self,
        run: Run,
        writer: RunWriter,
        evaluator: Evaluator,
        watch: Callable[[Tally], None] = lambda tally: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer, self._evaluator, self._clock = writer, evaluator, clock
        self.watch = watch
        self.config = CampaignConfig.from_json(run.manifest["config"])
        search = self.config.search
        space = replace(Space.load(run.folder / "space.json"), storage=self.config.storage)
        self._search = Search(
            space,
            search,
            self.config.objectives,
            run.manifest["floors"],
            self.config.seed,
            self.config.storage,
            limits=run.limits,
            schedules=Schedules.load(run.folder / SCHEDULES) if self.config.schedule else None,
            beginning=load_beginning(run.folder),
        )
        records = run.records()
        self._energy_method = run.manifest["base"]["energy_j_method"]
        self._restore(run, records)
        self._records = {record.key: record for record in records}
        done = [r for r in records if r.generation < self._search.generation or r.is_base]
        self._known = _by_fingerprint(done)
        self._known.setdefault(evaluator.base.fingerprint, evaluator.base)
        self.tally = Tally(self.config.objectives, Budget(), search.population, run.limits, run.manifest["floors"])
        self.tally.load(records)
        self._earlier_s, self._start = self.tally.elapsed_s, clock()

    def run(self, budget: Budget) -> Ending:
        """Search until `budget`, which counts all sessions of the run, is spent."""
        self.tally.budget = budget
        try:
            while not budget.reached(Budget(self._elapsed_s, len(self._records), self._search.generation)):
                self.tally.generation = self._search.generation
                proposals = self._search.ask()
                if not proposals:
                    return Ending.EXHAUSTED
                if not self._evaluate(proposals, budget):
                    return Ending.SPENT
                self._finish(proposals)
        except TimeUp:
            return Ending.SPENT
        except KeyboardInterrupt:
            return Ending.INTERRUPTED
        return Ending.SPENT

    def _evaluate(self, proposals: Sequence[Proposal], budget: Budget) -> bool:
        """Whether every proposal has its record now; False if the budget ended first."""
        first = len([r for r in self._records.values() if r.generation < self._search.generation])
        todo = [(first + i, p) for i, p in enumerate(proposals, 1) if p.genome.key not in self._records]
        if todo and not todo[0][1].genome.size:
            number, identity = todo.pop(0)
            self._record(number, identity, self._evaluator.base)
        if budget.evaluations:
            allowed = max(0, budget.evaluations - len(self._records))
            todo, left = todo[:allowed], todo[allowed:]
        else:
            left = []

        def on_event(event: Any) -> None:
            if event.kind == "finished":
                number, proposal = todo[event.index]
                self._record(number, proposal, event.result)
            self._shown()
            if budget.seconds and self._elapsed_s >= budget.seconds:
                raise TimeUp

        if todo:
            results = self._evaluator.evaluate([p.genome.to_json() for _, p in todo], self._known, on_event)
            for (number, proposal), result in zip(todo, results, strict=True):
                self._record(number, proposal, result)
        return not left

    def _record(self, number: int, proposal: Proposal, result: Result) -> None:
        if proposal.genome.key in self._records:
            return
        record = Record(
            id=record_id(number),
            generation=self._search.generation,
            key=proposal.genome.key,
            text=proposal.genome.text,
            parents=tuple(self._records[key].id for key in proposal.parents),
            elapsed_s=round(self._elapsed_s, 3),
            result=checked(result, self.config.measured),
            operator=proposal.operator,
        )
        self._refuse_other_energy(record.result)
        self._writer.append(record)
        self._records[record.key] = record
        self.tally.add(record)
        self._shown()

    def _refuse_other_energy(self, result: Result) -> None:
        """A front may not mix ways to measure energy: joules of a model and of a meter are not comparable."""
        energy = result.objectives.get("energy_j")
        if energy is not None and energy.method != self._energy_method:
            raise RunDamaged(
                f"energy was measured as {self._energy_method} when this run began, and is now as {energy.method}",
                self._writer.folder,
                "Resume on a machine with the first method, or start a new run",
            )

    def _finish(self, proposals: Sequence[Proposal]) -> None:
        generation = self._search.generation
        records = [self._records[p.genome.key] for p in proposals]
        self._search.tell([(p.genome, r.result) for p, r in zip(proposals, records, strict=True)])
        self._writer.finish_generation(generation, records, {"search": self._search.state()})
        for fingerprint, result in _by_fingerprint(records).items():
            self._known.setdefault(fingerprint, result)

    def _restore(self, run: Run, records: Sequence[Record]) -> None:
        state = run.state()
        if state is None:
            return
        before = {r.key: r for r in records if r.generation < state["search"]["generation"]}
        wanted = Search.needed(state["search"])
        members = {key: (before[key].genome, before[key].result) for key in wanted if key in before}
        try:
            self._search.restore(state["search"], before, members)
        except ValueError as error:
            raise RunDamaged(
                f"state and records differ: {error}", run.folder, "Restore the folder from a copy"
            ) from error

    @property
    def _elapsed_s(self) -> float:
        return self._earlier_s + self._clock() - self._start

    def _shown(self) -> None:
        self.tally.elapsed_s = self._elapsed_s
        self.watch(self.tally)


def checked(result: Result, objectives: Sequence[str]) -> Result:
    """`result`, or an outcome of its own if it claims to be valid without a finite figure for each objective."""
    problem = not_finite(result, objectives) if result.ok else ""
    if not problem:
        return result
    return Result(Outcome.WRONG, "record", problem, result.fingerprint, stage_s=result.stage_s)


def _by_fingerprint(records: Iterable[Record]) -> dict[str, Result]:
    found: dict[str, Result] = {}
    for record in records:
        if record.result.fingerprint and not record.result.answered_by:
            found.setdefault(record.result.fingerprint, record.result)
    return found

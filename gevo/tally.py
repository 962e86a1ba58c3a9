"""What a campaign has found so far, in figures: fed by the campaign, shown by `progress` and `status`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gevo.config import Budget
from gevo.limits import violation
from gevo.objectives import figure
from gevo.record import Record


@dataclass
class Tally:
    """Counts over all records, and the pace since `session_start_s`. best: objective -> its best valid record within
    the limits, the base where nothing is better by more than the noise floor. over: valid records that are over one."""

    objectives: Sequence[str]
    budget: Budget
    population: int
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    floors: Mapping[str, float] = field(default_factory=dict[str, float])
    base: Record | None = None
    records: int = 0
    generation: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    best: dict[str, Record] = field(default_factory=dict[str, Record])
    answered: int = 0
    over: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    elapsed_s: float = 0.0
    session_start_s: float = 0.0
    session_records: int = 0

    def load(self, records: Iterable[Record]) -> None:
        """Count what earlier sessions recorded."""
        for record in records:
            self.add(record)
            self.elapsed_s = max(self.elapsed_s, record.elapsed_s)
        self.session_start_s, self.session_records = self.elapsed_s, 0

    def add(self, record: Record) -> None:
        result = record.result
        self.records += 1
        self.session_records += 1
        self.outcomes[str(result.outcome)] += 1
        self.answered += bool(result.answered_by)
        self.cache_hits += result.cache_hits
        self.cache_misses += result.cache_misses
        if self.base is None and record.is_base:
            self.base = record
        if not result.ok:
            return
        if violation(result, self.limits, self.floors):
            self.over += 1
            return
        for name in self.objectives:
            if name not in self.best or self._better(record, self.best[name], name):
                self.best[name] = record

    def _better(self, one: Record, two: Record, objective: str) -> bool:
        """Whether one figure is less than another, and than the base's by more than noise, where the base is best."""
        floor = self.floors.get(objective, 0.0) if two.is_base else 0.0
        return figure(one.result, objective) + floor < figure(two.result, objective)

    @property
    def rate(self) -> float:
        """Evaluations a second in this session; nan before the first."""
        seconds = self.elapsed_s - self.session_start_s
        return self.session_records / seconds if seconds > 0 and self.session_records else math.nan

    @property
    def left_s(self) -> float:
        """Seconds until the budget is spent at this pace; nan if there is no bound or no pace yet."""
        waits: list[float] = []
        if self.budget.seconds:
            waits.append(self.budget.seconds - self.elapsed_s)
        if self.budget.evaluations:
            waits.append((self.budget.evaluations - self.records) / self.rate)
        if self.budget.generations:
            waits.append((self.budget.generations * self.population - self.records) / self.rate)
        known = [max(0.0, wait) for wait in waits if not math.isnan(wait)]
        return min(known, default=math.nan)

    @property
    def hit_rate(self) -> float:
        """Share of kernels found in the object cache; nan if none was asked for."""
        asked = self.cache_hits + self.cache_misses
        return self.cache_hits / asked if asked else math.nan

"""The resolved configuration of a campaign: frozen, plain data, kept in its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fitness.job import OBJECTIVES


@dataclass(frozen=True)
class SearchConfig:
    """How the search varies and selects.

    population: genomes that are kept, and that are asked for in a generation; GEVO's 256 would take minutes
        a generation here, and 28 leaves room for a front of four objectives.
    mutation: share of children of two parents that are mutated as well; a child of one parent is always mutated.
    again: chance of one more mutation after each.
    elites: share of parents that are members of the archive, the others win a tournament in the population.
    stacked: share of the edits that were good elsewhere which a stacked child takes, the best first.
    stall: generations without a better archive after which half of a generation is fresh.
    max_edits: a mutation of a genome this long replaces an edit instead of adding one.
    retries: further variations of a child that was asked for before, until it is new.
    """

    population: int = 28
    mutation: float = 0.3
    again: float = 0.1
    elites: float = 0.3
    stacked: float = 0.8
    stall: int = 8
    max_edits: int = 64
    retries: int = 50


@dataclass(frozen=True)
class Budget:
    """When a campaign ends: at the first limit reached; 0 is no limit. All zero: until Ctrl-C."""

    seconds: float = 0.0
    evaluations: int = 0
    generations: int = 0

    def reached(self, spent: Budget) -> bool:
        """Whether a run that used `spent` is at one of the limits."""
        return bool(
            (self.seconds and spent.seconds >= self.seconds)
            or (self.evaluations and spent.evaluations >= self.evaluations)
            or (self.generations and spent.generations >= self.generations)
        )

    def after(self, spent: Budget) -> Budget:
        """This much more than `spent`, of what this budget limits."""
        return Budget(
            self.seconds and spent.seconds + self.seconds,
            self.evaluations and spent.evaluations + self.evaluations,
            self.generations and spent.generations + self.generations,
        )

    @property
    def text(self) -> str:
        parts = [f"{self.seconds:g} s"] if self.seconds else []
        parts += [f"{self.evaluations} evaluations"] if self.evaluations else []
        parts += [f"{self.generations} generations"] if self.generations else []
        return " or ".join(parts) or "no set budget"


@dataclass(frozen=True)
class CampaignConfig:
    """All that was asked for on the command line, with defaults filled in.

    workload: as `search` takes it. workers do not change the front, so `resume` may set another number.
    threads: that work at one step; times depend on it, so it is the run's for good.
    memory_budget: arena bytes a variant may have; 0 for no bound.
    deadline: time of a step a variant may have, as "1.1x" of the base or "3ms"; "" for no bound.
    max_error_increase: error a variant may have over the base's, absolute; None for no bound.
    storage: what variants may store values between kernels in; f32 is the base's.
    schedule: whether calls may run again, and in another order, to need less memory. page_dir: folder of the files that
    variants may page to; "" if they may not page.
    beginning: folder of the run whose front the search begins with; "" for none.
    """

    workload: str
    objectives: tuple[str, ...] = OBJECTIVES
    target: str = "cpu"
    memory_budget: int = 0
    workers: int = 1
    threads: int = 1
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    search: SearchConfig = field(default_factory=SearchConfig)
    storage: tuple[str, ...] = ("f32",)
    deadline: str = ""
    max_error_increase: float | None = None
    schedule: bool = False
    page_dir: str = ""
    beginning: str = ""

    @property
    def measured(self) -> tuple[str, ...]:
        """What every evaluation measures: the objectives, and what is limited."""
        limited = {"runtime_s": bool(self.deadline), "error": self.max_error_increase is not None}
        return tuple(name for name in OBJECTIVES if name in self.objectives or limited.get(name))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CampaignConfig:
        known = dict(data)
        known["objectives"] = tuple(known["objectives"])
        known["budget"] = Budget(**known["budget"])
        known["search"] = SearchConfig(
            **{k: v for k, v in known["search"].items() if k in SearchConfig.__dataclass_fields__}
        )
        known["storage"] = tuple(known.get("storage", ("f32",)))
        return CampaignConfig(**known)

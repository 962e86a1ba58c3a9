"""The search: asks for genomes and is told results. It knows the space and nothing of what evaluates."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.result import Result
from gevo import selection
from gevo.config import SearchConfig
from gevo.genome import IDENTITY, Genome
from gevo.limits import violation
from gevo.objectives import point
from gevo.variation import crossover, draw_edit, mutate
from mlir_passes.space import Space


@dataclass(frozen=True)
class Proposal:
    """A genome to evaluate, the keys of the genomes that it was made from, and how: "base", "seed:KIND" (a single
    edit), "storage:f16", "crossover", or MOVE:KIND as "add:delete"; "+" joins what was done in one go."""

    genome: Genome
    parents: tuple[str, ...] = ()
    operator: str = ""


@dataclass(frozen=True)
class Member:
    """A valid genome of the population, the point it is selected by, and how far it is over the limits."""

    genome: Genome
    point: tuple[float, ...]
    over: float = 0.0


class Search:
    """NSGA-II by whole generations, so that the front depends on the seed and not on who evaluates first.

    `ask` gives new genomes only, never one that was asked for before; `tell` takes all their results.
    Only valid results enter the population. `state` and `restore` carry it through JSON.
    """

    def __init__(
        self,
        space: Space,
        config: SearchConfig,
        objectives: Sequence[str],
        floors: Mapping[str, float],
        seed: int,
        storages: Sequence[str] = ("f32",),
        limits: Mapping[str, float] | None = None,
    ) -> None:
        self._space, self._config, self._storages = space, config, tuple(storages)
        self._objectives, self._floors, self._limits = tuple(objectives), dict(floors), dict(limits or {})
        self._rng = random.Random(seed)
        self._seen: set[str] = set()
        self.population: list[Member] = []
        self.generation = 0

    def ask(self) -> list[Proposal]:
        """The genomes of this generation: at first the base, the base in each storage, and single edits, then
        children; [] if none is new."""
        made = self._seeds() if self.generation == 0 else self._children()
        self._seen |= {p.genome.key for p in made}
        return made

    def tell(self, results: Iterable[tuple[Genome, Result]]) -> None:
        """Select the next population from this one and the valid results; one call a generation."""
        valid = [self._member(g, r) for g, r in results if r.ok]
        pool = self.population + valid
        self.generation += 1
        if not pool:
            return
        keep = selection.survivors([m.point for m in pool], self._config.population, [m.over for m in pool])
        self.population = [pool[i] for i in keep]

    def state(self) -> dict[str, Any]:
        """All that `restore` needs besides the records, between `tell` and `ask`."""
        version, internal, gauss = self._rng.getstate()
        return {
            "generation": self.generation,
            "population": [m.genome.key for m in self.population],
            "asked": len(self._seen),
            "rng": [version, list(internal), gauss],
        }

    def restore(
        self, state: Mapping[str, Any], asked: Iterable[str], members: Mapping[str, tuple[Genome, Result]]
    ) -> None:
        """Stand where `state` was taken: `asked` are all keys until then, `members` has the population by key."""
        self._seen = set(asked)
        missing = [key for key in state["population"] if key not in members]
        if missing or len(self._seen) != state["asked"]:
            raise ValueError(
                f"expected {state['asked']} records with the whole population, got {len(self._seen)}, missing {missing}"
            )
        known = (members[key] for key in state["population"])
        self.population = [self._member(g, r) for g, r in known]
        self.generation = state["generation"]
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))

    def _member(self, genome: Genome, result: Result) -> Member:
        over = violation(result, self._limits, self._floors)
        return Member(genome, point(result, self._objectives, self._floors), over)

    def _seeds(self) -> list[Proposal]:
        made = {IDENTITY.key: Proposal(IDENTITY, operator="base")}
        stored = [Genome(storage=s) for s in self._storages if s != IDENTITY.storage]
        made |= {g.key: Proposal(g, (IDENTITY.key,)) for g in stored}
        for _ in range(self._config.population * (1 + self._config.retries)):
            if len(made) == self._config.population:
                break
            edit = draw_edit(self._space, self._rng)
            genome = Genome((edit,)) if edit else IDENTITY
            made.setdefault(genome.key, Proposal(genome, (IDENTITY.key,)))
        return list(made.values())

    def _children(self) -> list[Proposal]:
        if not self.population:
            return []
        size = self._config.population
        points, over = [m.point for m in self.population], [m.over for m in self.population]
        winners = selection.tournament(points, size + size % 2, self._rng, over)
        parents = [self.population[i].genome for i in winners]
        made: dict[str, Proposal] = {}
        for one, two in zip(parents[::2], parents[1::2], strict=True):
            for child in self._pair(one, two):
                new = self._new(child, made)
                if new is not None and len(made) < size:
                    made[new.genome.key] = new
        return list(made.values())

    def _pair(self, one: Genome, two: Genome) -> list[Proposal]:
        if self._rng.random() >= self._config.crossover:
            return [Proposal(self._mutated(p), (p.key,)) for p in (one, two)]
        parents = tuple(dict.fromkeys((one.key, two.key)))
        children = crossover(one, two, self._space, self._rng)
        return [
            Proposal(self._mutated(c) if self._rng.random() < self._config.mutation else c, parents) for c in children
        ]

    def _new(self, child: Proposal, made: Mapping[str, Proposal]) -> Proposal | None:
        """`child`, mutated further until nothing like it was asked for; None if the space is used up nearby."""
        for _ in range(self._config.retries):
            if child.genome.key not in self._seen and child.genome.key not in made:
                return child
            child = Proposal(self._mutated(child.genome), child.parents)
        return None

    def _mutated(self, genome: Genome) -> Genome:
        return mutate(genome, self._space, self._rng, self._config.max_edits, self._storages)

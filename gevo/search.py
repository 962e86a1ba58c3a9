"""The search: asks for genomes and is told results. It knows the space and nothing of what evaluates."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fitness.result import Result
from gevo import selection
from gevo.archive import Archive, Member
from gevo.config import SearchConfig
from gevo.credit import Credit
from gevo.evidence import Evidence
from gevo.fitting import Fitting
from gevo.genome import IDENTITY, Genome, edit_text
from gevo.limits import violation
from gevo.menu import entry
from gevo.objectives import figures
from gevo.order import change, in_order
from gevo.scheduling import Schedules
from gevo.variation import KIND_WEIGHTS, MOVES, crossover, draw_edit, moved, pick, pruned, stacked
from mlir_passes.edits import edit_from_json
from mlir_passes.space import Space

# First weights of where a child comes from; `Credit` changes them by what paid.
SOURCES: dict[str, float] = {"crossover": 0.4, "mutation": 0.35, "stack": 0.25}
GAIN = 1e-9  # of hypervolume, which is a share of the box: less is rounding


@dataclass(frozen=True)
class Proposal:
    """A genome to evaluate, the keys of the genomes that it was made from, and how: "base", "seed:KIND" (a single
    edit), "seed:schedule", "seed:front" (of an earlier run), "storage:f16", "crossover", "stack" (edits that were good
    elsewhere, put together), or MOVE:KIND as "add:delete"; "+" joins what was done in one go."""

    genome: Genome
    parents: tuple[str, ...] = ()
    operator: str = ""


class Search:
    """A genetic search by whole generations, so that the front depends on the seed and not on who evaluates first.

    `ask` gives new genomes only, never one that was asked for before; `tell` takes all their results.
    Only valid results enter the population, those within the limits before others (`selection`). Beside the
    population stand an archive of the best trade-offs, whose members have children, too, rates of operators that
    follow what paid (`Credit`), and what records say of single edits (`Evidence`).

    When the archive has not grown for `stall` generations, the population is the archive, and half of the next
    generation are fresh single edits. Islands would keep apart what stacking and crossover live on, the good edits
    that others found, and divide a budget of some thousand evaluations further.

    `state` and `restore` carry it through JSON.
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
        schedules: Schedules | None = None,
        beginning: Sequence[Genome] = (),
    ) -> None:
        self._fit, self._config, self._storages = Fitting(space), config, tuple(storages)
        self._schedules, self._beginning = schedules, tuple(beginning)
        self._objectives, self._limits = tuple(objectives), dict(limits or {})
        self._floors, self._floor = dict(floors), in_order(floors, objectives)
        self._rng = random.Random(seed)
        self._seen: set[str] = set()
        self._asked: dict[str, Proposal] = {}
        self._base: Member | None = None
        self._archive = Archive(floors=self._floor)
        self._evidence = Evidence()
        self._credit = {"source": Credit(SOURCES), "move": Credit(MOVES), "kind": Credit(KIND_WEIGHTS)}
        self._best, self._grown = 0.0, 0
        self.population: list[Member] = []
        self.generation = 0

    def ask(self) -> list[Proposal]:
        """The genomes of this generation: at first the base, the base in each storage and with each schedule that was
        found, single edits, and those that the search was given; then children; [] if none is new."""
        made = self._seeds() if self.generation == 0 else self._children()
        self._seen |= {p.genome.key for p in made}
        self._asked = {p.genome.key: p for p in made}
        return made

    def tell(self, results: Iterable[tuple[Genome, Result]]) -> None:
        """Learn from all results, then select the next population from this one and the valid ones; one call a
        generation."""
        before = {m.genome.key: m for m in (*self.population, *self._archive.members)}
        told = [(genome, self._member(genome, result) if result.ok else None) for genome, result in results]
        self._base = next((m for g, m in told if m is not None and g == IDENTITY), self._base)
        if self._base is not None:
            before[IDENTITY.key] = self._base
        pool = list(self.population)
        programs = {m.fingerprint: at for at, m in enumerate(pool) if m.fingerprint}
        for genome, member in told:
            proposal = self._asked.get(genome.key, Proposal(genome))
            parents = [before[key] for key in proposal.parents if key in before]
            neutral = member is not None and any(_same(member, p) for p in parents)
            self._learn(genome, member, parents)
            self._pay(proposal, 1.0 if member is not None and self._archive.add(member) and not neutral else 0.0)
            if member is None:
                continue
            known = programs.get(member.fingerprint)
            if known is None or pool[known].point != member.point:
                programs[member.fingerprint or genome.key] = len(pool)
                pool.append(member)
            elif genome.size < pool[known].genome.size:
                pool[known] = member
        self.generation += 1
        if pool:
            points, over = [m.point for m in pool], [m.over for m in pool]
            kept = selection.survivors(points, self._config.population, over, self._floor)
            self.population = [pool[i] for i in kept]
        self._watch_growth()

    def state(self) -> dict[str, Any]:
        """All that `restore` needs besides the records, between `tell` and `ask`."""
        version, internal, gauss = self._rng.getstate()
        return {
            "generation": self.generation,
            "population": [m.genome.key for m in self.population],
            "archive": [m.genome.key for m in self._archive.members],
            "asked": len(self._seen),
            "rng": [version, list(internal), gauss],
            "credit": {name: credit.state() for name, credit in self._credit.items()},
            "evidence": self._evidence.state(),
            "growth": [self._best, self._grown],
        }

    @staticmethod
    def needed(state: Mapping[str, Any]) -> set[str]:
        """Keys of the genomes that `restore` wants with their results."""
        return {*state["population"], *state.get("archive", ()), IDENTITY.key}

    def restore(
        self, state: Mapping[str, Any], asked: Iterable[str], members: Mapping[str, tuple[Genome, Result]]
    ) -> None:
        """Stand where `state` was taken: `asked` are all keys until then, `members` has those `needed` by key."""
        self._seen = set(asked)
        missing = sorted(self.needed(state) - set(members))
        if missing or len(self._seen) != state["asked"]:
            raise ValueError(
                f"expected {state['asked']} records with the whole population, got {len(self._seen)}, missing {missing}"
            )
        known = {key: self._member(*members[key]) for key in self.needed(state) if members[key][1].ok}
        self.population = [known[key] for key in state["population"]]
        kept = [known[key] for key in state.get("archive", ())]  # runs of older versions have none
        self._archive = Archive(kept, self._floor)
        self._base = known.get(IDENTITY.key)
        self.generation = state["generation"]
        for name, credit in self._credit.items():
            credit.restore(state.get("credit", {}).get(name, {}))
        self._evidence.restore(state.get("evidence", {}))
        self._best, self._grown = state.get("growth", (0.0, self.generation))
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))

    # what results say

    def _member(self, genome: Genome, result: Result) -> Member:
        over = violation(result, self._limits, self._floors)
        return Member(genome, figures(result, self._objectives), over, result.fingerprint)

    def _learn(self, genome: Genome, member: Member | None, parents: Sequence[Member]) -> None:
        """What the one edit does that a child has more or less than a parent."""
        texts = {edit_text(e) for e in genome.edits}
        for parent in parents:
            others = {edit_text(e) for e in parent.genome.edits}
            rest = genome.storage, genome.schedule
            if len(texts ^ others) != 1 or rest != (parent.genome.storage, parent.genome.schedule):
                continue
            (edit,), common = texts ^ others, sorted(texts & others)
            if member is None:
                if edit in texts:
                    self._evidence.saw(edit, common, None, self.generation)
                else:
                    self._evidence.needs(edit, common)
            elif _same(member, parent):
                self._evidence.saw_neutral(edit)
            else:
                more, less = (member, parent) if edit in texts else (parent, member)
                self._evidence.saw(edit, common, self._change(less, more), self.generation)

    def _change(self, one: Member, two: Member) -> tuple[float, ...]:
        """What `two` has more than `one`, in shares of the box; nothing where it is noise."""
        found = change(one.point, two.point, self._floor)
        return tuple(more / (high - low) for more, (low, high) in zip(found, self._bounds, strict=True))

    @property
    def _bounds(self) -> list[tuple[float, float]]:
        """Ideal and reference of each objective, as in a manifest: from 0 to twice the base's."""
        point = self._base.point if self._base is not None else (1.0,) * len(self._objectives)
        return [(0.0, max(2.0 * value, 1e-3)) for value in point]

    def _pay(self, proposal: Proposal, pay: float) -> None:
        for part in filter(None, proposal.operator.split("+")):
            name, _, kind = part.partition(":")
            self._credit["source"].add(name if name in SOURCES else "mutation", pay)
            self._credit["move"].add(name, pay)
            self._credit["kind"].add(kind, pay)

    def _watch_growth(self) -> None:
        volume = self._archive.hypervolume(self._bounds)
        if volume > self._best + GAIN:
            self._best, self._grown = volume, self.generation
        if self._stalled and self._archive.members:
            points = [m.point for m in self._archive.members]
            kept = selection.survivors(points, self._config.population, (), self._floor)
            self.population = [self._archive.members[i] for i in kept]

    @property
    def _stalled(self) -> bool:
        still = self.generation - self._grown
        return still > 0 and still % self._config.stall == 0

    # what is asked for

    def _seeds(self) -> list[Proposal]:
        made = {IDENTITY.key: Proposal(IDENTITY, operator="base")}
        for storage in self._storages:
            if storage != IDENTITY.storage:
                genome = Genome(storage=storage)
                made[genome.key] = Proposal(genome, (IDENTITY.key,), f"storage:{storage}")
        for genome in self._schedules.genomes() if self._schedules else ():
            made.setdefault(genome.key, Proposal(genome, (IDENTITY.key,), "seed:schedule"))
        self._singles(made, self._config.population)
        for genome in self._beginning:
            made.setdefault(genome.key, Proposal(genome, (IDENTITY.key,), "seed:front"))
        return list(made.values())

    def _singles(self, made: dict[str, Proposal], most: int) -> None:
        """Add single edits to `made` until there are `most`, each kind in its turn, so that all give evidence."""
        kinds: list[str] = []
        for _ in range(self._config.population * (1 + self._config.retries)):
            if len(made) >= most:
                return
            if not kinds:
                kinds = self._rng.sample(list(KIND_WEIGHTS), len(KIND_WEIGHTS))
            edit = draw_edit(self._fit.space, self._rng, {kinds.pop(): 1.0})
            if edit is None:
                continue
            genome = Genome((edit,))
            if genome.key not in self._seen:
                made.setdefault(genome.key, Proposal(genome, (IDENTITY.key,), f"seed:{edit.kind}"))

    def _children(self) -> list[Proposal]:
        made: dict[str, Proposal] = {}
        if self._stalled:
            self._singles(made, self._config.population // 2)
        if not self.population:
            return list(made.values())
        points, over = [m.point for m in self.population], [m.over for m in self.population]
        turns = 2 * self._config.population
        winners = selection.tournament(points, 2 * turns, self._rng, over, self._floor)
        parents = [self.population[i] for i in winners]
        good = self._good()
        for _ in range(turns):
            if len(made) >= self._config.population:
                break
            one, two = self._or_elite(parents.pop()), self._or_elite(parents.pop())
            for child in self._made(one, two, good):
                new = self._new(child, made)
                if new is not None and len(made) < self._config.population:
                    made[new.genome.key] = new
        return list(made.values())

    def _or_elite(self, parent: Member) -> Member:
        if self._archive.members and self._rng.random() < self._config.elites:
            return self._rng.choice(self._archive.members)
        return parent

    def _made(self, one: Member, two: Member, good: Sequence[tuple[str, Any]]) -> list[Proposal]:
        source = pick(self._credit["source"].rates, self._rng)
        if source == "stack" and good:
            return [self._stack(good)]
        if source == "crossover" and one.genome != two.genome:
            parents = (one.genome.key, two.genome.key)
            pair = crossover(one.genome, two.genome, self._fit, self._rng, self._evidence)
            made = [Proposal(child, parents, "crossover") for child in pair]
            return [self._mutated(p) if self._rng.random() < self._config.mutation else p for p in made]
        return [self._mutated(Proposal(one.genome, (one.genome.key,)))]

    def _mutated(self, start: Proposal) -> Proposal:
        """`start` with a move made, sometimes several."""
        made = start
        for _ in range(4):
            rates = self._credit["move"].rates, self._credit["kind"].rates
            given = made.genome, self._fit, self._rng, self._config.max_edits, self._storages, *rates
            genome, how = moved(*given, schedules=self._schedules)
            if how:
                made = replace(made, genome=genome, operator="+".join(filter(None, (made.operator, how))))
            if self._rng.random() >= self._config.again:
                break
        return made

    def _good(self) -> list[tuple[str, Any]]:
        """The edits that gained something somewhere, with their effects."""
        return [(text, self._evidence.effects[text]) for text in self._evidence.good()]

    def _stack(self, good: Sequence[tuple[str, Any]]) -> Proposal:
        """The best edits for a random weighting of the objectives, on the base or on the best member for it."""
        weights = [self._rng.expovariate(1.0) for _ in self._objectives]
        total = sum(weights)
        weights = [w / total for w in weights]
        worth = {text: effect.worth(weights) for text, effect in good}
        ranked = sorted((text for text in worth if worth[text] > 0), key=lambda text: -worth[text])
        most = max(1, round(len(ranked) ** self._rng.random()))
        chosen = [text for text in ranked if self._rng.random() < self._config.stacked][:most]
        start = self._base if self._base is not None else self.population[0]
        if self._archive.members and self._rng.random() < 0.7:
            scale = [high for _, high in self._bounds]

            def cost(member: Member) -> float:
                return sum(w * p / s for w, p, s in zip(weights, member.point, scale, strict=True))

            start = min(self._archive.members, key=cost)
        edits = [entry(self._fit.space, edit_from_json(json.loads(text))) for text in chosen]
        genome = stacked(start.genome, edits, self._fit, self._config.max_edits)
        return Proposal(genome, (start.genome.key,), "stack")

    def _new(self, child: Proposal, made: Mapping[str, Proposal]) -> Proposal | None:
        """`child`, mutated further until nothing like it was asked for; None if the space is used up nearby."""
        for _ in range(self._config.retries):
            genome = pruned(self._shortened(child.genome), self._fit, self._evidence)
            if genome.key not in self._seen and genome.key not in made:
                return replace(child, genome=genome)
            child = self._mutated(child)
        return None

    def _shortened(self, genome: Genome) -> Genome:
        """`genome` with some edits left out where two parents gave it more than a genome may have."""
        count = len(genome.edits)
        if count <= self._config.max_edits:
            return genome
        places = sorted(self._rng.sample(range(count), self._config.max_edits))
        return replace(genome, edits=self._fit.kept([genome.edits[i] for i in places]))


def _same(one: Member, two: Member) -> bool:
    """Whether two members are one program."""
    return bool(one.fingerprint) and one.fingerprint == two.fingerprint

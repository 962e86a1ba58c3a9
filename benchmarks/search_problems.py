"""What search methods are compared on: a few variables that decode to edits, an evaluator, and a book of each run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.job import PoolEvent
from fitness.result import Result
from gevo.campaign import Evaluator, checked
from gevo.files import write_json
from gevo.genome import IDENTITY, Genome
from gevo.menu import Listed, Menu, menu
from gevo.objectives import bounds, floors, point
from gevo.replay import Recording, Replay
from gevo.variation import draw_edit, repaired
from mlir_passes.edits import KINDS, Edit, edit_from_json
from mlir_passes.space import Space

SLOTS = 6  # edits a genome of a drawn table has at most; random search draws up to as many everywhere
ASKED = 20  # times the budget that a run may ask for what it knows before it ends as exhausted

Point = tuple[float, ...]
Genes = Sequence[int]


@dataclass(frozen=True)
class Problem:
    """A search problem of `variables` integers, each in range(2 * options): below `options` it stands for an edit,
    else for none, so that a variable drawn uniformly is an edit half the time.

    choices: the edits that each variable chooses from. menu: the same edits, for a search that makes genomes itself.
    plain: the whole space of edits, where there is more than the menu. Points rank; they are figures on the grid of
    the floors. box: ideal and reference of each objective, fixed beforehand, for hypervolume.
    """

    name: str
    choices: tuple[tuple[Listed, ...], ...]
    menu: Menu
    plain: Space | None
    objectives: tuple[str, ...]
    floors: Mapping[str, float]
    box: Mapping[str, tuple[float, float]]
    evaluator: Evaluator

    @property
    def variables(self) -> int:
        return len(self.choices)

    @property
    def options(self) -> int:
        return len(self.choices[0])

    def decode(self, genes: Genes) -> Genome:
        """The genome of the chosen edits in the order of the variables; what cannot apply after the others is left."""
        chosen = [edits[gene] for edits, gene in zip(self.choices, genes, strict=True) if gene < len(edits)]
        return repaired(Genome(tuple(dict.fromkeys(chosen))), self.menu)

    def point(self, result: Result) -> Point | None:
        """What a valid result ranks by, None for another one."""
        return point(result, self.objectives, self.floors) if result.ok else None

    def scaled(self, found: Point) -> Point:
        """A point with the ideal at 0 and the reference at 1 in each objective."""
        return tuple((v - lo) / (hi - lo) for v, (lo, hi) in zip(found, self._bounds, strict=True))

    @property
    def _bounds(self) -> list[tuple[float, float]]:
        return [self.box[name] for name in self.objectives]


class Spent(Exception):
    """Raised when the budget of a run is used up."""


class Book:
    """One run of a method: evaluates for it and notes the point of each evaluation, None where it was not valid.

    A genome that was asked for before costs nothing, nor does the base; what is new costs one evaluation, whether a
    fingerprint answers it or not.
    """

    def __init__(self, problem: Problem, budget: int) -> None:
        self._problem, self._budget = problem, budget
        self._known: dict[str, Result] = {IDENTITY.key: problem.evaluator.base}
        self._asked = 0
        self.points: list[Point | None] = []

    def results(self, genomes: Sequence[Genome]) -> list[Result]:
        """The genomes' results in order; raises Spent where the budget does not suffice for all of them."""
        self._asked += len(genomes)
        new = list({g.key: g for g in genomes if g.key not in self._known}.values())
        new = new[: self._budget - len(self.points)]
        found = self._problem.evaluator.evaluate([g.to_json() for g in new], {})
        for genome, result in zip(new, found, strict=True):
            self._known[genome.key] = checked(result, self._problem.objectives)
            self.points.append(self._problem.point(self._known[genome.key]))
        if self._asked > ASKED * self._budget or not all(g.key in self._known for g in genomes):
            raise Spent
        return [self._known[g.key] for g in genomes]

    def values(self, rows: Sequence[Genes]) -> list[Point | None]:
        """The points of rows of genes, None where one is not valid; raises Spent."""
        results = self.results([self._problem.decode(row) for row in rows])
        return [self._problem.point(result) for result in results]


class Cached:
    """An evaluator that keeps each result in a file, by genome and by fingerprint, for all runs and methods."""

    def __init__(self, evaluator: Evaluator, path: Path) -> None:
        self._evaluator, self._path = evaluator, path
        self._by_key: dict[str, Result] = {}
        self._by_fingerprint: dict[str, Result] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            self._note(row["key"], Result.from_json(row["result"]))

    @property
    def base(self) -> Result:
        return self._evaluator.base

    def evaluate(
        self,
        genomes: Sequence[Mapping[str, Any]],
        known: Mapping[str, Result],
        on_event: Callable[[PoolEvent], None] | None = None,
    ) -> list[Result]:
        keys = [Genome.from_json(genome).key for genome in genomes]
        new = {key: genome for key, genome in zip(keys, genomes, strict=True) if key not in self._by_key}
        found = self._evaluator.evaluate(list(new.values()), {**self._by_fingerprint, **known}, on_event) if new else []
        with self._path.open("a") as file:
            for key, result in zip(new, found, strict=True):
                self._note(key, result)
                file.write(json.dumps({"key": key, "result": result.to_json()}) + "\n")
        return [self._by_key[key] for key in keys]

    def _note(self, key: str, result: Result) -> None:
        self._by_key[key] = result
        if result.fingerprint and not result.answered_by:
            self._by_fingerprint.setdefault(result.fingerprint, result)


def replayed(recording: Recording, objectives: Sequence[str]) -> Problem:
    """The problem of a recorded space: a variable for each edit, which is in the genome or not."""
    space, evaluator = recording.menu, Replay(recording)
    choices = tuple((entry,) for entry in space.entries)
    return _problem(f"{recording.workload}-replay", choices, space, None, objectives, evaluator)


@dataclass(frozen=True)
class Head:
    """What kept results of a workload refer to: its base as first measured, and the table of edits."""

    base: Result
    edits: tuple[Edit, ...]

    def save(self, path: Path) -> None:
        write_json(path, {"base": self.base.to_json(), "edits": [edit.to_json() for edit in self.edits]})

    @staticmethod
    def load(path: Path) -> Head:
        data = json.loads(path.read_text())
        return Head(Result.from_json(data["base"]), tuple(edit_from_json(edit) for edit in data["edits"]))


def table(space: Space, count: int, seed: int) -> tuple[Edit, ...]:
    """`count` different edits drawn from the whole space, every kind as often."""
    rng, edits, kinds = random.Random(seed), dict[Edit, None](), dict.fromkeys(KINDS, 1.0)
    for _ in range(20 * count):
        edit = draw_edit(space, rng, kinds)
        if edit is not None and len(edits) < count:
            edits.setdefault(edit)
    return tuple(edits)


def drawn(name: str, space: Space, edits: Sequence[Edit], objectives: Sequence[str], evaluator: Evaluator) -> Problem:
    """The problem of a workload: `SLOTS` variables, each one of `edits` or none."""
    found = menu(space, edits)
    return _problem(name, (found.entries,) * SLOTS, found, space, objectives, evaluator)


def true_points(problem: Problem, recording: Recording) -> list[Point]:
    """The points of all valid subsets of a recording."""
    return [found for found in map(problem.point, recording.results) if found is not None]


def _problem(
    name: str,
    choices: tuple[tuple[Listed, ...], ...],
    space: Menu,
    plain: Space | None,
    objectives: Sequence[str],
    evaluator: Evaluator,
) -> Problem:
    base, names = evaluator.base, tuple(objectives)
    return Problem(name, choices, space, plain, names, floors(base, names), bounds(base, names), evaluator)

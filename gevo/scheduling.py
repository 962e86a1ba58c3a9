"""What a search knows of schedules: the base as a scheduling problem, schedules a solver found, how to vary them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

from gevo.files import write_text
from gevo.genome import Genome
from mlir_passes.schedule.decode import decode, reordered, to_holds
from mlir_passes.schedule.evolve import evolve, varied
from mlir_passes.schedule.genes import Before, Gene, Hold, from_plain, to_plain
from mlir_passes.schedule.moves import BOTH, REMAT
from mlir_passes.schedule.order import ordered
from mlir_passes.schedule.problem import Op, Problem, Tensor
from mlir_passes.schedule.steps import keep_all, replay

FILE = "schedules.json"
SOLVERS = ("highspy", "ortools")
EVALUATIONS = 60  # of a schedule that is solved again on the way: some 10 ms for a step of 100 kernels
TRIES = 8  # of an order that the data permits
# Shares of what is done to a schedule: take a solver's, or a region of it, solve it again for another budget, change
# how one tensor is held, keep one again, move an op
WAYS: dict[str, float] = {"solved": 0.15, "region": 0.2, "again": 0.2, "hold": 0.25, "keep": 0.1, "order": 0.1}

Plain = tuple[Any, ...]  # a gene as it stands in a genome


@dataclass(frozen=True)
class Schedules:
    """problem: of the base. found: the genes of schedules for ever smaller budgets. paging: whether variants may page.

    Genes name calls and values of the base by sites, so they mean the same in a variant as far as that has them.
    """

    problem: Problem
    found: tuple[tuple[Gene, ...], ...] = ()
    paging: bool = False

    def genomes(self) -> list[Genome]:
        """The schedules that were found, on the base."""
        return [Genome(schedule=as_genes(genes)) for genes in self.found]

    def varied(self, genome: Genome, rng: random.Random) -> tuple[Genome, str] | None:
        """The genome with another schedule, and how it was made; None if no draw found one."""
        genes = from_plain(genome.schedule)
        for _ in range(TRIES):
            (way,) = rng.choices(list(WAYS), weights=list(WAYS.values()))
            made = _WAYS[way](self, genes, rng)
            if made is not None and made != genes:
                return Genome(genome.edits, as_genes(made), genome.storage), way
        return None

    @property
    def allow(self) -> frozenset[str]:
        return BOTH if self.paging else frozenset({REMAT})

    def save(self, path: Path) -> None:
        data = {
            "problem": asdict(self.problem),
            "found": [to_plain(genes) for genes in self.found],
            "paging": self.paging,
        }
        write_text(path, json.dumps(data))

    @staticmethod
    def load(path: Path) -> Schedules:
        data = json.loads(path.read_text())
        found = tuple(from_plain(genes) for genes in data["found"])
        return Schedules(_problem(data["problem"]), found, data["paging"])


def as_genes(genes: Sequence[Gene]) -> tuple[Plain, ...]:
    """Genes as a genome has them."""
    return tuple(tuple(row) for row in to_plain(genes))


def found_text(schedules: Schedules) -> str:
    """How little memory the schedules that were found need, in a sentence."""
    most = _peak(schedules.problem, ())
    least = min((_peak(schedules.problem, genes) for genes in schedules.found), default=most)
    if least < most:
        return f"It starts from {len(schedules.found)} schedules of the base, down to {least / most:.0%} of its memory"
    if any(find_spec(name) is None for name in SOLVERS):
        return "It starts from no schedule of the base. For a solver: pip install 'gevo[schedule]'"
    way = "paging" if schedules.paging else "computing again; --page-dir permits paging"
    return f"No schedule of the base needs less memory by {way}"


def gene_text(gene: Gene) -> str:
    """A gene in words."""
    if isinstance(gene, Before):
        return f"{gene.op} runs before {gene.other}"
    held = ", ".join(first if first == last else f"{first} to {last}" for first, last in gene.stages)
    back = "paged to the file" if gene.paged else "computed again"
    text = f"{gene.value} is {back}; in memory from {held}" if held else f"{gene.value} is {back} for each use"
    if gene.other:
        text += f"; {'computed again' if gene.paged else 'paged'} at {', '.join(gene.other)}"
    left = ", ".join(f"{op} when that runs for {stage}" for stage, op in gene.leaves)
    return f"{text}; given back after {left}" if left else text


def _problem(data: Mapping[str, Any]) -> Problem:
    def plain(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}

    return Problem(tuple(Op(**plain(op)) for op in data["ops"]), tuple(Tensor(**plain(t)) for t in data["tensors"]))


def _holds(genes: Sequence[Gene]) -> tuple[Hold, ...]:
    return tuple(gene for gene in genes if isinstance(gene, Hold))


def _moves(genes: Sequence[Gene]) -> tuple[Before, ...]:
    return tuple(gene for gene in genes if isinstance(gene, Before))


def _solved(this: Schedules, genes: Sequence[Gene], rng: random.Random) -> tuple[Gene, ...] | None:
    return rng.choice(this.found) if this.found else None


def _region(this: Schedules, genes: Sequence[Gene], rng: random.Random) -> tuple[Gene, ...] | None:
    """Of the tensors that are made in some stages, as in a schedule that was found; the others as they were. So is the
    order, unless there was none."""
    if not this.found:
        return None
    first, last = sorted(rng.choices(range(-1, len(this.problem.ops)), k=2))
    inside = {t.name for t in this.problem.tensors if first <= t.maker <= last}
    found = rng.choice(this.found)
    kept = [gene for gene in _holds(genes) if gene.value not in inside]
    taken = [gene for gene in _holds(found) if gene.value in inside]
    return (*(_moves(genes) or _moves(found)), *kept, *taken)


def _again(this: Schedules, genes: Sequence[Gene], rng: random.Random) -> tuple[Gene, ...]:
    """Solved again from here, for a budget between what it needs now and the least that was found; in an order for that
    budget, unless it has one."""
    least = min((_peak(this.problem, found) for found in this.found), default=0)
    budget = rng.randint(*sorted((least, _peak(this.problem, genes))))
    moves = _moves(genes) or ordered(this.problem, budget)[1]
    problem = reordered(this.problem, moves)[0]
    return (*moves, *evolve(problem, budget, inf, [_holds(genes)], EVALUATIONS, rng, this.allow, "time"))


def _hold(this: Schedules, genes: Sequence[Gene], rng: random.Random) -> tuple[Gene, ...]:
    moves = _moves(genes)
    return (*moves, *varied(reordered(this.problem, moves)[0], _holds(genes), rng, this.allow))


def _keep(this: Schedules, genes: Sequence[Gene], rng: random.Random) -> tuple[Gene, ...] | None:
    at = rng.randrange(len(genes)) if genes else 0
    return (*genes[:at], *genes[at + 1 :]) if genes else None


def _order(this: Schedules, genes: Sequence[Gene], rng: random.Random) -> tuple[Gene, ...] | None:
    """One more op moved before another, if the data permits it and holds that are there still mean something."""
    names = [op.name for op in this.problem.ops]
    moves = (*_moves(genes), Before(*rng.sample(names, 2))) if len(names) > 1 else ()
    problem, dropped = reordered(this.problem, moves)
    if not moves or dropped or to_holds(problem, _holds(genes))[1]:
        return None
    return (*moves, *_holds(genes))


_WAYS: dict[str, Callable[[Schedules, Sequence[Gene], random.Random], tuple[Gene, ...] | None]] = {
    "solved": _solved,
    "region": _region,
    "again": _again,
    "hold": _hold,
    "keep": _keep,
    "order": _order,
}


def _peak(problem: Problem, genes: Sequence[Gene]) -> int:
    """Bytes at most, before buffers have places."""
    if not genes:
        return replay(problem, keep_all(problem)).peak_bytes
    decoded = decode(problem, genes)
    return replay(decoded.problem, decoded.steps).peak_bytes

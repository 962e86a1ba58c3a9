"""Mutation and crossover of genomes: pure functions of their arguments and the generator passed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gevo.evidence import Evidence
from gevo.fitting import Fitting
from gevo.genome import Genome, edit_text
from gevo.menu import Menu
from gevo.scheduling import Schedules
from mlir_passes.edits import KINDS, Edit, edit_class
from mlir_passes.space import Space, dangling

# First weights of what a mutation does; `Credit` changes them by what paid. An addition about half the time, so that
# genomes neither grow without end nor shrink back to the base: crossover adds and takes away in equal parts.
MOVES: dict[str, float] = {
    "add": 0.45,
    "remove": 0.15,
    "redraw": 0.1,
    "perturb": 0.2,
    "reorder": 0.02,
    "storage": 0.08,
    "schedule": 0.12,
}
KIND_WEIGHTS: dict[str, float] = dict.fromkeys(KINDS, 1.0)
DRAWS = 20  # draws of a kind may find nothing; this many are tried before the mutation gives up
ON_OWN = 0.3  # of additions to a genome that are drawn where one of its edits made something new, as a copy

T = TypeVar("T")
Made = tuple[Genome, str]  # a genome and the kind of edit, or the storage, that a move was about


def draw_edit(space: Space, rng: random.Random, kinds: Mapping[str, float] = KIND_WEIGHTS) -> Edit | None:
    """A random edit that applies to `space`; None if no draw found one."""
    for _ in range(DRAWS):
        kind = pick(kinds, rng)
        edit = space.draw(kind, rng) if isinstance(space, Menu) else edit_class(kind).draw(space, rng)
        if edit is not None and edit.applies(space):
            return edit
    return None


def random_genome(space: Space, rng: random.Random, max_edits: int) -> Genome:
    """One to `max_edits` edits, each drawn on what the ones before it leave."""
    edits: list[Edit] = []
    for _ in range(rng.randint(1, max_edits)):
        edit = draw_edit(space, rng)
        if edit is not None:
            edits.append(edit)
            space = edit.extend(space)
    return Genome(tuple(edits))


def mutate(
    genome: Genome,
    space: Space | Fitting,
    rng: random.Random,
    max_edits: int,
    storages: Sequence[str] = ("f32",),
    moves: Mapping[str, float] = MOVES,
    kinds: Mapping[str, float] = KIND_WEIGHTS,
) -> Genome:
    """`genome` with one move made; `genome` itself if none could be."""
    return moved(genome, _fitting(space), rng, max_edits, storages, moves, kinds)[0]


def moved(
    genome: Genome,
    fit: Fitting,
    rng: random.Random,
    max_edits: int,
    storages: Sequence[str] = ("f32",),
    moves: Mapping[str, float] = MOVES,
    kinds: Mapping[str, float] = KIND_WEIGHTS,
    schedules: Schedules | None = None,
) -> tuple[Genome, str]:
    """`genome` with an edit added, removed, drawn again, perturbed or put elsewhere, or stored otherwise, as one of
    `storages`, or scheduled otherwise; and the operator as "add:delete". `genome` itself and "" if no draw found
    anything."""
    may = {"storage": len(storages) > 1, "schedule": schedules is not None, "add": len(genome.edits) < max_edits}
    possible = {name: weight for name, weight in moves.items() if may.get(name, bool(genome.edits))}
    for _ in range(3 if possible else 0):
        move = pick(possible, rng)
        if move == "storage":
            stored = rng.choice([s for s in storages if s != genome.storage])
            return replace(genome, storage=stored), f"storage:{stored}"
        made = schedules.varied(genome, rng) if move == "schedule" and schedules else None
        made = _MOVES[move](genome, fit, rng, kinds) if move in _MOVES else made
        if made is not None and made[0] != genome:
            return made[0], f"{move}:{made[1]}"
    return genome, ""


def crossover(
    one: Genome, two: Genome, space: Space | Fitting, rng: random.Random, evidence: Evidence | None = None
) -> tuple[Genome, Genome]:
    """GEVO's crossover: both children keep the shared genes; the shuffled rest is cut and split between them.

    Pairs that `evidence` links, and an edit and the copy that it uses, go to one child together where one parent has
    both. Each child has the storage of a parent.
    """
    fit = _fitting(space)
    shared, units = _units(one.edits, two.edits, fit, evidence)
    rng.shuffle(units)
    cut = rng.randint(0, len(units))
    left = {edit_text(e) for unit in units[:cut] for e in unit} | shared
    right = {edit_text(e) for unit in units[cut:] for e in unit} | shared
    genes, rest = _split(one.schedule, two.schedule, rng)
    first, second = one.storage, two.storage
    if first != second and rng.random() < 0.5:
        first, second = second, first
    return (
        Genome(fit.kept([e for e in (*one.edits, *two.edits) if edit_text(e) in left]), genes, first),
        Genome(fit.kept([e for e in (*two.edits, *one.edits) if edit_text(e) in right]), rest, second),
    )


def stacked(start: Genome, edits: Sequence[Edit], fit: Fitting, most: int) -> Genome:
    """`start` with those of `edits`, in turn, that touch nothing that is touched already; `most` edits in all."""
    found = list(start.edits)
    touched = {site for edit in found for site in fit.touched(edit)}
    for edit in edits:
        if len(found) < most and not fit.touched(edit) & touched:
            found.append(edit)
            touched |= fit.touched(edit)
    return replace(start, edits=fit.kept(found))


def pruned(genome: Genome, fit: Fitting, evidence: Evidence) -> Genome:
    """`genome` without the edits that are known to be neutral, if no other edit needs them."""
    left = [e for e in genome.edits if not evidence.neutral(edit_text(e))]
    if len(left) == len(genome.edits):
        return genome
    kept = fit.kept(left)
    return replace(genome, edits=kept) if len(kept) == len(left) else genome


def repaired(genome: Genome, space: Space) -> Genome:
    """`genome` without the edits that point at nothing."""
    bad = set(dangling(space, genome.edits))
    if not bad:
        return genome
    return replace(genome, edits=tuple(e for i, e in enumerate(genome.edits) if i not in bad))


def pick(weights: Mapping[str, float], rng: random.Random) -> str:
    """A name, by its weight."""
    return rng.choices(list(weights), weights=list(weights.values()))[0]


def _add(genome: Genome, fit: Fitting, rng: random.Random, kinds: Mapping[str, float]) -> Made | None:
    there = set(map(edit_text, genome.edits))
    for _ in range(DRAWS if isinstance(fit.space, Menu) else 3):
        space = fit.space
        if genome.edits and rng.random() < ON_OWN:
            at = rng.randrange(len(genome.edits))
            space = fit.space_after([*fit.needed(genome.edits[at], genome.edits[:at]), genome.edits[at]])
        new = draw_edit(space, rng, kinds)
        if new is None or edit_text(new) in there:
            continue
        edits = fit.kept((*genome.edits, new))
        if len(edits) > len(genome.edits):
            return replace(genome, edits=edits), new.kind
    return None


def _remove(genome: Genome, fit: Fitting, rng: random.Random, kinds: Mapping[str, float]) -> Made:
    at = rng.randrange(len(genome.edits))
    return _without(genome, at, fit), genome.edits[at].kind


def _redraw(genome: Genome, fit: Fitting, rng: random.Random, kinds: Mapping[str, float]) -> Made | None:
    return _add(_without(genome, rng.randrange(len(genome.edits)), fit), fit, rng, kinds)


def _perturb(genome: Genome, fit: Fitting, rng: random.Random, kinds: Mapping[str, float]) -> Made | None:
    at = rng.randrange(len(genome.edits))
    old = genome.edits[at]
    new = old.perturb(fit.space_after(fit.needed(old, genome.edits[:at])), rng)
    if new is None:
        return None
    return replace(genome, edits=fit.kept((*genome.edits[:at], new, *genome.edits[at + 1 :]))), new.kind


def _reorder(genome: Genome, fit: Fitting, rng: random.Random, kinds: Mapping[str, float]) -> Made | None:
    """Two edits that meet exchange places; the order of others means nothing."""
    pairs = fit.meeting(genome.edits)
    if not pairs:
        return None
    one, two = rng.choice(pairs)
    edits = list(genome.edits)
    edits[one], edits[two] = edits[two], edits[one]
    return replace(genome, edits=fit.kept(edits)), genome.edits[one].kind


_MOVES: dict[str, Callable[[Genome, Fitting, random.Random, Mapping[str, float]], Made | None]] = {
    "add": _add,
    "remove": _remove,
    "redraw": _redraw,
    "perturb": _perturb,
    "reorder": _reorder,
}


def _without(genome: Genome, at: int, fit: Fitting) -> Genome:
    return replace(genome, edits=fit.kept((*genome.edits[:at], *genome.edits[at + 1 :])))


def _units(
    one: Sequence[Edit], two: Sequence[Edit], fit: Fitting, evidence: Evidence | None
) -> tuple[set[str], list[list[Edit]]]:
    """The texts of the edits that both have, and the others in the units that stay together."""
    shared = set(map(edit_text, one)) & set(map(edit_text, two))
    units: list[list[Edit]] = []
    for edits in (one, two):
        unit_of: dict[str, list[Edit]] = {}  # by text, and by the copies that are made
        for edit in edits:
            if edit_text(edit) in shared:
                continue
            unit = [edit]
            uses = {name for name in fit.names(edit) if "'" in name}
            for name in uses | (evidence.partners(edit_text(edit)) if evidence else set()):
                other = unit_of.get(name, unit)
                if other is not unit:
                    other.extend(unit)
                    unit_of |= {key: other for key, value in unit_of.items() if value is unit}
                    unit = other
            unit_of |= dict.fromkeys({edit_text(edit)} | uses, unit)
        units += {id(unit): unit for unit in unit_of.values()}.values()
    return shared, units


def _fitting(space: Space | Fitting) -> Fitting:
    return space if isinstance(space, Fitting) else Fitting(space)


def _split(one: Sequence[T], two: Sequence[T], rng: random.Random) -> tuple[tuple[T, ...], tuple[T, ...]]:
    first, second = list(dict.fromkeys(one)), list(dict.fromkeys(two))
    only_first = [g for g in first if g not in second]
    only_second = [g for g in second if g not in first]
    shared = [g for g in first if g in second]
    difference = only_first + only_second
    rng.shuffle(difference)
    cut = rng.randint(0, len(difference))
    left, right = set(shared) | set(difference[:cut]), set(shared) | set(difference[cut:])
    return (
        tuple(g for g in first + only_second if g in left),
        tuple(g for g in second + only_first if g in right),
    )

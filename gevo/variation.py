"""Mutation and crossover of genomes: pure functions of their arguments and the generator passed in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gevo.genome import Genome
from gevo.menu import Menu
from mlir_passes.edits import Edit, edit_class
from mlir_passes.space import Space, dangling

MOVES: dict[str, float] = {"add": 0.5, "remove": 0.25, "redraw": 0.25}  # an addition half the time, so that
# genomes neither grow without end nor shrink back to the base: crossover adds and takes away in equal parts
KIND_WEIGHTS: dict[str, float] = {"delete": 1.0, "copy": 1.0, "rewire": 1.0}
STORAGE_RATE = 0.1  # of mutations, where the workload permits more than f32: one gene among up to 64 edits
DRAWS = 20  # draws of a kind may find nothing; this many are tried before the mutation gives up

T = TypeVar("T")


def draw_edit(space: Space, rng: random.Random, kinds: Mapping[str, float] = KIND_WEIGHTS) -> Edit | None:
    """A random edit that applies to `space`; None if no draw found one."""
    for _ in range(DRAWS):
        kind = _pick(kinds, rng)
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
    genome: Genome, space: Space, rng: random.Random, max_edits: int, storages: Sequence[str] = ("f32",)
) -> Genome:
    """`genome` with an edit added, removed or drawn again, or stored otherwise, as one of `storages`; `genome` itself
    if no draw found an edit."""
    edits = genome.edits
    if len(storages) > 1 and rng.random() < STORAGE_RATE:
        return replace(genome, storage=rng.choice([s for s in storages if s != genome.storage]))
    move = _pick(MOVES, rng) if edits else "add"
    if move == "add" and len(edits) >= max_edits:
        move = "redraw"
    if move == "add":
        new = draw_edit(space.after(edits), rng)
        return genome if new is None else replace(genome, edits=(*edits, new))
    at = rng.randrange(len(edits))
    if move == "remove":
        return repaired(replace(genome, edits=(*edits[:at], *edits[at + 1 :])), space)
    new = draw_edit(space.after(edits[:at]), rng)
    if new is None:
        return genome
    return repaired(replace(genome, edits=(*edits[:at], new, *edits[at + 1 :])), space)


def crossover(one: Genome, two: Genome, space: Space, rng: random.Random) -> tuple[Genome, Genome]:
    """GEVO's crossover: both children keep the shared genes; the shuffled rest is cut and split between them.

    A child's order is that of one parent followed by what only the other has, so an edit that uses a copy
    stays behind it. An edit whose copy went to the other child is dropped. Each child has the storage of a parent.
    """
    left, right = _split(one.edits, two.edits, rng)
    genes, rest = _split(one.schedule, two.schedule, rng)
    first, second = one.storage, two.storage
    if first != second and rng.random() < 0.5:
        first, second = second, first
    return repaired(Genome(left, genes, first), space), repaired(Genome(right, rest, second), space)


def repaired(genome: Genome, space: Space) -> Genome:
    """`genome` without the edits that point at nothing."""
    bad = set(dangling(space, genome.edits))
    if not bad:
        return genome
    return replace(genome, edits=tuple(e for i, e in enumerate(genome.edits) if i not in bad))


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


def _pick(weights: Mapping[str, float], rng: random.Random) -> str:
    return rng.choices(list(weights), weights=list(weights.values()))[0]

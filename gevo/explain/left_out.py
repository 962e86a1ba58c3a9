"""What the genes do that a variant can do without: nothing, nothing together, or harm.

That all of them can go says nothing of each: one may undo what another does, and be worth nothing without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from fitness.result import Result
from gevo.explain.estimate import T_995, estimate
from gevo.explain.lab import Genes, Lab, Scale
from gevo.explain.minimise import LEAST_ROUNDS, SURE

Look = Callable[[Genes, int], Sequence[Result]]


class Verdict(StrEnum):
    """What a subset is beside another."""

    SAME = "same"
    WORSE = "worse"  # in some objective, or it fails
    BETTER = "better"  # in some objective, and worse in none
    UNKNOWN = "unknown"  # not measured to the end


@dataclass(frozen=True)
class LeftOut:
    """The genes that are not kept. neutral: adding one to what is kept, or taking it from the whole variant, changes
    nothing beyond noise. together: groups that change nothing as a whole, though their genes do one by one.
    harmful: the variant is better without. unknown: not measured one by one."""

    neutral: Genes = ()
    together: tuple[Genes, ...] = ()
    harmful: Genes = ()
    unknown: Genes = ()

    def to_json(self) -> dict[str, list[int] | list[list[int]]]:
        def numbers(genes: Genes) -> list[int]:
            return [gene + 1 for gene in genes]

        return {
            "neutral": numbers(self.neutral),
            "together": [numbers(group) for group in self.together],
            "harmful": numbers(self.harmful),
            "unknown": numbers(self.unknown),
        }


def measured(lab: Lab, kept: Genes, scales: Sequence[Scale]) -> LeftOut:
    """What the genes beside `kept` do, evaluated as far as need be."""
    return _found(lab, kept, scales, lab.results)


def known(lab: Lab, kept: Genes, scales: Sequence[Scale]) -> LeftOut:
    """The same from what was evaluated so far."""
    return _found(lab, kept, scales, lambda genes, rounds: lab.known(genes)[:rounds])


def _found(lab: Lab, kept: Genes, scales: Sequence[Scale], look: Look) -> LeftOut:
    gone = [gene for gene in lab.all if gene not in kept]

    def beside(one: Iterable[int], two: Iterable[int]) -> Verdict:
        return _verdict(lab, lab.closed(one), lab.closed(two), scales, look)

    added = {gene: beside((*kept, gene), kept) for gene in gone}
    without = {gene: beside((g for g in lab.all if g != gene), lab.all) for gene in gone}
    both = {gene: {added[gene], without[gene]} for gene in gone}
    unknown = [gene for gene in gone if Verdict.UNKNOWN in both[gene]]
    neutral = [gene for gene in gone if both[gene] == {Verdict.SAME}]
    harmful = [g for g in gone if without[g] is Verdict.BETTER and added[g] in (Verdict.SAME, Verdict.WORSE)]
    joint = [gene for gene in gone if gene not in (*unknown, *neutral, *harmful)]
    undone = [
        {one, two}
        for one, two in combinations(joint, 2)
        if {added[one], added[two]} != {Verdict.SAME} and beside((*kept, one, two), kept) is Verdict.SAME
    ]
    return LeftOut(tuple(neutral), _groups(joint, undone), tuple(harmful), tuple(unknown))


def _groups(genes: Sequence[int], pairs: Sequence[set[int]]) -> tuple[Genes, ...]:
    """The genes in groups that `pairs` connect; those that no pair has are one more."""
    groups: list[set[int]] = []
    for pair in pairs:
        touching = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair] + [pair.union(*touching)]
    rest = set(genes).difference(*groups)
    return tuple(sorted(tuple(sorted(group)) for group in [*groups, rest] if group))


def _verdict(lab: Lab, one: Genes, two: Genes, scales: Sequence[Scale], look: Look) -> Verdict:
    """What `one` is beside `two`; as few rounds as will do. A difference that is not plain at once needs all rounds
    and an interval of 99 %, since many are looked at."""
    if one == two:
        return Verdict.SAME
    signs: list[int] = []
    for rounds in range(1, lab.plan.rounds + 1):
        mine, theirs = look(one, rounds), look(two, rounds)
        if any(not result.ok for result in mine):
            return Verdict.WORSE
        if min(len(mine), len(theirs)) < rounds or any(not result.ok for result in theirs):
            return Verdict.UNKNOWN
        if mine[0].fingerprint == theirs[0].fingerprint:
            return Verdict.SAME
        apart = [[s.value(a) - s.value(b) for a, b in zip(mine, theirs, strict=True)] for s in scales]
        if rounds == 1 and any(_plain(values[0], scale) for values, scale in zip(apart, scales, strict=True)):
            return Verdict.WORSE
        signs = [_sign(values, scale) for values, scale in zip(apart, scales, strict=True)]
        within = [_within(values, scale) for values, scale in zip(apart, scales, strict=True)]
        if rounds >= LEAST_ROUNDS and all(within):
            return Verdict.SAME
    if any(sign > 0 for sign in signs):
        return Verdict.WORSE
    return Verdict.BETTER if any(sign < 0 for sign in signs) else Verdict.SAME


def _plain(more: float, scale: Scale) -> bool:
    """Whether a single look shows that it is worse."""
    if scale.exact:
        return more > scale.floor
    return scale.objective == "runtime_s" and more > scale.floor + SURE * scale.noise


def _sign(values: Sequence[float], scale: Scale) -> int:
    if scale.exact:
        return (values[0] > scale.floor) - (values[0] < -scale.floor)
    found = estimate(values, T_995)
    return 0 if found is None else found.beyond(scale.floor)


def _within(values: Sequence[float], scale: Scale) -> bool:
    """Whether the difference is surely none that counts."""
    if scale.exact:
        return abs(values[0]) <= scale.floor
    found = estimate(values)
    return found is not None and -scale.floor <= found.low and found.high <= scale.floor

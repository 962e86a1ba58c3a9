"""What each gene of a variant does alone and in the variant, and how pairs of them work together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from fitness.result import Result
from gevo.explain.estimate import T_995, Estimate, estimate
from gevo.explain.lab import Genes, Lab, Scale, difference, failed

MOST = 12  # genes whose pairs are all measured; of more, the pairs of this many that matter most
ADDITIVE, SYNERGY, ANTAGONISM, TOGETHER = "additive", "synergy", "antagonism", "only together"
MIXED = "mixed"  # one thing in one objective, another in another
Estimates = Mapping[str, Estimate]  # by objective; what failed or was not measured is not there


@dataclass(frozen=True)
class Effect:
    """One gene. alone: the base with it against the base. within: the variant against the variant without it. Below
    zero is better. alone_ends, without_ends: how that program failed, "" if it did not."""

    gene: int
    alone: Estimates
    within: Estimates
    alone_ends: str = ""
    without_ends: str = ""


@dataclass(frozen=True)
class Pair:
    """Two genes. together: the base with both against the base; surplus: that less what each does alone.

    names: by objective, how they work together. ends: how the base with both failed, "" if it did not.
    """

    genes: tuple[int, int]
    together: Estimates
    surplus: Estimates
    names: Mapping[str, str]
    ends: str = ""

    @property
    def name(self) -> str:
        """One name for all objectives: the one that is not "additive", "mixed" where they differ."""
        found = set(self.names.values()) - {ADDITIVE}
        if len(found) > 1:
            return MIXED
        return found.pop() if found else ADDITIVE if self.names else ""


@dataclass(frozen=True)
class Sums:
    """joint: the variant against the base; alone, within: the sums of the genes' effects. None where one of those
    is not known."""

    joint: Estimate | None
    alone: Estimate | None
    within: Estimate | None


def single_subsets(genes: Genes) -> list[Genes]:
    """What `effects` needs measured."""
    return [(), genes, *((g,) for g in genes), *(tuple(o for o in genes if o != g) for g in genes)]


def pair_subsets(genes: Sequence[int]) -> list[Genes]:
    """What `pairs` needs beside the single genes."""
    return [tuple(sorted(p)) for p in combinations(genes, 2)]


def effects(lab: Lab, genes: Genes, scales: Sequence[Scale]) -> list[Effect]:
    """The effect of each gene, as far as it was measured."""
    base, whole = lab.known(()), lab.known(genes)
    found: list[Effect] = []
    for gene in genes:
        alone, without = lab.known((gene,)), lab.known(g for g in genes if g != gene)
        found.append(
            Effect(
                gene,
                _differences(alone, base, scales),
                _differences(whole, without, scales),
                _ending(lab, (gene,), alone),
                _ending(lab, tuple(g for g in genes if g != gene), without),
            )
        )
    return found


def strongest(found: Sequence[Effect], scales: Sequence[Scale], most: int = MOST) -> Genes:
    """The genes, or of more than `most` those whose effect within the variant is most floors in some objective."""
    if len(found) <= most:
        return tuple(e.gene for e in found)
    ranked = sorted(found, key=lambda e: -_strength(e, scales))
    return tuple(sorted(e.gene for e in ranked[:most]))


def pairs(lab: Lab, genes: Sequence[int], scales: Sequence[Scale]) -> list[Pair]:
    """How each two genes work together, for those pairs that were measured."""
    found: list[Pair] = []
    base = lab.known(())
    for one, two in combinations(genes, 2):
        both = lab.known((one, two))
        if not both or lab.closed((one, two)) != tuple(sorted((one, two))):
            continue
        singles = [lab.known((g,)) if lab.closed((g,)) else [] for g in (one, two)]
        names: dict[str, str] = {}
        surplus: dict[str, Estimate] = {}
        together = _differences(both, base, scales)
        for scale in scales:
            more = _surplus(both, singles, base, scale)
            if more is not None:
                surplus[scale.objective] = more
            name = _name(together.get(scale.objective), more, singles, base, scale)
            if name:
                names[scale.objective] = name
        found.append(Pair((one, two), together, surplus, names, _ending(lab, (one, two), both)))
    return found


def sums(lab: Lab, genes: Genes, scale: Scale) -> Sums:
    """The joint effect of the genes beside the sums of their single ones, in one objective."""
    base, whole = lab.known(()), lab.known(genes)
    alone = [lab.known((g,)) if lab.closed((g,)) else [] for g in genes]
    without = [lab.known(o for o in genes if o != g) for g in genes]
    return Sums(
        difference(whole, base, scale),
        _sum([(one, base) for one in alone], scale),
        _sum([(whole, one) for one in without], scale),
    )


def _differences(one: Sequence[Result], two: Sequence[Result], scales: Iterable[Scale]) -> dict[str, Estimate]:
    found = {s.objective: difference(one, two, s) for s in scales}
    return {name: value for name, value in found.items() if value is not None}


def _ending(lab: Lab, genes: Genes, results: Sequence[Result]) -> str:
    if lab.closed(genes) != tuple(sorted(genes)):
        return "needs another edit"
    outcome = failed(results)
    return "" if outcome is None else str(outcome)


def _strength(effect: Effect, scales: Sequence[Scale]) -> float:
    if effect.without_ends:
        return math.inf
    within = effect.within
    return max((abs(within[s.objective].mean) / s.floor for s in scales if s.objective in within), default=0.0)


def _surplus(
    both: Sequence[Result], singles: Sequence[Sequence[Result]], base: Sequence[Result], scale: Scale
) -> Estimate | None:
    """What two genes do together less what each does alone, by rounds; a 99 % interval, since there are many pairs."""
    rows = list(zip(both, *singles, base, strict=False))
    if not rows or not all(r.ok for row in rows for r in row):
        return None
    values = [scale.value(b) - scale.value(x) - scale.value(y) + scale.value(z) for b, x, y, z in rows]
    return Estimate(values[0], values[0], values[0]) if scale.exact else estimate(values, T_995)


def _name(
    together: Estimate | None,
    surplus: Estimate | None,
    singles: Sequence[Sequence[Result]],
    base: Sequence[Result],
    scale: Scale,
) -> str:
    """How two genes work together in one objective; "" where it is not known."""
    if together is None:
        return ""
    joint = together.beyond(scale.floor)
    if any(not single or not single[0].ok for single in singles):
        return TOGETHER if joint else ""
    alone = [difference(single, base, scale) for single in singles]
    if surplus is None or any(a is None for a in alone):
        return ""
    more = surplus.beyond(2 * scale.floor)  # of four figures, not of two
    if not more:
        return ADDITIVE
    if joint and not any(a.beyond(scale.floor) for a in alone if a is not None):
        return TOGETHER
    return SYNERGY if more < 0 else ANTAGONISM


def _sum(terms: Sequence[tuple[Sequence[Result], Sequence[Result]]], scale: Scale) -> Estimate | None:
    """The sum of differences, by rounds."""
    if not terms or not all(one and two and all(r.ok for r in (*one, *two)) for one, two in terms):
        return None
    rounds = min(len(side) for term in terms for side in term)
    values = [sum(scale.value(one[n]) - scale.value(two[n]) for one, two in terms) for n in range(rounds)]
    return Estimate(values[0], values[0], values[0]) if scale.exact else estimate(values)


def to_json(found: Sequence[Effect], paired: Sequence[Pair]) -> dict[str, Any]:
    """Plain data; intervals are differences of logarithms, for the error of the error itself."""
    return {
        "effects": [
            {
                "edit": e.gene + 1,
                "alone": {n: v.to_json() for n, v in e.alone.items()},
                "within": {n: v.to_json() for n, v in e.within.items()},
                "alone_ends": e.alone_ends,
                "without_ends": e.without_ends,
            }
            for e in found
        ],
        "pairs": [
            {
                "edits": [g + 1 for g in p.genes],
                "name": p.name,
                "names": dict(p.names),
                "together": {n: v.to_json() for n, v in p.together.items()},
                "surplus": {n: v.to_json() for n, v in p.surplus.items()},
                "ends": p.ends,
            }
            for p in paired
        ],
    }

"""The fewest genes of a variant that are as good as all of them.

Delta debugging (ddmin; Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): halves
first, then ever smaller parts, at last single genes; then pairs, for two that only cancel each other out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

from fitness.result import Result
from gevo.explain.lab import Genes, Lab, Scale, difference

PAIRS_UP_TO = 12  # genes; above that pairs would take more evaluations than all the rest
SURE = 2.0  # noises of one timing, so 2.8 standard deviations of a difference, that need no second look
DRIFT = 3.0  # floors that several edits, each of less than one, may cost together
LEAST_ROUNDS = 3  # before a spread over rounds says something


class Minimiser:
    """`kept` is what is left so far, also when `run` is interrupted; it ends when no gene and no pair can go."""

    def __init__(self, lab: Lab, scales: Sequence[Scale], told: Callable[[str], None] = lambda text: None) -> None:
        self._lab, self._scales, self._told = lab, scales, told
        self.kept: Genes = lab.closed(lab.all)
        self._reference = self.kept
        self.done = False

    def run(self) -> Genes:
        """The kept genes."""
        self._told("does the variant differ from the base")
        if not self._goes_to(()):
            self._parts()
            if len(self.kept) <= PAIRS_UP_TO:
                self._pairs()
            self._settle()
        self.done = True
        return self.kept

    def _parts(self) -> None:
        count = min(2, len(self.kept))
        while len(self.kept) > 1:
            chunks = _chunks(self.kept, count)
            self._told(f"{len(self.kept)} edits left, parts of {math.ceil(len(self.kept) / count)}")
            alone = next((c for c in chunks if count > 1 and self._goes_to(c)), None)
            if alone is not None:
                count = 2
                continue
            fewer = count > 2 and any(self._goes_to(_without(self.kept, c)) for c in chunks)
            if fewer:
                count = max(2, min(count - 1, len(self.kept)))
                continue
            if count >= len(self.kept):
                return
            count = min(len(self.kept), 2 * count)

    def _pairs(self) -> None:
        self._told(f"{len(self.kept)} edits left, pairs")
        pair = next((p for p in combinations(self.kept, 2) if self._goes_to(_without(self.kept, p))), None)
        while pair is not None:
            self._parts()
            pair = next((p for p in combinations(self.kept, 2) if self._goes_to(_without(self.kept, p))), None)

    def _settle(self) -> None:
        """Take away, one by one, genes without which nothing is worse once all rounds are measured: before, there were
        several looks at few rounds, and one in some dozens of them takes noise for an effect. The whole variant is
        compared with too, lest many small losses add up; not what was best so far, which was so by luck in part."""
        rounds, whole = self._lab.plan.rounds, self._lab.closed(self._lab.all)
        while True:
            self._told(f"{len(self.kept)} edits left, the variant without each")
            without = [_without(self.kept, (gene,)) for gene in self.kept]
            self._lab.left = self._lab.missing([*without, self.kept, whole], rounds) + 3 * rounds
            self._lab.need([*without, self.kept, whole], rounds)
            weak = (g for g in without if not self._is_worse(g, self.kept) and not self._is_worse(g, whole, DRIFT))
            fewer = next(weak, None)
            if fewer is None:
                return
            self.kept = self._lab.closed(fewer)

    def _is_worse(self, genes: Genes, than: Genes, floors: float = 1.0) -> bool:
        """By all rounds, and by more than `floors` times the least difference of interest."""
        mine, theirs = self._lab.known(genes), self._lab.known(than)
        if not all(r.ok for r in (*mine, *theirs)):
            return True
        found = [(difference(mine, theirs, scale), scale) for scale in self._scales]
        return any(more is None or more.beyond(floors * scale.floor) > 0 for more, scale in found)

    def _goes_to(self, genes: Genes) -> bool:
        """Keep only `genes` if that is no worse; whether it was done."""
        genes = self._lab.closed(genes)
        if genes == self.kept:
            return False
        self._lab.left = max(self._lab.left, self._guess())
        if not self._no_worse(genes):
            return False
        rounds = min(len(self._lab.known(genes)), len(self._lab.known(self._reference)))
        if any(v < 0 for v in self._verdicts(genes, rounds)):
            self._reference = genes  # a gene that did harm is gone: what it cost may not be lost again
        self.kept = genes
        return True

    def _guess(self) -> int:
        """Evaluations still to come, about: a look at each gene and pair that is left, and the rounds of what stays."""
        count = len(self.kept)
        pairs = math.comb(count, 2) if count <= PAIRS_UP_TO else 0
        return 2 * count + pairs + self._lab.plan.rounds

    def _no_worse(self, genes: Genes) -> bool:
        """Whether `genes` are no worse than the reference in any objective beyond noise; as few rounds as will do."""
        for rounds in range(1, self._lab.plan.rounds + 1):
            mine, theirs = self._lab.results(genes, rounds), self._lab.results(self._reference, rounds)
            if not all(r.ok for r in (*mine, *theirs)):
                return False
            if mine[0].fingerprint == theirs[0].fingerprint:
                return True
            if rounds == 1 and any(_surely_worse(mine[0], theirs[0], s) for s in self._scales):
                return False
            verdicts = list(self._verdicts(genes, rounds))
            if rounds >= LEAST_ROUNDS and any(v > 0 for v in verdicts):
                return False
            if rounds >= LEAST_ROUNDS and all(self._no_doubt(genes, rounds, s) for s in self._scales):
                return True
        return True

    def _verdicts(self, genes: Genes, rounds: int) -> Iterator[int]:
        mine, theirs = self._lab.known(genes), self._lab.known(self._reference)
        for scale in self._scales:
            found = difference(mine, theirs, scale, rounds)
            yield 0 if found is None else found.beyond(scale.floor)

    def _no_doubt(self, genes: Genes, rounds: int, scale: Scale) -> bool:
        found = difference(self._lab.known(genes), self._lab.known(self._reference), scale, rounds)
        return found is not None and found.high <= scale.floor


def _surely_worse(one: Result, two: Result, scale: Scale) -> bool:
    """Whether a single look says enough: what is exact differs, or a time by far more than the noise of two."""
    more = scale.value(one) - scale.value(two)
    if scale.exact:
        return more > scale.floor
    if scale.objective != "runtime_s":
        return False
    return more > scale.floor + SURE * scale.noise


def _chunks(genes: Genes, count: int) -> list[Genes]:
    """`genes` in `count` parts of about one size."""
    size = len(genes)
    ends = [round(i * size / count) for i in range(count + 1)]
    return [genes[a:b] for a, b in pairwise(ends) if a < b]


def _without(genes: Genes, gone: Sequence[int]) -> Genes:
    return tuple(g for g in genes if g not in gone)

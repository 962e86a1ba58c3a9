"""Explains one record: minimises its edits, measures what each does, and says it in words."""

from __future__ import annotations

from collections.abc import Callable

from gevo.campaign import TimeUp
from gevo.errors import BaseFails
from gevo.explain.effects import effects, pair_subsets, pairs, single_subsets, strongest, sums
from gevo.explain.lab import Genes, Lab, Scale, difference
from gevo.explain.left_out import known, measured
from gevo.explain.minimise import Minimiser
from gevo.explain.report import Explanation
from gevo.explain.seen import Seen
from gevo.record import Record

Told = Callable[[str], None]


class Measuring:
    """The measured part, one stage after the other; where time ends early, what is there stays."""

    def __init__(self, lab: Lab, scales: tuple[Scale, ...], told: Told) -> None:
        self._lab, self.scales, self._told = lab, scales, told
        self.minimiser = Minimiser(lab, scales, told)
        self.stopped = False

    def run(self) -> Genes:
        """The kept genes; raises BaseFails where the variant itself does not evaluate any more."""
        try:
            self._whole()
            self.minimiser.run()
            self._singles()
            self._pairs()
            self._left_out()
        except TimeUp:
            self.stopped = True
        return self.minimiser.kept

    @property
    def left(self) -> int:
        """Evaluations still missing for what is kept now."""
        kept = self.minimiser.kept
        wanted = [*single_subsets(kept), *pair_subsets(strongest(effects(self._lab, kept, self.scales), self.scales))]
        unknown = known(self._lab, kept, self.scales).unknown
        wanted += [(*kept, gene) for gene in unknown]
        wanted += [tuple(g for g in self._lab.all if g != gene) for gene in unknown]
        return self._lab.missing(wanted, self._lab.plan.rounds)

    def _whole(self) -> None:
        self._told("the variant and the base")
        genes = self._lab.closed(self._lab.all)
        self._lab.left = 2 * len(genes) + 2 * self._lab.plan.rounds
        first = self._lab.results(genes, 1)[0]
        if not first.ok:
            raise BaseFails(
                f"the record does not evaluate any more: {first.outcome} in {first.stage}: {first.detail}",
                "explain",
                "See `gevo show RUN ID --rerun`",
            )

    def _singles(self) -> None:
        kept = self.minimiser.kept
        self._told(f"each of {len(kept)} edits alone, and the variant without it")
        self._lab.left = self.left
        self._lab.need(single_subsets(kept), self._lab.plan.rounds)

    def _pairs(self) -> None:
        chosen = strongest(effects(self._lab, self.minimiser.kept, self.scales), self.scales)
        if len(chosen) > 1:
            self._told(f"pairs of {len(chosen)} edits")
            self._lab.left = self.left
            self._lab.need(pair_subsets(chosen), self._lab.plan.rounds)

    def _left_out(self) -> None:
        kept = self.minimiser.kept
        if len(kept) < len(self._lab.all):
            self._told(f"what each of the other {len(self._lab.all) - len(kept)} does")
            self._lab.left = self.left
            measured(self._lab, kept, self.scales)


def explanation(
    run: str, record: Record, workload: str, lab: Lab, measuring: Measuring, shown: Seen, method: str
) -> Explanation:
    """What was measured so far, with the words and pictures of `shown`."""
    kept, scales = measuring.minimiser.kept, measuring.scales
    everything = lab.closed(lab.all)
    found = effects(lab, kept, scales)
    base, whole, minimal = lab.known(()), lab.known(everything), lab.known(kept)
    return Explanation(
        run=run,
        record=record.id,
        workload=workload,
        scales=scales,
        said=shown.said(lab.genome, kept),
        kept=kept,
        left_out=known(lab, kept, scales),
        minimal=measuring.minimiser.done,
        effects=tuple(found),
        pairs=tuple(pairs(lab, strongest(found, scales), scales)),
        sums={s.objective: sums(lab, kept, s) for s in scales},
        whole={s.objective: difference(whole, base, s) for s in scales},
        minimised={s.objective: difference(minimal, base, s) for s in scales},
        diff=tuple(shown.diff),
        base_kernels=shown.base_kernels,
        kernels=shown.kernels,
        evaluated=lab.evaluated,
        left=measuring.left if measuring.minimiser.done else lab.left,
        method=method,
    )

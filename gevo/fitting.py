"""Which edits of a genome apply, without the space after each of them.

A space of a large step has thousands of ops, and a genome tens of edits: to build every space on the way would take
longer than all else that a search does. But for far ones (`Edit.far`), an edit depends only on earlier edits of what it
names; all others leave what it asks of the space as it is. So it is checked on the base space with those alone, and
answers are kept. A far one that does not apply after all ends its variant as `rejected`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from gevo.genome import edit_text
from mlir_passes.edits import Edit
from mlir_passes.space import Space

KEPT = 20_000  # answers; a search forgets all of them when it has more
SPACES = 256  # of edited spaces, 0.3 MB each for resnet18
_NAME = re.compile(r'"([a-z]+\d+(?:\'\d+)?)[#"]')


class Fitting:
    """What applies to `space`; answers are those of `dangling` in `mlir_passes.space`."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._names: dict[str, frozenset[str]] = {}
        self._touched: dict[str, frozenset[str]] = {}
        self._fits: dict[tuple[str, ...], bool] = {}
        self._spaces: dict[tuple[str, ...], Space] = {}

    def kept(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
        """The edits without repeats and without those that point at nothing, in the order of `ordered`."""
        asked = self.ordered(list({edit_text(e): e for e in edits}.values()))
        found: list[Edit] = []
        touched: set[str] = set()
        for edit in asked:
            before = self.needed(edit, found) if edit.far or self.names(edit) & touched else []
            if self._fit(edit, before):
                found.append(edit)
                touched |= self.touched(edit)
        return tuple(found) if len(found) == len(asked) else self.kept(found)

    def ordered(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
        """The edits in one canonical order: those that meet stay in order, the others stand by their text, far ones
        first, since all before those decides whether they apply.

        So genomes of the same edits are equal whatever way they came about, and are evaluated once.
        """
        waits, followers = self._meetings(edits)
        rank = [(not edit.far, edit_text(edit)) for edit in edits]
        ready = [(rank[i], i) for i, count in enumerate(waits) if not count]
        heapify(ready)
        found: list[Edit] = []
        while ready:
            _, at = heappop(ready)
            found.append(edits[at])
            for later in followers[at]:
                waits[later] -= 1
                if not waits[later]:
                    heappush(ready, (rank[later], later))
        return tuple(found)

    def meeting(self, edits: Sequence[Edit]) -> list[tuple[int, int]]:
        """Pairs of places whose edits meet: one touches what the other names, so their order may matter."""
        return [(one, two) for one, later in enumerate(self._meetings(edits)[1]) for two in sorted(later)]

    def _meetings(self, edits: Sequence[Edit]) -> tuple[list[int], list[set[int]]]:
        """For each edit, how many before it it meets, and the places of those behind it that it meets."""
        naming: dict[str, list[int]] = {}
        touching: dict[str, list[int]] = {}
        followers: list[set[int]] = [set() for _ in edits]
        for at, edit in enumerate(edits):
            touched = self.touched(edit)
            for name in self.names(edit):
                for before in touching.get(name, ()) if name not in touched else naming.get(name, ()):
                    followers[before].add(at)
                naming.setdefault(name, []).append(at)
            for name in touched:
                touching.setdefault(name, []).append(at)
        waits = [0] * len(edits)
        for later in followers:
            for at in later:
                waits[at] += 1
        return waits, followers

    def needed(self, edit: Edit, before: Sequence[Edit]) -> list[Edit]:
        """Those of `before` that decide whether `edit` applies, in order."""
        if edit.far:
            return list(before)
        wanted = set(self.names(edit))
        found: list[Edit] = []
        for other in reversed(before):
            if self.touched(other) & wanted:
                found.append(other)
                wanted |= {name for name in self.names(other) if "'" in name}  # what makes the copies that it uses
        return found[::-1]

    def space_after(self, edits: Sequence[Edit]) -> Space:
        """The space once `edits`, each of which applies, were applied."""
        texts = tuple(map(edit_text, edits))
        at = len(texts)
        while at and texts[:at] not in self._spaces:
            at -= 1
        space = self._spaces[texts[:at]] if at else self.space
        for end in range(at, len(texts)):
            space = self._spaces[texts[: end + 1]] = edits[end].extend(space)
            if len(self._spaces) > SPACES:
                del self._spaces[next(iter(self._spaces))]
        return space

    def names(self, edit: Edit) -> frozenset[str]:
        """The ops and arguments that the edit names."""
        text = edit_text(edit)
        if text not in self._names:
            self._learn(edit, text)
        return self._names[text]

    def touched(self, edit: Edit) -> frozenset[str]:
        """The ops that are not what they were once it was applied."""
        text = edit_text(edit)
        if text not in self._touched:
            self._learn(edit, text)
        return self._touched[text]

    def _learn(self, edit: Edit, text: str) -> None:
        if len(self._names) >= KEPT:
            self._names.clear()
            self._touched.clear()
        self._touched[text] = frozenset(site.partition("#")[0] for site in edit.sites)
        self._names[text] = frozenset(_NAME.findall(text)) | self._touched[text]

    def _fit(self, edit: Edit, before: Sequence[Edit]) -> bool:
        key = (*map(edit_text, before), edit_text(edit))
        if key not in self._fits:
            if len(self._fits) >= KEPT:
                self._fits.clear()
            self._fits[key] = edit.applies(self.space_after(before))
        return self._fits[key]

"""What records say of single edits: what each did wherever it was the only difference, and which pairs belong together.

A child that has one edit more than its parent, or one less, shows what this edit does there. From that come the edits
worth stacking, those proven neutral, and linked pairs, which crossover does not split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EDITS = 512  # edits that are remembered; the least promising go first
NEUTRAL = 4096  # edits known to be neutral that are remembered
LINKS = 1024
LINKED = 0.5  # weight from which a pair is not split: one test of two alone, or two of three
SURPRISE = (
    0.02  # of the span of the objectives: an edit that does this much better here than elsewhere has a partner here
)


@dataclass(frozen=True)
class Effect:
    """What an edit did: `seen` times, `failed` of them invalid; the mean change of each objective in shares of its span
    over the others. last: the generation that saw it."""

    seen: int
    failed: int
    change: tuple[float, ...]
    last: int

    def worth(self, weights: Sequence[float]) -> float:
        """The gain in a weighting of the objectives; below 0 where it costs or failed each time."""
        if self.failed == self.seen:
            return -1.0
        return -sum(w * c for w, c in zip(weights, self.change, strict=True))

    @property
    def promise(self) -> float:
        """The greatest gain in any objective, less for what fails elsewhere."""
        return -1.0 if self.failed == self.seen else -min(self.change) * (1 - self.failed / self.seen)


class Evidence:
    """Effects, neutral edits and linked pairs by the canonical texts of the edits; plain data."""

    def __init__(self) -> None:
        self.effects: dict[str, Effect] = {}
        self._neutral: dict[str, int] = {}
        self._links: dict[tuple[str, str], float] = {}
        self._partners: dict[str, set[str]] = {}  # what follows from the links

    def saw(self, edit: str, others: Sequence[str], change: Sequence[float] | None, generation: int) -> None:
        """Learn from a genome of `edit` and `others` beside one of the others alone.

        change: of the objectives by the edit, in shares of their spans; None if only those without it are valid.
        """
        old = self.effects.get(edit)
        if old is not None and change is not None and others and self._better(old, change):
            self._link(edit, others)
        seen, failed, mean = (old.seen, old.failed, old.change) if old else (0, 0, ())
        if change is None:
            mean, failed = mean or (0.0,), failed + 1
        elif seen == failed:
            mean = tuple(change)
        else:
            mean = tuple(m + (c - m) / (seen - failed + 1) for m, c in zip(mean, change, strict=True))
        self.effects.pop(edit, None)
        self.effects[edit] = Effect(seen + 1, failed, mean, generation)
        if len(self.effects) > EDITS:
            del self.effects[min(self.effects, key=lambda e: (self.effects[e].promise, self.effects[e].last))]
        if change is not None:
            self._neutral.pop(edit, None)

    def needs(self, edit: str, others: Sequence[str]) -> None:
        """Learn that without `edit` the `others` are invalid, though they are valid with it."""
        self._link(edit, others)

    def saw_neutral(self, edit: str) -> None:
        """Learn that a program was the same with and without `edit`."""
        if edit in self.effects and self.effects[edit].seen > self.effects[edit].failed:
            return  # neutral here, and not elsewhere
        self._neutral[edit] = self._neutral.pop(edit, 0) + 1
        if len(self._neutral) > NEUTRAL:
            del self._neutral[next(iter(self._neutral))]

    def neutral(self, edit: str) -> bool:
        """Whether the edit changed no program that it was tried in."""
        return edit in self._neutral

    def linked(self, one: str, two: str) -> bool:
        """Whether the two did better together than either alone."""
        return self._links.get((min(one, two), max(one, two)), 0.0) >= LINKED

    def partners(self, edit: str) -> set[str]:
        """The edits that it is linked with."""
        return self._partners.get(edit, set())

    def good(self) -> list[str]:
        """The edits that gained something somewhere, in the order of their last evidence."""
        return [edit for edit, effect in self.effects.items() if effect.promise > 0]

    def state(self) -> dict[str, Any]:
        return {
            "effects": [[e, f.seen, f.failed, list(f.change), f.last] for e, f in self.effects.items()],
            "neutral": [[e, count] for e, count in self._neutral.items()],
            "links": [[one, two, weight] for (one, two), weight in self._links.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.effects = {e: Effect(n, failed, tuple(c), last) for e, n, failed, c, last in state.get("effects", ())}
        self._neutral = {e: count for e, count in state.get("neutral", ())}
        self._links = {(one, two): weight for one, two, weight in state.get("links", ())}
        self._partners = {}
        for pair in self._links:
            self._partner(pair)

    def _better(self, old: Effect, change: Sequence[float]) -> bool:
        """Whether an edit does clearly better here than elsewhere: positive epistasis with something that is here."""
        if old.seen == old.failed:
            return True
        return sum(old.change) - sum(change) > SURPRISE

    def _link(self, edit: str, others: Iterable[str]) -> None:
        others = list(others)
        for other in others:
            pair = (min(edit, other), max(edit, other))
            self._links[pair] = self._links.pop(pair, 0.0) + 1 / len(others)
            self._partner(pair)
        while len(self._links) > LINKS:
            one, two = min(self._links, key=lambda p: self._links[p])
            del self._links[one, two]
            self._partners.get(one, set()).discard(two)
            self._partners.get(two, set()).discard(one)

    def _partner(self, pair: tuple[str, str]) -> None:
        if self._links[pair] >= LINKED:
            self._partners.setdefault(pair[0], set()).add(pair[1])
            self._partners.setdefault(pair[1], set()).add(pair[0])

"""The book of one batch: which jobs wait, which variant answers for which, the results in order. No processes here."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from fitness.result import Result

ATTEMPTS = 2
FINGERPRINT = "fingerprint"


class Batch:
    """Jobs 0..count-1. Variants with one fingerprint are evaluated once; the lowest index has the evaluation.

    known: results by fingerprint from before this batch, the base's among them.
    """

    def __init__(self, count: int, known: Mapping[str, Result]) -> None:
        self._known = known
        self._queue = deque(range(count))
        self._attempts = [0] * count
        self._results: list[Result | None] = [None] * count
        self._leaders: dict[str, int] = {}
        self._followers: dict[int, list[int]] = {}
        self._answered: set[int] = set()

    @property
    def done(self) -> bool:
        return all(result is not None for result in self._results)

    def next(self) -> int | None:
        """The next job to evaluate, or None if no job waits."""
        if not self._queue:
            return None
        index = self._queue.popleft()
        self._attempts[index] += 1
        return index

    def answered(self, index: int) -> bool:
        """Whether the job needs no evaluation: another variant's result is or will be its own."""
        return index in self._answered

    def answer(self, index: int, fingerprint: str) -> list[tuple[int, Result]] | None:
        """None if the job must be evaluated; else the jobs that this finishes, none if it waits for another."""
        leader = self._leaders.setdefault(fingerprint, index)
        known = self._known.get(fingerprint)
        if known is None and leader == index:
            return None
        self._answered.add(index)
        result = known or self._results[leader]
        if result is None:
            self._followers.setdefault(leader, []).append(index)
            return []
        return [self._set(index, replace(result, answered_by=FINGERPRINT))]

    def finish(self, index: int, result: Result) -> list[tuple[int, Result]]:
        """Enter a result; returns the jobs that this finishes: it, and those that waited for it."""
        first, *others = sorted([index, *self._followers.pop(index, [])])
        if result.fingerprint:
            self._leaders[result.fingerprint] = first
        copy = replace(result, answered_by=FINGERPRINT)
        return [self._set(first, result), *(self._set(i, copy) for i in others)]

    def retry(self, index: int) -> bool:
        """Put a job whose worker was lost back to the front; False if it has had its attempts."""
        if self._attempts[index] >= ATTEMPTS:
            return False
        self._queue.appendleft(index)
        return True

    def results(self) -> list[Result]:
        """All results by index. Which of several equal variants came first must not show: the lowest index did."""
        results = [r for r in self._results if r is not None]
        for fingerprint, leader in self._leaders.items():
            same = [i for i, r in enumerate(results) if r.fingerprint == fingerprint]
            if fingerprint in self._known or leader == min(same, default=leader):
                continue
            first = min(same)
            results[first], results[leader] = results[leader], results[first]
        return results

    def _set(self, index: int, result: Result) -> tuple[int, Result]:
        self._results[index] = result
        return index, result

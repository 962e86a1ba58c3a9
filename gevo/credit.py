"""How often each operator is used: rates that follow what paid, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping

FADES = 0.99  # of what is known stays when something new is: the last hundred trials count
TRUST = 4.0  # trials that the first guess counts for, so that one lucky child does not take every turn
LEAST = 0.25  # of its first share that no operator falls below: what pays may change, and none dies


class Credit:
    """Rates by probability matching (Goldberg 1990): each operator's share follows the mean of what its children paid,
    times its first weight. A pay is between 0 and 1.

    Means fade, and the state is two numbers an operator, so a resumed search has the same rates.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        total = sum(weights.values())
        self._first = {name: weight / total for name, weight in weights.items()}
        self._tried = dict.fromkeys(weights, 0.0)
        self._paid = dict.fromkeys(weights, 0.0)

    def add(self, name: str, pay: float) -> None:
        """Count one child of an operator; unknown names are ignored."""
        if name not in self._first:
            return
        self._tried[name] = FADES * self._tried[name] + 1.0
        self._paid[name] = FADES * self._paid[name] + pay

    @property
    def rates(self) -> dict[str, float]:
        """Shares that sum to 1."""
        mean = (sum(self._paid.values()) + 1.0) / (sum(self._tried.values()) + 10.0)
        worth = {
            name: share * (self._paid[name] + TRUST * mean) / (self._tried[name] + TRUST)
            for name, share in self._first.items()
        }
        total = sum(worth.values())
        return {name: LEAST * self._first[name] + (1.0 - LEAST) * value / total for name, value in worth.items()}

    def state(self) -> dict[str, list[float]]:
        return {name: [self._tried[name], self._paid[name]] for name in self._first}

    def restore(self, state: Mapping[str, list[float]]) -> None:
        """Stand where `state` was taken; operators that it does not know begin anew."""
        for name in self._first:
            self._tried[name], self._paid[name] = state.get(name, [0.0, 0.0])

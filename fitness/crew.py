"""The workers of a pool: started, listened to, replaced when they die or hang, killed at the end."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from typing import Any

from fitness.errors import FitnessError
from fitness.handle import Handle
from fitness.job import Context

_TICK_S = 0.5
_STARTS = 2  # per worker, with none in between that came up


class Crew:
    """`count` workers once `start` was called. Must be used from one thread, which must outlive the workers."""

    def __init__(self, context: Context, evaluator: str, count: int) -> None:
        self._context, self._evaluator, self._count = context, evaluator, count
        self._handles: list[Handle] = []
        self._selector = selectors.DefaultSelector()
        self._failed_starts = 0

    @property
    def idle(self) -> list[Handle]:
        return [h for h in self._handles if h.idle]

    @property
    def busy(self) -> bool:
        return any(h.job is not None for h in self._handles)

    def start(self) -> None:
        while len(self._handles) < self._count:
            self._add()

    def listen(self) -> Iterator[tuple[Handle, list[dict[str, Any]] | None]]:
        """What workers say, for up to half a second; None for one that is gone or over its deadline."""
        for key, _ in self._selector.select(_TICK_S):
            yield key.data, key.data.read()
        now = time.monotonic()
        for handle in [h for h in self._handles if now > h.deadline]:
            yield handle, None

    def replace(self, handle: Handle) -> None:
        """Kill a worker and start another in its place; raises FitnessError where workers do not start at all."""
        self._failed_starts = 0 if handle.ready else self._failed_starts + 1
        found = self.dismiss(handle)
        if self._failed_starts >= _STARTS * self._count:
            raise FitnessError(f"workers do not start: {found}", "worker", "See `gevo doctor`")
        self._add()

    def dismiss(self, handle: Handle) -> str:
        """Kill a worker; returns how it was found and the end of what it printed."""
        self._handles.remove(handle)
        self._selector.unregister(handle.out)
        return handle.kill()

    def close(self) -> None:
        """Kill every worker and every child now."""
        for handle in self._handles:
            handle.hit()
        while self._handles:
            self.dismiss(self._handles[-1])

    def _add(self) -> None:
        handle = Handle(self._context, self._evaluator)
        self._handles.append(handle)
        self._selector.register(handle.out, selectors.EVENT_READ, handle)

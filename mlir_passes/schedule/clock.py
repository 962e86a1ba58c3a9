"""When work has to be done, whatever else the machine does: a limit on time that passes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf


class TimeUp(Exception):
    """The time is up before the work is done."""


@dataclass(frozen=True)
class Clock:
    """end_s: on the monotonic clock."""

    end_s: float = inf

    @staticmethod
    def of(seconds: float) -> Clock:
        """So long from now."""
        return Clock(time.monotonic() + seconds)

    def left_s(self) -> float:
        return self.end_s - time.monotonic()

    def check(self) -> None:
        """Raise TimeUp where nothing is left."""
        if self.left_s() <= 0:
            raise TimeUp


NO_END = Clock()

"""What an evaluation found: plain data, one JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How an evaluation ended. The text after each is what a user should know."""

    OK = "ok"
    REJECTED = "rejected"  # an edit does not apply, or the verifier refuses the variant
    COMPILE_FAILED = "compile_failed"  # MLIR or LLVM gave an error, an assertion, or died while compiling
    CRASHED = "crashed"  # the variant's own code died by a signal
    TIMED_OUT = "timed_out"  # wall or CPU limit
    OUT_OF_MEMORY = "out_of_memory"  # over the memory limit, or over the memory budget
    DIVERGED = "diverged"  # NaN or infinity in state, metrics or quality
    WRONG = "wrong"  # outputs changed between runs, or a time that is not physical


@dataclass(frozen=True)
class Measure:
    """One objective's value with its method and spread (same unit; 0 where exact).

    each: what the value is the mean of, in order, where that is kept: the error of each seed's training.
    right: of one state scored by rows on the test split, a bit a row, 1 where it is right, in hexadecimal with the
        first row as the highest bit; so that two programs compare row by row. "" elsewhere.
    """

    value: float
    method: str
    spread: float = 0.0
    each: tuple[float, ...] = ()
    right: str = ""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Measure:
        known = dict(data)
        known["each"] = tuple(known.get("each", ()))
        return Measure(**known)


@dataclass(frozen=True)
class Failure:
    """Why a stage ends an evaluation: becomes the Result's outcome and detail."""

    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Result:
    """One evaluated genome. `objectives` is empty unless the outcome is ok.

    fingerprint: hash of the variant's canonical text after DCE, "" if it never got so far.
    runtime_ratio: the variant's time over the base's, interleaved in one process; 0 if not timed.
    measured_s: the variant's own seconds a step in that process; `runtime_s` is the ratio times the base's seconds.
    stage_s: wall seconds by stage. cache_hits, cache_misses: kernels found in / added to the object cache.
    answered_by: "" if evaluated, else "fingerprint" (a variant with the same fingerprint answered).
    paged_bytes: of the page file, beside `peak_bytes` of the arena. detail: of a valid one, which genes of its schedule
    could not be honoured.
    """

    outcome: Outcome
    stage: str = ""
    detail: str = ""
    fingerprint: str = ""
    objectives: Mapping[str, Measure] = field(default_factory=dict[str, Measure])
    runtime_ratio: float = 0.0
    measured_s: float = 0.0
    stage_s: Mapping[str, float] = field(default_factory=dict[str, float])
    cache_hits: int = 0
    cache_misses: int = 0
    answered_by: str = ""
    paged_bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Result:
        known = dict(data)
        known["outcome"] = Outcome(known["outcome"])
        known["objectives"] = {k: Measure.from_json(m) for k, m in known.get("objectives", {}).items()}
        return Result(**known)

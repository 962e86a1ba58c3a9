"""What an evaluation is asked: plain data, one JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fitness.result import Result

OBJECTIVES = ("runtime_s", "peak_bytes", "energy_j", "error")


@dataclass(frozen=True)
class Limits:
    """Bounds of one evaluation. memory_bytes: address space over what the worker already holds."""

    wall_s: float = 60.0
    cpu_s: float = 60.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True)
class Timing:
    """Timing of a variant against the base: `rounds` interleaved pairs of windows of about `window_s` each.

    At load 5 on 2 cores, base against base on a 50 us step: standard deviation of the ratio 0.5 % with
    20 x 0.5 ms, 1.3 % with 10 x 1 ms, at the same cost; the ratio of two minima varied by 3 to 6 %. After `least`
    pairs it stops where their interquartile range, over the root of their number, is below `enough` of the ratio.
    """

    rounds: int = 20
    least: int = 8
    enough: float = 0.003
    window_s: float = 0.0005


@dataclass(frozen=True)
class Context:
    """What all jobs of a campaign share.

    prepared: folder of the prepared workload. base: path of base.mlir. cache: folder of the object cache.
    objectives: a subset of OBJECTIVES; the stages of the others are skipped.
    target: "cpu". profile: name of the energy profile, in `fitness/profiles/`.
    slow_ratio: a variant this many times slower than the base in its first steps ends as timed_out.
    threads: that work at one step, of the base as of a variant.
    memory_budget: arena bytes above which a variant ends as out_of_memory before it runs; 0 for none.
    split: "validation" in a search, "test" only in the final check.
    seeds: of the trainings that give the error; () for those of the workload, which a search uses.
    tuning: path of the file of choices that kernels are made by, "" for the defaults.
    page_dir: folder of the page files of variants that page, "" for the system's folder of temporary files.
    """

    prepared: str
    base: str
    cache: str
    objectives: tuple[str, ...] = OBJECTIVES
    target: str = "cpu"
    profile: str = "host-x86"
    limits: Limits = field(default_factory=Limits)
    timing: Timing = field(default_factory=Timing)
    slow_ratio: float = 20.0
    memory_budget: int = 0
    threads: int = 1
    split: str = "validation"
    tuning: str = ""
    seeds: tuple[int, ...] = ()
    page_dir: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Context:
        known = dict(data)
        known["objectives"] = tuple(known["objectives"])
        known["seeds"] = tuple(known.get("seeds", ()))
        known["limits"] = Limits(**known["limits"])
        known["timing"] = Timing(**known["timing"])
        return Context(**known)


@dataclass(frozen=True)
class Job:
    """One genome to evaluate: its index in the batch and its JSON form."""

    index: int
    genome: Mapping[str, Any]


@dataclass(frozen=True)
class PoolEvent:
    """What a pool tells while it evaluates.

    kind: "started", "stage" (with its name), "finished" (with the result), or "worker_lost" (the job is tried again).
    """

    kind: str
    index: int
    stage: str = ""
    result: Result | None = None

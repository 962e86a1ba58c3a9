"""The data that variants are trained and scored on, read once by a worker; its children share the memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fitness.cpu import Array
from workloads.dtypes import dtype_named
from workloads.workload import Arrays, PreparedWorkload, Quality

KEEP_BYTES = 256 << 20  # batches beyond this are gathered anew in each evaluation


@dataclass(frozen=True)
class Lessons:
    """What `prepared` says, with the batches of all seeds (if they are small) and the scored split in memory."""

    prepared: PreparedWorkload
    split: str
    scored: Arrays
    seeds: tuple[int, ...]
    kept: Mapping[int, tuple[Arrays, ...]]

    @property
    def rule(self) -> Quality:
        return self.prepared.signature.quality

    @property
    def is_prediction(self) -> bool:
        return self.prepared.signature.is_prediction

    def initial_state(self, seed: int) -> list[Array]:
        return self.prepared.initial_state(seed)

    def batches(self, seed: int) -> Iterable[Arrays]:
        """The training batches of a seed, `rule.steps` of them."""
        return self.kept.get(seed) or self.prepared.batches(seed, self.rule.steps)


def read_lessons(
    prepared: PreparedWorkload, split: str, seeds: tuple[int, ...] = (), keep_bytes: int = KEEP_BYTES
) -> Lessons:
    signature, rule = prepared.signature, prepared.signature.quality
    batch_bytes = sum(int(np.prod(s.shape)) * dtype_named(s.dtype).itemsize for s in signature.batch)
    seeds = seeds or rule.seeds
    keep = not signature.is_prediction and batch_bytes * rule.steps * len(seeds) <= keep_bytes
    kept = {seed: tuple(prepared.batches(seed, rule.steps)) for seed in seeds} if keep else {}
    return Lessons(prepared, split, tuple(np.array(a) for a in prepared.split(split)), seeds, kept)

"""All that is known of why a variant is what it is: plain data, one JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gevo.explain import effects as effects_of
from gevo.explain.difference import Shown
from gevo.explain.effects import Effect, Pair, Sums
from gevo.explain.lab import Genes, Scale
from gevo.explain.left_out import LeftOut
from gevo.kernels import StepKernels


@dataclass(frozen=True)
class Said:
    """One gene in words: what it does, what that means, and its plain form."""

    gene: int
    words: str
    meaning: str
    plain: Mapping[str, Any]
    kept: bool


@dataclass(frozen=True)
class Explanation:
    """The explanation of one record.

    said: its genes in order. kept: those that matter; left_out: what the others do. minimal: whether
    minimising came to its end. sums: by objective.
    whole: the record as it was against the base; minimised: what is kept against the base.
    left: evaluations that would make it whole, 0 where it is. diff, base_kernels, kernels: of what is kept.
    """

    run: str
    record: str
    workload: str
    scales: tuple[Scale, ...]
    said: tuple[Said, ...]
    kept: Genes
    left_out: LeftOut
    minimal: bool
    effects: tuple[Effect, ...]
    pairs: tuple[Pair, ...]
    sums: Mapping[str, Sums]
    whole: Mapping[str, Any]
    minimised: Mapping[str, Any]
    diff: tuple[Shown, ...]
    base_kernels: StepKernels | None
    kernels: StepKernels | None
    evaluated: int
    left: int
    method: str

    @property
    def kept_said(self) -> Sequence[Said]:
        return [s for s in self.said if s.kept]

    def to_json(self) -> dict[str, Any]:
        def interval(value: Any) -> Any:
            return None if value is None else value.to_json()

        return {
            "run": self.run,
            "record": self.record,
            "workload": self.workload,
            "objectives": [s.objective for s in self.scales],
            "units": {s.objective: "log ratio" if s.relative else "difference" for s in self.scales},
            "edits": [
                {"edit": s.gene + 1, "kept": s.kept, "words": s.words, "meaning": s.meaning, "plain": dict(s.plain)}
                for s in self.said
            ],
            "kept": [g + 1 for g in self.kept],
            "left_out": self.left_out.to_json(),
            "minimal": self.minimal,
            **effects_of.to_json(self.effects, self.pairs),
            "sums": {
                name: {"joint": interval(s.joint), "alone": interval(s.alone), "within": interval(s.within)}
                for name, s in self.sums.items()
            },
            "whole": {name: interval(v) for name, v in self.whole.items()},
            "minimised": {name: interval(v) for name, v in self.minimised.items()},
            "diff": [line.to_json() for line in self.diff],
            "evaluated": self.evaluated,
            "left": self.left,
            "method": self.method,
        }

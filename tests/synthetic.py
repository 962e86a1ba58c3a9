"""A small made-up space and an evaluator that needs no IR: results are a pure function of the genome."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fitness.result import Measure, Outcome, Result
from gevo.genome import IDENTITY, Genome
from mlir_passes.space import Inner, Space, SpaceOp, TensorType

SMALL, WIDE, FLAG = TensorType((4,), "f32"), TensorType((8, 4), "f32"), TensorType((4,), "i1")

DIFFERENCE = (
    Inner("arith.subf", ("a0", "a1"), "f32"),
    Inner("math.exp", ("b0",), "f32"),
    Inner("arith.mulf", ("b0", "b1"), "f32"),
    Inner("linalg.yield", ("b2",), ""),
)
SUM = (
    Inner("arith.mulf", ("a0", "a1"), "f32"),
    Inner("arith.addf", ("a2", "b0"), "f32"),
    Inner("linalg.yield", ("b1",), ""),
)


def make_space(ops: int = 12) -> Space:
    """A chain of two-operand ops of alternating shapes with three arguments, some of them sums; the last op returns.
    Every kind of edit applies somewhere."""
    types = {"arg0": SMALL, "arg1": WIDE, "arg2": FLAG}
    made: list[SpaceOp] = []
    previous = {SMALL: "arg0", WIDE: "arg1"}
    for index in range(ops):
        shape = SMALL if index % 2 else WIDE
        result = f"op{index}#0"
        operands = (previous[shape], previous[SMALL], "arg2")
        op = SpaceOp(f"op{index}", "linalg.generic", operands, (0, 1), (result,), True)
        if index % 4 == 2:
            maps = ("d0 d2", "d2", "d1")
            made.append(replace(op, loops="ppr", sizes=(8, 4, 4), maps=maps, body=SUM))
        else:
            made.append(replace(op, loops="p" * len(shape.shape), sizes=shape.shape, body=DIFFERENCE))
        types[result] = shape
        previous[shape] = result
    made.append(SpaceOp(f"op{ops}", "func.return", tuple(previous.values()), (0, 1), (), False))
    arguments = ("arg0", "arg1", "arg2")
    return Space(tuple(made), types, arguments, tuple(previous.values()), storage=("f32", "bf16"))


def fake_result(genome: Genome) -> Result:
    """A made-up outcome: a fifth of the genomes fail in named ways, the others trade the four objectives."""
    if genome == IDENTITY:
        return _ok("base", 1e-3, 100_000, 1e-2, 0.10)
    digest = hashlib.sha256(genome.key.encode()).digest()
    if digest[0] < 26:
        return Result(Outcome.REJECTED, "apply", "op1: no such value")
    if digest[0] < 52:
        return Result(Outcome.DIVERGED, "train", "metric 0 is not finite after 12 steps")
    sites = [int(hashlib.sha256(repr(edit).encode()).hexdigest()[:6], 16) / (1 << 24) for edit in genome.edits]
    gain = sum(s - 0.4 for s in sites)
    loss = sum((s - 0.6) ** 2 for s in sites)
    return _ok(
        genome.key[:4],  # short, so that different genomes do meet in one fingerprint now and then
        1e-3 * 2.0**-gain * (1 + 0.1 * loss),
        round(100_000 * 2.0 ** (-0.5 * gain + 0.3 * loss)),
        1e-2 * 2.0**-gain,
        min(1.0, 0.10 + 0.05 * loss),
    )


def _ok(fingerprint: str, runtime_s: float, peak_bytes: int, energy_j: float, error: float) -> Result:
    objectives = {
        "runtime_s": Measure(runtime_s, "fake clock"),
        "peak_bytes": Measure(peak_bytes, "plan"),
        "energy_j": Measure(energy_j, "model:fake"),
        "error": Measure(error, "fake accuracy"),
    }
    return Result(
        Outcome.OK,
        fingerprint=fingerprint,
        objectives=objectives,
        runtime_ratio=runtime_s / 1e-3,
        measured_s=runtime_s,
        stage_s={"verify": 0.001, "train": 0.01},
        cache_hits=3,
        cache_misses=1,
    )


class FakePool:
    """The interface of `fitness.pool.Pool`. With more workers, results come in another order, as they do there."""

    def __init__(
        self, workers: int = 1, delay_s: float = 0.0, answer: Callable[[Genome], Result] = fake_result
    ) -> None:
        self.workers, self.delay_s, self.answer = workers, delay_s, answer
        self.evaluated: list[str] = []

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    @property
    def base(self) -> Result:
        return fake_result(IDENTITY)

    def evaluate(
        self,
        genomes: Sequence[Mapping[str, Any]],
        known: Mapping[str, Result],
        on_event: Callable[[Any], None] | None = None,
    ) -> list[Result]:
        results: dict[int, Result] = {}
        order = sorted(range(len(genomes)), key=lambda i: (i % self.workers, i))
        for index in order:
            genome = Genome.from_json(genomes[index])
            time.sleep(self.delay_s)
            self.evaluated.append(genome.key)
            results[index] = self.answer(genome)
            if on_event is not None:
                on_event(SimpleNamespace(kind="started", index=index, stage="", result=None))
                on_event(SimpleNamespace(kind="finished", index=index, stage="done", result=results[index]))
        return [results[i] for i in range(len(genomes))]

"""What a worker prepares once for all its evaluations: the base, loaded, and all that variants are judged with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fitness.cpu import Array, CpuRunner
from fitness.job import Context
from fitness.profile import Profile, load_profile
from fitness.quality import Judge
from fitness.timing import Subject, peak_flops
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import apply_genome, compile_program
from mlir_passes.program import Program
from workloads.workload import PreparedWorkload

SLACK = 4096  # bytes after an arena, where a write past the plan shows
_BATCHES = 8


@dataclass(frozen=True)
class Bench:
    """The base and its workload. `state` and `batches` are the first seed's: what checks and timing start from."""

    context: Context
    prepared: PreparedWorkload
    base_text: str
    judge: Judge
    profile: Profile
    peak_flops: float
    state: tuple[Array, ...]
    batches: tuple[tuple[Array, ...], ...]

    @property
    def base(self) -> CpuRunner:
        return self.judge.step

    def compile(self, text: str, cache: ObjectCache, on_stage: Callable[[str], None]) -> Program:
        """The program of a variant of the base."""
        signature = self.prepared.signature
        return compile_program(text, "step", len(signature.state), len(signature.batch), cache, on_stage)

    def subject(self, runner: CpuRunner) -> Subject:
        """A runner ready to be timed."""
        return Subject(runner, self.state, self.batches)


def load_bench(context: Context) -> Bench:
    """Compile and load the base; what is wrong with it is raised."""
    prepared = PreparedWorkload.load(Path(context.prepared))
    signature = prepared.signature
    base_text = Path(context.base).read_text()
    cache = ObjectCache(Path(context.cache))
    sizes = len(signature.state), len(signature.batch)
    step = CpuRunner(compile_program(apply_genome(base_text, []).text, "step", *sizes, cache), SLACK)
    predict = None
    if prepared.predict_text is not None:
        sizes = len(signature.state), len(signature.predict_inputs)
        predict = CpuRunner(compile_program(prepared.predict_text, "predict", *sizes, cache))
    seed = signature.quality.seeds[0]
    return Bench(
        context=context,
        prepared=prepared,
        base_text=base_text,
        judge=Judge(step, predict),
        profile=load_profile(context.profile),
        peak_flops=peak_flops(),
        state=tuple(prepared.initial_state(seed)),
        batches=tuple(prepared.batches(seed, _BATCHES)),
    )

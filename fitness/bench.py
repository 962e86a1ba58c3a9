"""What a worker prepares once for all its evaluations: the base, loaded, and all that variants are judged with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.choices import load_choices
from fitness.costs import modelled_costs
from fitness.cpu import Array, CpuRunner
from fitness.job import Context
from fitness.lessons import Lessons, read_lessons
from fitness.profile import Profile, load_profile
from fitness.quality import Judge
from fitness.timing import Subject, peak_flops
from fitness.typed import retyped, typed
from mlir_passes.edits import KINDS, edit_class, edit_from_json
from mlir_passes.errors import PassError
from mlir_passes.kernels.choice import Choice
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import (
    Variant,
    compile_module,
    compile_text,
    edit_module,
    parse_base,
    warm_up,
)
from mlir_passes.program import Program
from mlir_passes.schedule.genes import from_plain
from mlir_passes.schedule.line import line_of
from workloads.workload import PreparedWorkload

SLACK = 4096  # bytes after an arena, where a write past the plan shows
_BATCHES = 8


@dataclass(frozen=True)
class Bench:
    """The base and its workload. `state` and `batches` are the first seed's: what checks and timing start from.

    peak_flops: f32 flop/s of one core times the threads of a step.
    module: the parsed base, which one `variant` uses up: each evaluation has a forked copy of the bench.
    choices: how kernels are made, of the base as of variants; those that are not in it by default.
    kernel_context: where kernels are lowered.
    """

    context: Context
    lessons: Lessons
    module: Any
    kernel_context: Any
    judge: Judge
    profile: Profile
    peak_flops: float
    state: tuple[Array, ...]
    batches: tuple[tuple[Array, ...], ...]
    choices: Mapping[str, Choice]

    @property
    def base(self) -> CpuRunner:
        return self.judge.step

    def variant(self, genome: Mapping[str, Any], on_stage: Callable[[str], None]) -> Variant:
        """The base with a genome applied, in the module's own context; raises PassError where the numerics rule of
        the workload does not permit the genome's storage, or a gene cannot be read."""
        storage, rule = genome.get("storage", "f32"), self.lessons.prepared.signature.storage
        if storage not in rule:
            raise PassError("edit", f"the numerics rule of the workload permits {', '.join(rule)}, not {storage}")
        edits, genes = genome.get("edits", ()), from_plain(genome.get("schedule", ()))
        return edit_module(self.module, [edit_from_json(e) for e in edits], on_stage, storage, genes)

    def compile(
        self,
        variant: Variant,
        cache: ObjectCache,
        on_stage: Callable[[str], None],
        on_dropped: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> Program:
        """The program of a variant of the base; on_dropped: see `line_of`."""
        signature = self.lessons.prepared.signature
        sizes = len(signature.state), len(signature.batch)
        line = None
        if variant.schedule:
            costs = modelled_costs(self.profile, self.base.plan.peak_bytes)
            line = line_of(variant.schedule, *sizes, costs, on_dropped)
        given = self.kernel_context, self.choices, variant.storage, line
        program = compile_module(variant.module, signature.entry, *sizes, cache, on_stage, *given)
        return typed(program, signature)

    def subject(self, runner: CpuRunner) -> Subject:
        """A runner ready to be timed."""
        return Subject(runner, self.state, self.batches)


def load_bench(context: Context) -> Bench:
    """Compile and load the base; what is wrong with it is raised."""
    prepared = PreparedWorkload.load(Path(context.prepared))
    signature = prepared.signature
    base_text = Path(context.base).read_text()
    cache = ObjectCache(Path(context.cache))
    module = parse_base(base_text)
    kernel_context = warm_up(module.context)
    for kind in KINDS:
        edit_class(kind)  # imported here, once, and not in every child
    sizes = len(signature.state), len(signature.batch)
    choices = load_choices(context.tuning, context.threads)
    program = typed(compile_text(base_text, signature.entry, *sizes, cache, choices), signature)
    step = CpuRunner(program, SLACK, threads=context.threads)
    predict = None
    if prepared.predict_text is not None and signature.quality.kind == "accuracy":
        sizes = len(signature.state), len(signature.predict_inputs)
        program = compile_text(prepared.predict_text, "predict", *sizes, cache, choices)
        program = retyped(program, signature.state, signature.predict_inputs)
        predict = CpuRunner(program, threads=context.threads)
    seed = signature.quality.seeds[0]
    return Bench(
        context=context,
        lessons=read_lessons(prepared, context.split, context.seeds),
        module=module,
        kernel_context=kernel_context,
        judge=Judge(step, predict),
        profile=load_profile(context.profile),
        peak_flops=peak_flops() * context.threads,
        state=tuple(prepared.initial_state(seed)),
        batches=tuple(prepared.batches(seed, _BATCHES)),
        choices=choices,
    )

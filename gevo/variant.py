"""The program of a genome, compiled in this process: only for a process of its own (`gevo.ir_child`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fitness.costs import modelled_costs
from fitness.profile import HOST, load_profile
from fitness.typed import typed
from gevo.genome import Genome
from mlir_passes.kernels.choice import Choice
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import Variant, apply_genome, compile_module, compile_text
from mlir_passes.plan import Settled
from mlir_passes.plan_line import Line
from mlir_passes.program import Program
from mlir_passes.schedule.genes import from_plain
from mlir_passes.schedule.line import line_of
from workloads.workload import Signature


def compiled(
    base_text: str,
    genome: Genome,
    signature: Signature,
    cache: ObjectCache,
    choices: Mapping[str, Choice],
    on_line: Callable[[Line], None] | None = None,
) -> tuple[Variant, Program]:
    """The variant of a numbered base module by `genome`, and its program, as a search makes them.

    on_line is told the line of steps that the program follows, also where that keeps everything.
    """
    sizes = len(signature.state), len(signature.batch)
    variant = apply_genome(base_text, genome.edits, storage=genome.storage, schedule=from_plain(genome.schedule))
    make = None
    if variant.schedule or on_line is not None:
        base = compile_text(base_text, signature.entry, *sizes, cache, choices)
        costs = modelled_costs(load_profile(HOST), base.plan.peak_bytes)
        make = line_of(variant.schedule, *sizes, costs)

    def told(settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int]) -> Line | None:
        line = make(settled, keys, workspaces) if make is not None else None
        if line is not None and on_line is not None:
            on_line(line)
        return line

    program = compile_module(
        variant.module, signature.entry, *sizes, cache, choices=choices, storage=variant.storage, line_of=told
    )
    return variant, typed(program, signature)

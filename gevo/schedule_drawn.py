"""The schedule of a genome as a picture: for a process of its own (`gevo.ir_child`), which compiles the variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fitness.choices import load_choices
from fitness.costs import modelled_costs
from fitness.profile import HOST, load_profile
from gevo.genome import Genome
from gevo.schedule_plot import Drawn, plot
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import apply_genome, compile_module, compile_text
from mlir_passes.plan import Settled
from mlir_passes.plan_line import Line
from mlir_passes.schedule.genes import from_plain
from mlir_passes.schedule.line import line_of
from workloads.workload import PreparedWorkload, Signature


def draw_schedule(
    prepared: str,
    base: str,
    cache: str,
    genome: Mapping[str, Any],
    tuning: str,
    threads: int,
    title: str,
    budget_bytes: int,
    to: str,
) -> None:
    """Draw what the genome's schedule genes make of its variant into the file `to`; without such genes, all is kept."""
    signature = PreparedWorkload.load(Path(prepared)).signature
    sizes = len(signature.state), len(signature.batch)
    objects, text, made = ObjectCache(Path(cache)), Path(base).read_text(), Genome.from_json(genome)
    choices = load_choices(tuning, threads)
    variant = apply_genome(text, made.edits, storage=made.storage, schedule=from_plain(made.schedule))
    kept = compile_text(text, signature.entry, *sizes, objects, choices)
    costs = modelled_costs(load_profile(HOST), kept.plan.peak_bytes)
    make, lines = line_of(variant.schedule, *sizes, costs), list[Line]()

    def note(settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int]) -> Line | None:
        line = make(settled, keys, workspaces)
        lines.extend([line] if line is not None else [])
        return line

    compile_module(
        variant.module, signature.entry, *sizes, objects, choices=choices, storage=variant.storage, line_of=note
    )
    method = f"seconds and joules by {costs.method}"
    plot(Drawn(title, method, lines[0].problem, lines[0].steps, budget_bytes, names(signature)), Path(to))


def names(signature: Signature) -> dict[str, str]:
    """What the user calls state and batch, by their names in a scheduling problem."""
    return {f"arg{i}": found.name for i, found in enumerate((*signature.state, *signature.batch)) if found.name}

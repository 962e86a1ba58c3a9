"""The schedule of a genome as a picture: for a process of its own (`gevo.ir_child`), which compiles the variant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitness.choices import load_choices
from fitness.profile import HOST, MODEL
from gevo.genome import Genome
from gevo.schedule_plot import Drawn, plot
from gevo.variant import compiled
from mlir_passes.objects import ObjectCache
from mlir_passes.plan_line import Line
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
    signature, lines = PreparedWorkload.load(Path(prepared)).signature, list[Line]()
    choices, objects = load_choices(tuning, threads), ObjectCache(Path(cache))
    compiled(Path(base).read_text(), Genome.from_json(genome), signature, objects, choices, lines.append)
    method = f"seconds and joules by {MODEL}{HOST}"
    plot(Drawn(title, method, lines[0].problem, lines[0].steps, budget_bytes, names(signature)), Path(to))


def names(signature: Signature) -> dict[str, str]:
    """What the user calls state and batch, by their names in a scheduling problem."""
    return {f"arg{i}": found.name for i, found in enumerate((*signature.state, *signature.batch)) if found.name}

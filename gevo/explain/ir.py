"""The part of an explanation that needs IR, for a process of its own: lines and kernels of base and variant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fitness.choices import load_choices
from gevo.genome import IDENTITY, Genome
from gevo.kernels import StepKernels, collect
from gevo.variant import compiled
from mlir_passes.describe import describe
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.choice import DEFAULT
from mlir_passes.lower_cpu import kernel_hash
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import kernel_text, usable
from mlir_passes.structure import structure
from workloads.workload import PreparedWorkload


def explain_ir(
    prepared: str, base: str, cache: str, genome: Mapping[str, Any], to: str, tuning: str = "", threads: int = 1
) -> None:
    """Lines and kernels of the base and of the variant by `genome`, as JSON into the file `to`."""
    workload = PreparedWorkload.load(Path(prepared))
    text, made = Path(base).read_text(), Genome.from_json(genome)
    before, after = structure(text, ()), structure(text, made.edits)

    def kernels(of: Genome) -> dict[str, Any]:
        return _kernels(workload, text, of, Path(cache), load_choices(tuning, threads)).to_json()

    data = {
        "base": before.to_json(),
        "variant": after.to_json(),
        "base_kernels": kernels(IDENTITY),
        "variant_kernels": kernels(made),
    }
    Path(to).write_text(json.dumps(data))


def _kernels(workload: PreparedWorkload, text: str, genome: Genome, cache: Path, choices: Any) -> StepKernels:
    signature = workload.signature
    _, program = compiled(text, genome, signature, ObjectCache(cache), choices)
    context, words = new_context(), dict[str, dict[str, Any]]()
    for key, kernel in program.kernels.items():
        choice = usable(choices.get(kernel_hash(kernel_text(kernel)), DEFAULT))
        words[key] = {**asdict(describe(kernel_text(kernel), choice, context)), "tuned": choice != DEFAULT}
    return collect(program, signature, words)

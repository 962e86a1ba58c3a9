"""What is to be seen of a variant in IR: names for its sites, the ops that differ, its kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fitness.job import Context
from gevo.explain.difference import Shown, diff
from gevo.explain.lab import Genes
from gevo.explain.names import Names
from gevo.explain.report import Said
from gevo.explain.words import sentences
from gevo.files import write_json
from gevo.genome import IDENTITY, Genome
from gevo.ir_child import in_child
from gevo.kernels import StepKernels
from mlir_passes.space import Space
from mlir_passes.structure import Structure
from workloads.workload import Signature

FORMAT = 1


class Seen:
    """What is to be seen in IR: names, lines that differ, kernels. Made by `look`."""

    def __init__(self, data: Mapping[str, Any], signature: Signature, space: Space) -> None:
        base, variant = Structure.from_json(data["base"]), Structure.from_json(data["variant"])
        where = {op.site: op.where for op in space.ops if op.where}
        self.names = Names(base, signature, where)
        self._space = space
        self.diff: list[Shown] = diff(base, variant, where, {**self.names.leaves, **self.names.results})
        self.base_kernels = StepKernels.from_json(data["base_kernels"])
        self.kernels = StepKernels.from_json(data["variant_kernels"])

    def said(self, genome: Genome, kept: Genes) -> tuple[Said, ...]:
        """Every gene of the genome in words."""
        found: list[Said] = []
        for gene in range(len(genome.edits) + (genome.storage != IDENTITY.storage)):
            if gene < len(genome.edits):
                edit = genome.edits[gene]
                found.append(Said(gene, *sentences(edit, self.names, self._space), edit.to_json(), gene in kept))
                continue
            storage = genome.storage
            words = f"what one kernel leaves for others is stored in {storage}"
            found.append(Said(gene, words, "less memory, and rounded", {"storage": storage}, gene in kept))
        return tuple(found)


def look(context: Context, kept: Genome, signature: Signature, space: Space, path: Path) -> Seen:
    """What is to be seen of the variant by `kept` in IR: from the file `path` if it holds just that, else found in a
    process of its own, as MLIR may abort one, and kept there."""
    if path.is_file():
        data = json.loads(path.read_text())
        if data.get("key") == kept.key and data.get("format") == FORMAT:
            return Seen(data, signature, space)
    with TemporaryDirectory(prefix="gevo-explain-") as name:
        to = Path(name) / "ir.json"
        in_child(
            "explain_ir",
            prepared=context.prepared,
            base=context.base,
            cache=context.cache,
            genome=kept.to_json(),
            to=str(to),
            tuning=context.tuning,
            threads=context.threads,
        )
        data = {**json.loads(to.read_text()), "key": kept.key, "format": FORMAT}
    write_json(path, data)
    return Seen(data, signature, space)

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
from gevo.genome import Genome
from gevo.ir_child import in_child
from gevo.kernels import StepKernels
from gevo.scheduling import gene_text
from mlir_passes.schedule.genes import from_plain
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
        for gene, edit in enumerate(genome.edits):
            found.append(Said(gene, *sentences(edit, self.names, self._space), edit.to_json(), gene in kept))
        for gene, name in enumerate(genome.whole, len(genome.edits)):
            found.append(Said(gene, *_of_whole(genome, name), {name: getattr(genome, name)}, gene in kept))
        return tuple(found)


def _of_whole(genome: Genome, name: str) -> tuple[str, str]:
    """What a field of the genome does, and what that is good for."""
    if name == "storage":
        return f"what one kernel leaves for others is stored in {genome.storage}", "less memory, and rounded"
    texts = "; ".join(gene_text(gene) for gene in from_plain(genome.schedule))
    return f"another schedule: {texts}", "less memory for more time; results stay the same, bit for bit"


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

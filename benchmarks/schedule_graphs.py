"""Training graphs of POET (arXiv 2207.07697) as scheduling problems: see data/schedule/README.md."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlir_passes.schedule.problem import Op, Problem, Tensor
from mlir_passes.schedule.steps import keep_all, replay

FOLDER = Path(__file__).parent / "data" / "schedule"
DEVICES = ("m4", "a72")
_BLOCK = 8  # nodes of a BERT layer, forward


def graph(name: str, device: str = "m4") -> Problem:
    """The problem of a network on a device: op i makes tensor i."""
    if name == "bert6":  # between bert3 and bert12: layers are alike
        return _shorter(graph("bert12", device), 6)
    found: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    costs = found["devices"][device]
    count = len(found["bytes"])
    reads: list[list[int]] = [[] for _ in range(count)]
    for maker, reader in found["edges"]:
        reads[reader].append(maker)
    names = [f"{kind}{i}" for i, kind in enumerate(found["kind"])]
    ops = [Op(names[i], tuple(reads[i]), (i,), costs["compute_s"][i], costs["compute_j"][i]) for i in range(count)]
    tensors = [
        Tensor(
            f"{names[i]}#0", found["bytes"][i], i, (),
            out_s=costs["out_s"][i], out_j=costs["out_j"][i], in_s=costs["in_s"][i], in_j=costs["in_j"][i],
        )
        for i in range(count)
    ]  # fmt: skip
    return _with_readers(ops, tensors)


def _with_readers(ops: list[Op], tensors: list[Tensor]) -> Problem:
    readers: list[list[int]] = [[] for _ in tensors]
    for number, op in enumerate(ops):
        for t in op.reads:
            readers[t].append(number)
    return Problem(tuple(ops), tuple(replace(t, readers=tuple(r)) for t, r in zip(tensors, readers, strict=True)))


def _shorter(problem: Problem, layers: int) -> Problem:
    """The same BERT with fewer layers: those after the first are taken out, forward and backward."""
    count = len(problem.ops)
    removed = _BLOCK * ((count - 3) // (2 * _BLOCK) - layers)
    dropped = {i for j in range(_BLOCK + 1, _BLOCK + 1 + removed) for i in (j, count - 1 - j)}
    kept = [i for i in range(count) if i not in dropped]
    place = {old: new for new, old in enumerate(kept)}
    ops: list[Op] = []
    tensors: list[Tensor] = []
    for old in kept:
        # What a node reads of a layer that is gone it reads of the layer that took its place.
        step = removed if old > count // 2 else -removed
        reads = [t if t in place else t + (step if t < count // 2 else -step) for t in problem.ops[old].reads]
        name = f"{problem.ops[old].name.rstrip('0123456789')}{place[old]}"
        ops.append(replace(problem.ops[old], name=name, reads=tuple(place[t] for t in reads), makes=(place[old],)))
        tensors.append(replace(problem.tensors[old], name=f"{name}#0", maker=place[old]))
    return _with_readers(ops, tensors)


def keep_all_bytes(problem: Problem) -> int:
    """The peak of computing each op once."""
    return replay(problem, keep_all(problem)).peak_bytes

"""Genes at random, most of which mean something."""

from __future__ import annotations

import random

from mlir_passes.schedule.genes import Hold
from mlir_passes.schedule.problem import Problem


def random_holds(problem: Problem, rng: random.Random) -> tuple[Hold, ...]:
    names = [op.name for op in problem.ops]
    genes: list[Hold] = []
    for tensor in problem.tensors:
        if rng.random() < 0.4:
            continue
        drawn = [sorted(rng.choices(range(len(names)), k=2)) for _ in range(rng.randint(0, 2))]
        pairs = [(max(first, tensor.maker), last) for first, last in drawn]
        stages = tuple((names[first], names[last]) for first, last in pairs if first < last)
        genes.append(Hold(tensor.name, rng.random() < 0.5, stages))
    return tuple(genes)

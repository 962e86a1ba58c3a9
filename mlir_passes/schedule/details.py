"""What a line says of a tensor beyond the stages through which it is held and one way in which it comes back."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import Kind, Step
from mlir_passes.schedule.walk import Detail


def details_of(problem: Problem, steps: Sequence[Step]) -> dict[int, Detail]:
    """For each tensor that needs them: the stages in which it is computed again although it is read in elsewhere, and
    where it leaves memory before the last stage's own op, or before it is read in again in the same stage."""
    last = len(problem.ops) - 1
    run = 0  # ops that have run for the first time: the stage
    touched: dict[int, tuple[int, int]] = {}  # stage and op
    made: dict[int, int] = {}  # the stage in which it was computed again, and not read since
    again: dict[int, set[int]] = {}
    leaves: dict[int, set[tuple[int, int]]] = {}
    read: set[int] = set()
    for step in steps:
        if step.kind == Kind.COMPUTE:
            op = problem.ops[step.index]
            for tensor in op.reads:
                if tensor in made:
                    again.setdefault(tensor, set()).add(made.pop(tensor))
            made |= {tensor: run for tensor in op.makes if tensor in touched}
            touched |= dict.fromkeys((*op.reads, *op.makes), (run, step.index))
            run = max(run, step.index + 1)
        elif step.kind == Kind.FREE:
            made.pop(step.index, None)
            stage, number = touched.get(step.index, (0, 0))
            if number < stage == last:
                leaves.setdefault(step.index, set()).add((stage, number))
        elif step.kind == Kind.IN:
            read.add(step.index)
            if touched.get(step.index, (-1, 0))[0] == run:
                leaves.setdefault(step.index, set()).add(touched[step.index])
    again |= {tensor: {*again.get(tensor, ()), stage} for tensor, stage in made.items()}  # what is final
    return {
        tensor: Detail(frozenset(again.get(tensor, ()) if tensor in read else ()), frozenset(leaves.get(tensor, ())))
        for tensor in sorted(again.keys() | leaves.keys())
        if tensor in leaves or tensor in read
    }

"""A program whose state, batch and metrics have the signature's own element types: the IR knows no signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fitness.errors import FitnessError
from mlir_passes.program import Buffer, Program
from workloads.dtypes import dtype_named
from workloads.workload import ArraySpec, Signature


def typed(program: Program, signature: Signature) -> Program:
    """`program`, the compiled entry of the signature, with uint8 where the IR has i8 and the user uint8."""
    return retyped(program, signature.state, signature.batch, signature.metrics)


def retyped(
    program: Program, state: Sequence[ArraySpec], batch: Sequence[ArraySpec], metrics: Sequence[ArraySpec] = ()
) -> Program:
    """`program` with the types of these leaves; of metrics only where they are given. Raises FitnessError for a type of
    another size than the buffer's."""
    plan = program.plan
    buffers = list(plan.buffers)
    for specs, indices in ((state, plan.state), (batch, plan.batch), (metrics, plan.metrics)):
        if specs and len(specs) != len(indices):
            raise FitnessError(f"the signature has {len(specs)} leaves where the plan has {len(indices)}", "plan")
        for spec, index in zip(specs, indices, strict=False):
            buffers[index] = _as(buffers[index], spec)
    return replace(program, plan=replace(plan, buffers=tuple(buffers)))


def _as(buffer: Buffer, spec: ArraySpec) -> Buffer:
    made = replace(buffer, dtype=spec.dtype)
    if dtype_of(made).itemsize != dtype_of(buffer).itemsize:
        raise FitnessError(f"{spec.name} is {spec.dtype} in the signature and {buffer.dtype} in the plan", "plan")
    return made


def dtype_of(buffer: Buffer) -> np.dtype[Any]:
    try:
        return dtype_named(buffer.dtype)
    except TypeError:
        raise FitnessError(f"buffer {buffer.name}: NumPy has no type {buffer.dtype!r}", "plan") from None

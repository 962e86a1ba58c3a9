"""Which family a phase belongs to, and its schedules: the default first, then what a tuner may try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlir_passes.kernels import contraction, elementwise, reduction, window
from mlir_passes.kernels.machine import Machine
from mlir_passes.kernels.nest import Nest, Phase
from mlir_passes.kernels.schedule import Schedule

Schedules = Callable[[Nest, Phase, Machine], list[Schedule]]
FAMILIES: Mapping[str, Schedules] = {
    "contraction": contraction.schedules,
    "window": window.schedules,
    "reduction": reduction.schedules,
    "elementwise": elementwise.schedules,
}


def family(nest: Nest, phase: Phase) -> str:
    """The name of a phase's family, a key of `FAMILIES`.

    A contraction has an operand that another parallel loop reads again (a matrix product, a convolution); a window
    (depthwise convolution, pooling) reduces a few elements; a reduction reads every element once.
    """
    if not phase.reductions:
        return "elementwise"
    if contraction.reuse_loops(nest, phase):
        return "contraction"
    return "window" if window.is_window(nest, phase) else "reduction"


def defaults(nest: Nest, machine: Machine) -> list[Schedule]:
    """The schedule of each phase that needs no search."""
    return [FAMILIES[family(nest, phase)](nest, phase, machine)[0] for phase in nest.phases]


def candidates(nest: Nest, machine: Machine) -> list[Sequence[Schedule]]:
    """For each phase its schedules, default first."""
    return [FAMILIES[family(nest, phase)](nest, phase, machine) for phase in nest.phases]

"""Energy of a program by an open linear model: no noise, the same figure on every machine."""

from __future__ import annotations

import math
from pathlib import Path

from fitness.costs import modelled_costs
from fitness.profile import Profile
from fitness.result import Measure
from fitness.spmd import pieces, useful
from mlir_passes.program import Program

RAPL = Path("/sys/class/powercap")


def energy(program: Program, profile: Profile, threads: int = 1) -> Measure:
    """Joules of one step: the calls' arithmetic and traffic, transfers to and from the page file, and static power over
    the modelled time of the calls.

    Work takes the same joules on any core. Static power is that of all cores that have a thread of the step, for the
    whole step, also while some wait: at best, threads take as much of it as one does.
    """
    level = profile.level(program.plan.peak_bytes)
    kernels = [program.kernels[call.kernel] for call in program.plan.calls]
    moved = [k.bytes_read + k.bytes_written for k in kernels]
    dynamic = [k.flops * profile.flop.value + b * level.energy.value for k, b in zip(kernels, moved, strict=True)]
    used = useful(program.plan, program.kernels, threads)
    static = profile.static.value * used * modelled_s(program, profile, used)
    paged = _paged(program, profile)
    shared = f", {threads} threads" if threads > 1 else ""  # as asked for: one method for all variants of a run
    return Measure(math.fsum((*dynamic, *paged, static)), f"model:{profile.name}{shared}")


def _paged(program: Program, profile: Profile) -> list[float]:
    """Joules of each transfer."""
    if not program.plan.transfers:
        return []
    costs, buffers = modelled_costs(profile, program.plan.peak_bytes), program.plan.buffers
    moves = {"out": costs.page_out, "in": costs.page_in}
    return [moves[t.kind](buffers[t.buffer].bytes).energy_j for t in program.plan.transfers]


def modelled_s(program: Program, profile: Profile, threads: int = 1) -> float:
    """Seconds of one step by the roofline: each call is bound by arithmetic or by its memory level.

    A call that is split takes its share of slices a thread; all others take their time alone.
    """
    level = profile.level(program.plan.peak_bytes)
    times: list[float] = []
    for call in program.plan.calls:
        k = program.kernels[call.kernel]
        alone = max(k.flops / profile.peak.value, (k.bytes_read + k.bytes_written) / level.bandwidth.value)
        count = pieces(program.plan, call, k, threads)
        times.append(alone * math.ceil(count / threads) / count)
    return math.fsum(times)


def rapl_domains(root: Path = RAPL) -> list[str]:
    """Names of the RAPL domains that can be read here: what `gevo doctor` reports. Never mixed with the model."""
    names: list[str] = []
    for folder in sorted(root.glob("intel-rapl*")):
        try:
            int((folder / "energy_uj").read_text())
            names.append((folder / "name").read_text().strip())
        except (OSError, ValueError):
            continue
    return names

"""What the calls of a program and the transfers of its values cost: `mlir_passes.schedule` weighs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fitness.call_times import call_times
from fitness.cpu import Array
from fitness.device import PageTier
from fitness.errors import FitnessError
from fitness.profile import MODEL, Level, Page, Profile
from mlir_passes.graph import KernelText
from mlir_passes.program import Kernel, Program
from mlir_passes.schedule.from_graph import Cost


@dataclass(frozen=True)
class ModelledCosts:
    """Costs by a profile alone: the terms that `fitness.energy` adds up for a step, call by call."""

    profile: Profile
    level: Level
    page: Page

    @property
    def method(self) -> str:
        return f"{MODEL}{self.profile.name}"

    def call(self, row: int, kernel: KernelText | Kernel) -> Cost:
        """Seconds by the roofline; joules of arithmetic, of traffic, and of standing by meanwhile."""
        moved = kernel.bytes_read + kernel.bytes_written
        time_s = max(kernel.flops / self.profile.peak.value, moved / self.level.bandwidth.value)
        dynamic = kernel.flops * self.profile.flop.value + moved * self.level.energy.value
        return Cost(time_s, dynamic + self.profile.static.value * time_s)

    def page_out(self, bytes_: int) -> Cost:
        time_s = self.page.out_s(bytes_)
        return Cost(time_s, self.page.power.value * time_s)

    def page_in(self, bytes_: int) -> Cost:
        time_s = self.page.in_s(bytes_)
        return Cost(time_s, self.page.power.value * time_s)


@dataclass(frozen=True)
class MeasuredCosts:
    """Seconds as measured on this machine, joules by the model of a device. calls_s: by row of the plan measured."""

    model: ModelledCosts
    calls_s: tuple[float, ...]
    tier: PageTier | Page

    @property
    def method(self) -> str:
        """How joules were got; seconds are measured."""
        return self.model.method

    def call(self, row: int, kernel: KernelText | Kernel) -> Cost:
        return Cost(self.calls_s[row], self.model.call(row, kernel).energy_j)

    def page_out(self, bytes_: int) -> Cost:
        return Cost(self.tier.out_s(bytes_), self.model.page_out(bytes_).energy_j)

    def page_in(self, bytes_: int) -> Cost:
        return Cost(self.tier.in_s(bytes_), self.model.page_in(bytes_).energy_j)


def modelled_costs(profile: Profile, peak_bytes: int = 0) -> ModelledCosts:
    """Costs on a device that is not here; raises FitnessError for a profile without a store to page to.

    peak_bytes: of a plan that keeps everything; it says which level of memory the program lives in. That stays the
    level where a schedule needs less.
    """
    if profile.page is None:
        raise FitnessError("the profile has no [page] part, so nothing can be paged", profile.name, "Complete it")
    return ModelledCosts(profile, profile.level(peak_bytes), profile.page)


def measured_costs(
    program: Program,
    state: Sequence[Array],
    batches: Sequence[Sequence[Array]],
    profile: Profile,
    tier: PageTier | Page,
) -> MeasuredCosts:
    """Costs on this machine of a program whose plan keeps everything: each call is timed within the step."""
    times = call_times(program, state, batches).calls
    return MeasuredCosts(modelled_costs(profile, program.plan.peak_bytes), times, tier)

"""Costs of calls against the energy model of a whole step, and against POET's formulas."""

from __future__ import annotations

import numpy as np
import pytest
from fitness_toys import pull

from fitness.costs import MeasuredCosts, measured_costs, modelled_costs
from fitness.device import PageTier
from fitness.energy import energy, modelled_s
from fitness.errors import FitnessError
from fitness.profile import Constant, Level, Profile, load_profile
from mlir_passes.program import Program

TIER = PageTier("/store", 1, 1e-5, 1e9, 2e-5, 2e9, "by hand")


def kernels(program: Program):
    return [program.kernels[call.kernel] for call in program.plan.calls]


@pytest.mark.parametrize("name", ["host-x86", "m0", "m4f", "a72"])
def test_calls_add_up_to_the_step_of_the_model(name: str):
    program, profile = pull(), load_profile(name)
    costs = modelled_costs(profile, program.plan.peak_bytes)
    calls = [costs.call(row, kernel) for row, kernel in enumerate(kernels(program))]
    assert sum(c.energy_j for c in calls) == pytest.approx(energy(program, profile).value, rel=1e-12)
    assert sum(c.time_s for c in calls) == pytest.approx(modelled_s(program, profile), rel=1e-12)
    assert costs.method == energy(program, profile).method == f"model:{name}"


def test_on_a_board_arithmetic_and_pages_cost_what_poet_says():
    costs = modelled_costs(load_profile("m4f"))
    (residual, *_) = kernels(pull())  # 8 flops
    call = costs.call(0, residual)
    assert call.time_s == pytest.approx(8 / (16283e5 / 255.6237))
    assert call.energy_j == pytest.approx(8 / (16283e5 / (255.6237 * 0.003328 * 3.3)))
    out, back = costs.page_out(1 << 20), costs.page_in(1 << 20)
    assert out.time_s == pytest.approx(0.113e-3 + (1 << 20) / 4440e3)
    assert back.time_s == pytest.approx(0.109e-3 + (1 << 20) / 4616.51e3)
    assert (out.energy_j, back.energy_j) == (pytest.approx(out.time_s * 0.33), pytest.approx(back.time_s * 0.33))


def test_a_program_that_outgrows_a_level_pays_for_the_next():
    profile = load_profile("host-x86")
    (residual, *_) = kernels(pull())
    small, large = (modelled_costs(profile, peak).call(0, residual).energy_j for peak in (1 << 10, 1 << 30))
    assert large > small


def test_measured_costs_have_their_own_seconds_and_the_models_joules():
    model = modelled_costs(load_profile("host-x86"), 224)
    costs = MeasuredCosts(model, (3e-6, 1e-6, 2e-6), TIER)
    for row, kernel in enumerate(kernels(pull())):
        assert costs.call(row, kernel).time_s == (3e-6, 1e-6, 2e-6)[row]
        assert costs.call(row, kernel).energy_j == model.call(row, kernel).energy_j
    assert costs.page_out(10**6).time_s == pytest.approx(1e-5 + 1e-3)
    assert costs.page_in(10**6).time_s == pytest.approx(2e-5 + 0.5e-3)
    assert costs.page_in(10**6).energy_j == model.page_in(10**6).energy_j
    assert costs.method == "model:host-x86"


def test_every_call_of_a_program_is_measured():
    state, batch = [np.ones(8, np.float32)], [[np.zeros(8, np.float32)]]
    costs = measured_costs(pull(), state, batch, load_profile("host-x86"), TIER)
    assert len(costs.calls_s) == 3 and all(time_s >= 0 for time_s in costs.calls_s)
    assert costs.model.level.name == "L1"


def test_a_device_without_a_store_cannot_page():
    one = Constant(1.0, "", "", "")
    profile = Profile("bare", one, one, one, (Level("RAM", Constant(0.0, "", "", ""), one, one),))
    with pytest.raises(FitnessError, match=r"no \[page\] part.*bare"):
        modelled_costs(profile)

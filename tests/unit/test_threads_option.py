"""The number of threads from the command line and `gevo.load` down to the runner, and in the energy model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fitness_toys import pull
from spmd_toys import mill, mill_state

import gevo
from fitness.energy import energy, modelled_s
from fitness.errors import FitnessError
from fitness.job import Context
from fitness.profile import load_profile
from fitness.program import load_program, save_program
from gevo import cli, commands
from gevo.config import CampaignConfig
from gevo.launch import crowded

LEAF = {"name": "w", "shape": [24, 8], "dtype": "float32"}


def test_manifests_from_before_threads_mean_one():
    config = CampaignConfig("digits").to_json()
    context = Context("prepared", "base", "cache").to_json()
    for data in (config, context):
        assert data.pop("threads") == 1
    assert CampaignConfig.from_json(config).threads == 1
    assert Context.from_json(context).threads == 1


def test_the_option_reaches_the_configuration(monkeypatch: pytest.MonkeyPatch):
    seen: list[CampaignConfig] = []
    monkeypatch.setattr(commands, "search", lambda config, *_: seen.append(config) or 0)
    monkeypatch.setattr("gevo.machine.cores", lambda: 9)
    assert cli._exit_code(["search", "digits", "--threads", "4"]) == 0
    assert cli._exit_code(["search", "digits"]) == 0
    assert [(c.threads, c.workers) for c in seen] == [(4, 2), (1, 8)]
    assert CampaignConfig.from_json(json.loads(json.dumps(seen[0].to_json()))) == seen[0]


def test_no_threads_are_refused(capsys: pytest.CaptureFixture[str]):
    assert cli._exit_code(["search", "digits", "--threads", "0"]) == 2
    assert "--threads" in capsys.readouterr().err


def test_more_threads_than_cores_are_warned_of():
    assert crowded(4, 1, 2) == ""
    assert crowded(2, 2, 4) == ""
    assert crowded(2, 2, 3) == "2 workers of 2 threads want 4 cores, there are 3: times will be noisy; use --workers 1"
    assert crowded(1, 4, 2) == "1 worker of 4 threads want 4 cores, there are 2: times will be noisy; use --threads 2"


def test_an_exported_step_runs_with_threads(tmp_path: Path):
    signature = {"state": [LEAF], "batch": []}
    save_program(tmp_path / "step", mill(), {"signature": signature})
    one, two = gevo.load(tmp_path / "step"), gevo.load(tmp_path / "step", threads=2)
    states = [[mill_state()], [mill_state()]]
    for _ in range(5):
        results = [step(state, []) for step, state in zip((one, two), states, strict=True)]
        states = [state for state, _ in results]
        np.testing.assert_array_equal(states[0][0], states[1][0])
        np.testing.assert_array_equal(results[0][1][0], results[1][1][0])
    with pytest.raises(FitnessError, match="expected 1 thread or more, got 0"):
        gevo.load(tmp_path / "step", threads=0)


def test_slices_survive_saving_and_are_one_in_folders_from_before(tmp_path: Path):
    save_program(tmp_path / "step", mill(), {})
    assert load_program(tmp_path / "step").kernels == mill().kernels
    path = tmp_path / "step" / "manifest.json"
    manifest = json.loads(path.read_text())
    for facts in manifest["kernels"].values():
        del facts["shards"], facts["inputs"]
    path.write_text(json.dumps(manifest))
    assert {k.shards for k in load_program(tmp_path / "step").kernels.values()} == {1}


def test_static_energy_is_that_of_all_cores_for_the_time_that_slices_leave():
    profile, program = load_profile("host-x86"), mill()
    alone, shared = energy(program, profile), energy(program, profile, 2)
    assert alone.method == "model:host-x86" and shared.method == "model:host-x86, 2 threads"
    halved = modelled_s(program, profile, 2)
    assert modelled_s(program, profile) / 2 <= halved < modelled_s(program, profile) * 0.51
    assert shared.value - alone.value == pytest.approx(
        profile.static.value * (2 * halved - modelled_s(program, profile)), abs=1e-12
    )


def test_a_step_too_cheap_to_share_costs_what_it_costs_one_thread():
    profile = load_profile("host-x86")
    assert energy(pull(), profile, 2).value == energy(pull(), profile).value
    assert energy(pull(), profile, 2).method == "model:host-x86, 2 threads"

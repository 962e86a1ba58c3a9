"""The energy model against a calculation by hand, and what a profile must say."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fitness_toys import pull

from fitness.energy import energy, modelled_s, rapl_domains
from fitness.errors import FitnessError
from fitness.profile import FOLDER, Constant, Level, Profile, load_profile


def constant(value: float) -> Constant:
    return Constant(value, "", "", "")


SMALL = Level("small", constant(224), constant(2e-12), constant(1e9))
LARGE = Level("large", constant(0), constant(100e-12), constant(1e8))
PROFILE = Profile("toy", constant(1e-12), constant(1e8), constant(0.5), (SMALL, LARGE))


def test_energy_by_hand():
    # calls: residual 8 flops 96 B, loss 16 flops 36 B, update 16 flops 96 B; arena 224 B fits in the small level
    dynamic = 40 * 1e-12 + 228 * 2e-12
    time = 96e-9 + 160e-9 + 160e-9  # memory-bound, compute-bound, compute-bound
    measure = energy(pull(), PROFILE)
    assert modelled_s(pull(), PROFILE) == pytest.approx(time, rel=1e-12)
    assert measure.value == pytest.approx(dynamic + 0.5 * time, rel=1e-12)
    assert (measure.method, measure.spread) == ("model:toy", 0.0)


def test_larger_arena_pays_for_the_larger_level():
    dynamic = 40 * 1e-12 + 228 * 100e-12
    assert energy(pull(peak=225), PROFILE).value == pytest.approx(dynamic + 0.5 * 228 / 1e8, rel=1e-12)


def test_every_call_counts_not_every_kernel():
    toy = pull()
    twice = replace(toy, plan=replace(toy.plan, calls=toy.plan.calls * 2))
    assert energy(twice, PROFILE).value == pytest.approx(2 * energy(toy, PROFILE).value, rel=1e-12)


def test_shipped_profile_is_complete_and_deterministic():
    profile = load_profile("host-x86")
    constants = [profile.flop, profile.peak, profile.static]
    constants += [c for level in profile.levels for c in (level.capacity, level.energy, level.bandwidth)]
    assert all(c.source and c.unit for c in constants)
    energies = [level.energy.value for level in profile.levels]
    assert energies == sorted(energies)
    assert [profile.level(n).name for n in (32768, 32769, 1 << 30)] == ["L1", "L2", "DRAM"]
    assert energy(pull(), profile) == energy(pull(), load_profile("host-x86"))
    assert energy(pull(), profile).method == "model:host-x86"


def test_unknown_profile_lists_the_known_ones():
    with pytest.raises(FitnessError, match=r"unknown profile 'jetson'.*Known: .*host-x86"):
        load_profile("jetson")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unit = "W"', 'unit = "mW"', "static needs value, unit = 'W'"),
        ('source = "Holds whatever', 'origin = "Holds whatever', "capacity needs value.*level DRAM"),
        ("capacity = { value = 0,", "capacity = { value = 5,", "last memory level needs capacity 0"),
    ],
)
def test_incomplete_profile_is_refused(tmp_path: Path, old: str, new: str, message: str):
    path = Path(shutil.copy(FOLDER / "host-x86.toml", tmp_path))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(FitnessError, match=message):
        load_profile("host-x86", tmp_path)


def test_rapl_lists_only_domains_that_can_be_read(tmp_path: Path):
    for name, value in (("intel-rapl:0", "12345\n"), ("intel-rapl:1", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text("package-0\n")
        (tmp_path / name / "energy_uj").write_text(value)
    assert rapl_domains(tmp_path) == ["package-0"]
    assert rapl_domains(tmp_path / "nowhere") == []

"""The shipped device profiles against POET's own figures, and what a profile must say."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest

from fitness.errors import FitnessError
from fitness.profile import FOLDER, Constant, known_profiles, load_profile

COMPLETE = ("a72", "host-x86", "m0", "m4f")


def constants(text: str) -> list[str]:
    return re.findall(r"value = ", text)


@pytest.mark.parametrize("name", COMPLETE)
def test_every_constant_has_a_unit_and_a_source(name: str):
    profile = load_profile(name)
    assert profile.page is not None
    found = [profile.flop, profile.peak, profile.static, *vars(profile.page).values()]
    found += [c for level in profile.levels for c in (level.capacity, level.energy, level.bandwidth)]
    found += [profile.ram] if profile.ram else []
    assert all(isinstance(c, Constant) and c.source and c.unit for c in found)
    assert len(found) == len(constants((FOLDER / f"{name}.toml").read_text()))


def test_all_shipped_profiles_are_known():
    assert known_profiles() == sorted([*COMPLETE, "tx2"])


# flop/s, flop/J and watts of the SD card, as POET's code computes them
@pytest.mark.parametrize(
    ("name", "flop_s", "flop_j", "page_w", "ram"),
    [
        ("m0", 2000 / 0.012, 2000 / (0.012 * 0.020 * 3.3), 0.1 * 3.3, 32 << 10),
        ("m4f", 16283e5 / 255.6237, 16283e5 / (255.6237 * 0.003328 * 3.3), 0.1 * 3.3, 256 << 10),
        ("a72", 2e9, 16283e5 / (13.53 * 0.6 * 5), 0.03 * 5, 4 << 30),
    ],
)
def test_boards_are_as_poet_has_them(name: str, flop_s: float, flop_j: float, page_w: float, ram: int):
    profile = load_profile(name)
    assert profile.page is not None and profile.ram is not None
    assert profile.peak.value == pytest.approx(flop_s, rel=1e-12)
    assert 1 / profile.flop.value == pytest.approx(flop_j, rel=1e-12)
    assert (profile.static.value, profile.page.power.value, profile.ram.value) == (0, pytest.approx(page_w), ram)
    assert math.isinf(profile.level(1 << 40).bandwidth.value) and profile.level(1 << 40).energy.value == 0


def test_a_transfer_takes_its_latency_and_its_bytes():
    page = load_profile("m4f").page
    assert page is not None
    assert page.out_s(444_000) == pytest.approx(0.113e-3 + 0.1)
    assert page.in_s(461_651) == pytest.approx(0.109e-3 + 0.1)


def test_a_profile_with_missing_constants_names_them():
    with pytest.raises(FitnessError, match=r"tx2 is incomplete.*flop \(J/flop\).*peak \(flop/s\).*Measure"):
        load_profile("tx2")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('power = { value = 0.33, unit = "W"', 'power = { value = 0.33, unit = "mW"', "power needs value, unit = 'W'"),
        ("out_latency =", "latency =", "out_latency needs value.*m4f, page"),
        ("value = 262144", "value = -1", "ram is -1.0 B, which no device has"),
        ("value = 6369910.145264308", "value = inf", "peak is inf flop/s, which no device has"),
    ],
)
def test_a_wrong_page_or_ram_is_refused(tmp_path: Path, old: str, new: str, message: str):
    path = Path(shutil.copy(FOLDER / "m4f.toml", tmp_path))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(FitnessError, match=message):
        load_profile("m4f", tmp_path)

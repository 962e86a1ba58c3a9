"""Device profiles: what computing and moving a byte cost, each constant with its unit and its source.

They are models of devices, the same on every machine. What was measured of this one is a `fitness.device.Device`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from fitness.device import Device, device_file, load_device
from fitness.errors import FitnessError
from mlir_passes.llvm import host
from workloads.cache import cache_folder

FOLDER = Path(__file__).parent / "profiles"
HOST = "host-x86"  # the model of what this runs on
MODEL = "model:"  # before the name of a profile where a target is asked for, and in the method of a figure
_KEYS = {"value", "unit", "source", "note"}
_UNITS = {"flop": "J/flop", "peak": "flop/s", "static": "W"}
_LEVEL_UNITS = {"capacity": "B", "energy": "J/B", "bandwidth": "B/s"}
_PAGE_UNITS = {
    "out_latency": "s", "out_bandwidth": "B/s", "in_latency": "s", "in_bandwidth": "B/s", "power": "W",
}  # fmt: skip


@dataclass(frozen=True)
class Constant:
    """A number with where it came from; `note` states what is assumed."""

    value: float
    unit: str
    source: str
    note: str


@dataclass(frozen=True)
class Level:
    """A level of memory: programs whose arena is at most `capacity` bytes live in it (0: no limit)."""

    name: str
    capacity: Constant
    energy: Constant
    bandwidth: Constant


@dataclass(frozen=True)
class Page:
    """The slower store behind memory: a transfer takes its latency and its bytes at a bandwidth, at a power."""

    out_latency: Constant
    out_bandwidth: Constant
    in_latency: Constant
    in_bandwidth: Constant
    power: Constant

    def out_s(self, bytes_: int) -> float:
        """Seconds of writing `bytes_` out."""
        return self.out_latency.value + bytes_ / self.out_bandwidth.value

    def in_s(self, bytes_: int) -> float:
        """Seconds of reading `bytes_` back in."""
        return self.in_latency.value + bytes_ / self.in_bandwidth.value


@dataclass(frozen=True)
class Profile:
    """One device. Levels are ordered from the smallest; the last has no limit. ram: bytes that it has."""

    name: str
    flop: Constant
    peak: Constant
    static: Constant
    levels: tuple[Level, ...]
    page: Page | None = None
    ram: Constant | None = None

    def level(self, peak_bytes: int) -> Level:
        """The first level that an arena of `peak_bytes` fits in."""
        return next(at for at in self.levels if not at.capacity.value or peak_bytes <= at.capacity.value)


def load_profile(name: str, folder: Path = FOLDER) -> Profile:
    """The profile `name`; raises FitnessError that lists the known ones or names the bad or missing constant."""
    path = folder / f"{name}.toml"
    known = known_profiles(folder)
    if name not in known:
        raise FitnessError(f"unknown profile {name!r}", str(folder), f"Known: {', '.join(known)}")
    data = tomllib.loads(path.read_text())
    missing = data.get("missing", {})
    own = {key: _constant(name, key, data.get(key, {}), unit) for key, unit in _UNITS.items() if key not in missing}
    levels = tuple(_level(name, entry) for entry in data.get("level", []))
    page = _page(name, data["page"]) if "page" in data else None
    ram = _constant(name, "ram", data["ram"], "B") if "ram" in data else None
    if missing:
        what = ", ".join(f"{key} ({_UNITS[key]}): {why}" for key, why in missing.items())
        raise FitnessError(f"profile {name} is incomplete, nobody published {what}", str(path), "Measure and add them")
    if not levels or levels[-1].capacity.value:
        raise FitnessError("the last memory level needs capacity 0, for no limit", name)
    return Profile(name=name, levels=levels, page=page, ram=ram, **own)


def known_profiles(folder: Path = FOLDER) -> list[str]:
    """The names of all profiles, incomplete ones too."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def host_profile(cache: Path | None = None) -> Device | None:
    """What `gevo profile` measured of this machine, None if it never ran; raises FitnessError for a damaged file.

    cache: gevo's, by default the user's.
    """
    return load_device(device_file(cache or cache_folder(), host().cpu))


def _page(name: str, entry: Mapping[str, Any]) -> Page:
    where = f"{name}, page"
    return Page(**{key: _constant(where, key, entry.get(key, {}), unit) for key, unit in _PAGE_UNITS.items()})


def _level(name: str, entry: Mapping[str, Any]) -> Level:
    where = f"{name}, level {entry.get('name')}"
    return Level(
        entry["name"], **{key: _constant(where, key, entry.get(key, {}), unit) for key, unit in _LEVEL_UNITS.items()}
    )


def _constant(where: str, key: str, entry: Mapping[str, Any], unit: str) -> Constant:
    if set(entry) != _KEYS or entry["unit"] != unit or not entry["source"]:
        raise FitnessError(f"{key} needs value, unit = {unit!r}, a source and a note", where, "Complete the profile")
    value = float(entry["value"])
    if value < 0 or not (isfinite(value) or unit == "B/s"):
        raise FitnessError(f"{key} is {value} {unit}, which no device has", where, "Correct the profile")
    return Constant(value, entry["unit"], entry["source"], entry["note"])

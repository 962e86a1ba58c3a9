"""The folder of a campaign: the only file that imports pyarrow. `runs/README.md` explains each file and column.

Order of writes in a generation: every record to the log (synced), then all of them to one Parquet file,
then the state, then the log is emptied. Now and then the files of many generations become one. A crash
between any two steps leaves records twice, never not at all, and `records` drops the second. Readers take
no lock: they read the log first and the Parquet files after, again if one was merged away meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fitness.job import OBJECTIVES
from gevo.config import Budget
from gevo.errors import NotFound, RunDamaged
from gevo.files import write_json, write_whole
from gevo.limits import over_text
from gevo.lock import WriterLock, holder
from gevo.log import LogWriter, read_log
from gevo.record import Record, id_number

MERGED = 64  # generations that become one file: opening a file costs more than reading 1000 records of it
FORMAT = 2  # of the folder; raised when an older gevo could not read it

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("genome", pa.string(), nullable=False),
        pa.field("parents", pa.list_(pa.string()), nullable=False),
        pa.field("operator", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("answered_by", pa.string(), nullable=False),
        pa.field("elapsed_s", pa.float64(), nullable=False),
        *(
            pa.field(f"{name}{suffix}", kind)
            for name in OBJECTIVES
            for suffix, kind in (
                ("", pa.int64() if name == "peak_bytes" else pa.float64()),
                ("_method", pa.string()),
                ("_spread", pa.float64()),
            )
        ),
        pa.field("runtime_ratio", pa.float64()),
        pa.field("measured_s", pa.float64()),
        pa.field("stage_s", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("cache_hits", pa.int32(), nullable=False),
        pa.field("cache_misses", pa.int32(), nullable=False),
        pa.field("paged_bytes", pa.int64(), nullable=False),
    ]
)
LATER: dict[str, str | int] = {"operator": "", "paged_bytes": 0}  # columns that later versions added


class Run:
    """What is in a campaign's folder, for readers; nothing here writes, and a search may run meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.state_file = folder / "log.jsonl", folder / "state.json"
        if not (folder / "manifest.json").is_file():
            raise NotFound("no run here: there is no manifest.json", folder, "See `gevo status` for the runs there are")
        self.manifest: dict[str, Any] = _read_json(folder / "manifest.json")
        if self.manifest["format"] > FORMAT:
            raise RunDamaged(
                f"format {self.manifest['format']}; this gevo reads up to {FORMAT}", folder, "Use a newer gevo"
            )

    @property
    def limits(self) -> dict[str, float]:
        """The largest figure of each limited objective; empty in runs of older versions."""
        return self.manifest.get("limits", {})

    def over(self, record: Record) -> str:
        """Which limits of the run a valid record is over, in words; "" if it meets them all."""
        return over_text(record.result, self.limits, self.manifest["floors"])

    def records(self) -> list[Record]:
        """All records, in the order of asking."""
        rows = list(read_log(self.log).rows)
        unique = {row["id"]: row for row in (*rows, *_read_parts(self.folder / "records"))}
        return [Record.from_row(unique[i]) for i in sorted(unique, key=id_number)]

    def record(self, identifier: str) -> Record:
        found = [r for r in self.records() if r.id == identifier or r.key == identifier]
        if not found:
            raise NotFound(f"no record {identifier!r}", self.folder, "See `gevo front` for ids such as r0001")
        return found[0]

    def state(self) -> dict[str, Any] | None:
        """The checkpoint after the last whole generation; None before the first."""
        return _read_json(self.state_file) if self.state_file.is_file() else None

    def spent(self) -> Budget:
        """What all sessions have used so far: seconds of search, records, whole generations."""
        records, state = self.records(), self.state()
        seconds = max((r.elapsed_s for r in records), default=0.0)
        return Budget(seconds, len(records), state["search"]["generation"] if state else 0)

    def writer(self) -> int | None:
        """The process that searches in this run now, or None."""
        return holder(self.folder / "lock")


class RunWriter:
    """The one writer of a run: enter it to take the lock and cut off a torn tail of the log (`torn_bytes`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.torn_bytes = 0
        self._lock = WriterLock(folder / "lock")

    def __enter__(self) -> RunWriter:
        self._lock.__enter__()
        try:
            (self.folder / "records").mkdir(exist_ok=True)
            self._log = LogWriter(self.folder / "log.jsonl")
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        self.torn_bytes = self._log.torn_bytes
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()
        self._lock.__exit__(kind, error, trace)

    def freeze(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest; it never changes after."""
        write_json(self.folder / "manifest.json", {"format": FORMAT, **manifest})

    def append(self, record: Record) -> None:
        """Returns when the record would survive a crash."""
        self._log.append(record.to_row())

    def finish_generation(self, generation: int, records: Sequence[Record], state: Mapping[str, Any]) -> None:
        """Move a whole generation from the log to its Parquet file, with the state after it."""
        folder = self.folder / "records"
        _write_part(folder / f"gen-{generation:05d}.parquet", [r.to_row() for r in records])
        self.checkpoint(state)
        self._log.clear()
        if (generation + 1) % MERGED == 0:
            _merge(folder, generation + 1 - MERGED, generation)

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        write_json(self.folder / "state.json", state)


def _write_part(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    write_whole(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def _merge(folder: Path, first: int, last: int) -> None:
    """Put the files of generations `first` to `last` into one, then remove them."""
    parts = [folder / f"gen-{generation:05d}.parquet" for generation in range(first, last + 1)]
    present = [part for part in parts if part.is_file()]
    merged = folder / f"gen-{first:05d}-{last:05d}.parquet"
    rows = [row for part in present for row in _read_part(part)]
    if merged.is_file():  # a crash came between writing it and removing the last part
        rows = list({row["id"]: row for row in (*_read_part(merged), *rows)}.values())
    _write_part(merged, rows)
    for part in present:
        part.unlink()


def _read_parts(folder: Path) -> list[dict[str, Any]]:
    while True:
        try:
            return [row for part in sorted(folder.glob("gen-*.parquet")) for row in _read_part(part)]
        except FileNotFoundError:
            continue  # merged since the listing; the merged file is there


def _read_part(path: Path) -> list[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as file:
            return _completed(file.read(use_threads=False)).cast(SCHEMA).to_pylist()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunDamaged(f"cannot be read: {error}", path, "Restore the file from a copy") from error


def _completed(table: pa.Table) -> pa.Table:
    """`table` with the columns that later versions added, as they would be where nothing is known."""
    for name, nothing in LATER.items():
        if name not in table.column_names:
            at = SCHEMA.get_field_index(name)
            column = pa.array([nothing] * table.num_rows, SCHEMA.field(at).type)
            table = table.add_column(at, SCHEMA.field(at), column)
    return table


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise RunDamaged(f"is not JSON: {error}", path, "Restore the file from a copy") from error

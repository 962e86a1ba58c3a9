"""A record as a program folder that runs without the search half of gevo."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from fitness.choices import choices_text
from fitness.job import Context
from gevo import confirmed
from gevo.errors import CampaignError
from gevo.files import check_new_folder
from gevo.ir_child import in_child
from gevo.record import Record
from gevo.store import Run
from gevo.tuning_store import TuningStore


def export(run: Run, context: Context, record: Record, to: Path, retuned: bool = False) -> None:
    """Compile the record's variant again and write its program, with where it came from, into `to`. retuned: by what is
    in the database of tuned kernels now, not by what the run began with."""
    if not record.result.ok:
        raise CampaignError(
            f"{record.id} ended as {record.result.outcome} in stage {record.result.stage!r}: nothing to export",
            run.folder,
            "Take a record of `gevo front`",
        )
    check_new_folder(to)
    known = confirmed.load(run.folder)
    row = known.of(record) if known is not None else None
    extra = {
        "run": run.folder.name,
        "record": record.id,
        "workload": run.manifest["config"]["workload"],
        "objectives": {name: asdict(measure) for name, measure in record.result.objectives.items()},
        "runtime_ratio": record.result.runtime_ratio if "runtime_s" in record.result.objectives else None,
        "confirmed": row.to_json() if row is not None else None,
        "base": {name: run.manifest["base"][name] for name in run.manifest["config"]["objectives"]},
        "threads": context.threads,
        "machine": run.manifest["machine"],
        "base_sha256": run.manifest["base_sha256"],
        "key": record.key,
        "genome": record.genome.to_json(),
    }
    with TemporaryDirectory(prefix="gevo-export-") as folder:
        now = Path(folder) / "tuning.json"
        if retuned:
            now.write_text(choices_text(TuningStore().choices()))
        in_child(
            "export",
            prepared=context.prepared,
            base=context.base,
            cache=context.cache,
            genome=record.genome.to_json(),
            extra=extra,
            to=str(to.absolute()),
            tuning=str(now) if retuned else context.tuning,
            threads=context.threads,
        )

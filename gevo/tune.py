"""Tunes the kernels of a step, or of a variant of it, and keeps what is found in the database of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from fitness import tuning
from fitness.errors import FitnessError
from fitness.isolated import isolated
from fitness.job import Context, Limits
from fitness.result import Failure
from fitness.timing import Timed
from gevo.errors import BaseFails, CampaignError
from gevo.genome import IDENTITY, Genome
from gevo.ir_child import in_child
from gevo.record import Record
from gevo.store import Run
from gevo.tuning_store import TuningRow, TuningStore
from gevo.variant import compiled
from mlir_passes.kernels.choice import Choice
from mlir_passes.objects import ObjectCache
from mlir_passes.program import Program
from workloads.cache import cache_folder
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

_BATCHES = 8
_COMPILE = Limits(wall_s=600.0, cpu_s=600.0, memory_bytes=16 << 30)


@dataclass(frozen=True)
class Bench:
    """The step of a workload: its numbered base module, what it starts from, and how to compile it with choices.

    genome: of the variant that is meant.
    """

    workload: str
    prepared: PreparedWorkload
    text: str
    genome: Genome = IDENTITY

    def program(self, choices: Mapping[str, Choice]) -> Program:
        """The step's program; a compiler that dies is an error here, and takes nothing along."""

        def work() -> bool:
            self._compile(choices)
            return True

        found = isolated(work, _COMPILE, "compile")
        if isinstance(found, Failure):
            raise BaseFails(f"the step does not compile: {found.detail}", self.workload, "Fix the step first")
        return self._compile(choices)  # every object comes from the cache now

    def step(self, program: Program) -> tuning.Step:
        seed = self.prepared.signature.quality.seeds[0]
        state, batches = self.prepared.initial_state(seed), self.prepared.batches(seed, _BATCHES)
        return tuning.Step(program, tuple(state), tuple(batches))

    def _compile(self, choices: Mapping[str, Choice]) -> Program:
        objects = ObjectCache(cache_folder() / "objects")
        return compiled(self.text, self.genome, self.prepared.signature, objects, choices)[1]


def open_bench(workload: str) -> Bench:
    """The step as a search starts from it."""
    prepared = prepare(workload)
    with TemporaryDirectory(prefix="gevo-tune-") as folder:
        in_child("make_base", prepared=str(prepared.folder), folder=folder)
        base = (Path(folder) / "base.mlir").read_text()
    return Bench(workload, prepared, base)


def open_variant(run: Run, context: Context, record: Record) -> Bench:
    """The step of a record, with everything kept: its kernels are the same in any schedule, and calls between which
    memory is paged cannot be run one at a time. Raises CampaignError for a record that did not end well."""
    if not record.result.ok:
        raise CampaignError(
            f"{record.id} ended as {record.result.outcome} in stage {record.result.stage!r}: nothing to tune",
            run.folder,
            "Take a record of `gevo front`",
        )
    prepared = PreparedWorkload.load(Path(context.prepared))
    genome = replace(record.genome, schedule=())
    return Bench(run.manifest["config"]["workload"], prepared, Path(context.base).read_text(), genome)


def tune_step(
    bench: Bench,
    found: Sequence[tuning.Target],
    step: tuning.Step,
    store: TuningStore,
    options: tuning.Options,
    again: bool,
    on_try: Callable[[tuning.Try], None],
) -> Iterator[TuningRow]:
    """Tune each target that the store has not, or all of them `again`; each row is in the store when it comes."""
    rows = {} if again else store.rows()
    todo = [target for target in found if not (target.hash in rows and rows[target.hash].finished)]
    known = {name: row.choice for name, row in rows.items()}
    for tuned in tuning.tune(step, todo, options, known, on_try):
        facts = {name: value for name, value in vars(tuned).items() if name != "hash"}
        row = TuningRow(
            kernel=tuned.hash,
            **facts,
            seed=options.seed,
            workload=bench.workload,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        store.put(row)
        yield row


def whole_step(bench: Bench, step: tuning.Step, choices: Mapping[str, Choice]) -> Timed | None:
    """The step with `choices` against the default one, paired; None if there is nothing to compare."""
    tuned = bench.program(choices)
    if tuned.kernels.keys() == step.program.kernels.keys():
        return None
    found = tuning.whole_step(step, tuned)
    if isinstance(found, Failure):
        raise FitnessError(f"the tuned step does not run: {found.outcome}: {found.detail}", bench.workload)
    return found

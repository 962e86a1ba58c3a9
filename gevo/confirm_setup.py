"""What the records of a run are confirmed with: seeds and data that the search did not use, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fitness.job import Context, Timing
from gevo.confirmed import FILE, Confirmation, utc_now
from gevo.errors import RunDamaged
from gevo.machine import machine
from gevo.record import Record
from workloads.workload import PreparedWorkload

SPLIT = "test"
REPETITIONS = 6  # the first number whose least and greatest hold the median at 95 %
WINDOW_S = 0.001  # twice the search's
TIMED_S = 0.3  # of windows in a repetition, as many pairs as fit
LEAST_PAIRS, MOST_PAIRS = 30, 100


@dataclass(frozen=True)
class Setup:
    """What a run's records are confirmed with.

    search_seeds, seeds: of the trainings in the search, and now. rows: of the validation and the test split, 0 where
    the error is no share of rows. timed: also where the search did not measure runtime.
    """

    context: Context
    base: Record
    objectives: tuple[str, ...]
    floors: Mapping[str, float]
    search_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    rows: Mapping[str, int]
    method: str
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    shuffle: int = 0
    workers: int = 1
    timed: bool = True

    @property
    def scored(self) -> bool:
        return "error" in self.objectives

    @property
    def scoring(self) -> Context:
        """What the errors are evaluated with."""
        more, limits = max(1.0, len(self.seeds) / max(1, len(self.search_seeds))), self.context.limits
        limits = replace(limits, wall_s=limits.wall_s * more, cpu_s=limits.cpu_s * more)
        return replace(self.context, objectives=("error",), split=SPLIT, seeds=self.seeds, limits=limits)

    @property
    def timing(self) -> Timing:
        """Of one repetition."""
        pair_s = 2 * self._window_s(self.base)
        pairs = min(MOST_PAIRS, max(LEAST_PAIRS, round(TIMED_S / pair_s)))
        return Timing(rounds=pairs, least=pairs, window_s=WINDOW_S)

    def expected_s(self, record: Record) -> float:
        """Roughly what a record takes, by what its evaluation took, or the base's where another answered for it."""
        pair_s = 2 * self._window_s(record) if self.timed else 0.0
        timing = REPETITIONS * (self._making_s(record) + self.timing.rounds * pair_s) if self.timed else 0.0
        return timing + self.scoring_s(record) / self.workers

    def _window_s(self, record: Record) -> float:
        """Of a timing window; the least where the search did not time the record."""
        found = record.result.objectives.get("runtime_s")
        return max(WINDOW_S, found.value if found else 0.0)

    def scoring_s(self, record: Record) -> float:
        """Roughly what its error takes, of all seeds."""
        if not self.scored:
            return 0.0
        more = len(self.seeds) / max(1, len(self.search_seeds))
        return self._making_s(record) + self._spent(record).get("quality", 0.0) * more

    def _making_s(self, record: Record) -> float:
        return sum(s for name, s in self._spent(record).items() if name not in ("quality", "timing"))

    def _spent(self, record: Record) -> Mapping[str, float]:
        spent = record.result.stage_s
        return spent if spent.get("check") else self.base.result.stage_s


def setup(manifest: Mapping[str, Any], context: Context, base: Record, workers: int = 1, timed: bool = False) -> Setup:
    """What the records of the run with this manifest are confirmed with. timed: even if no objective is the runtime."""
    signature = PreparedWorkload.load(Path(context.prepared)).signature
    rule, config = signature.quality, manifest["config"]
    trains = not signature.is_prediction
    seeds = (_fresh_seeds(Path(context.prepared), rule.seeds) if trains else ()) or rule.seeds
    counted = "error" in config["objectives"] and rule.kind == "accuracy"
    rows = {name: _rows(context, name) if counted else 0 for name in ("validation", SPLIT)}
    told = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    again = "" if set(seeds) - set(rule.seeds) else ", as in the search: the workload has no other initial state"
    method = f"{rule.kind} on {SPLIT}, {f'{rule.steps} steps, {told}{again}' if trains else 'one state'}"
    return Setup(
        context=context,
        base=base,
        objectives=tuple(config["objectives"]),
        floors=manifest["floors"],
        search_seeds=rule.seeds,
        seeds=seeds,
        rows=rows,
        method=method,
        limits=manifest.get("limits", {}),
        shuffle=config["seed"],
        workers=workers,
        timed=timed or "runtime_s" in config["objectives"],
    )


def begin(this: Setup, earlier: Confirmation | None, folder: Path, again: bool = False) -> Confirmation:
    """The confirmation to go on with: `earlier` if its figures compare with new ones; if not, a new one where all is
    to be measured `again`, else raises RunDamaged."""
    methods = {
        **({"runtime_s": _timing_method(this)} if this.timed else {}),
        **({"error": this.method} if this.scored else {}),
    }
    here = machine()
    new = Confirmation(utc_now(), here, SPLIT, this.seeds, methods, rows_scored=this.rows[SPLIT])
    if earlier is None:
        return new
    elsewhere = earlier.machine["cpu"] != here["cpu"] and this.timed
    other_way = earlier.seeds != this.seeds or dict(earlier.methods) != methods
    if again and (elsewhere or other_way):
        return new
    if elsewhere:
        raise RunDamaged(
            f"it was begun on {earlier.machine['cpu']}, this is {here['cpu']}: their times do not compare",
            folder / FILE,
            "Measure all of it here with --again",
        )
    if other_way:
        raise RunDamaged("it was measured in another way than this gevo does", folder / FILE, "Measure with --again")
    return earlier


def _timing_method(this: Setup) -> str:
    return (
        f"median of {REPETITIONS} processes' median ratios to base, {this.timing.rounds} window pairs of "
        f"{WINDOW_S * 1e3:g} ms each, in random order; interval from the least to the greatest"
    )


def _fresh_seeds(prepared: Path, used: Sequence[int]) -> tuple[int, ...]:
    """Seeds that the workload has an initial state for and that the search did not use."""
    known = sorted(int(path.stem.removeprefix("init_")) for path in prepared.glob("init_*.npz"))
    return tuple(seed for seed in known if seed not in used)


def _rows(context: Context, split: str) -> int:
    return len(PreparedWorkload.load(Path(context.prepared)).split(split)[0])

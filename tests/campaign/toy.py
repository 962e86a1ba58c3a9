"""Campaigns over the made-up space: `begin` makes a run's folder, `search` runs it; also a program for kill tests."""

from __future__ import annotations

import sys
from pathlib import Path

from synthetic import FakePool, make_space

from gevo.campaign import Campaign, Ending
from gevo.config import Budget, CampaignConfig, SearchConfig
from gevo.objectives import bounds, floors
from gevo.record import Record, base_record
from gevo.store import Run, RunWriter


def begin(folder: Path, seed: int = 1, population: int = 8) -> None:
    folder.mkdir(parents=True)
    config = CampaignConfig("toy", seed=seed, search=SearchConfig(population=population))
    make_space().save(folder / "space.json")
    base = FakePool().base
    with RunWriter(folder) as writer:
        writer.freeze(
            {
                "config": config.to_json(),
                "base": base_record(base).to_row(),
                "floors": floors(base, config.objectives),
                "bounds": bounds(base, config.objectives),
            }
        )


def search(folder: Path, pool: FakePool, budget: Budget, **campaign: object) -> Ending:
    with RunWriter(folder) as writer:
        return Campaign(Run(folder), writer, pool, **campaign).run(budget)  # type: ignore[arg-type]


def essence(records: list[Record]) -> list[dict[str, object]]:
    """All columns but the wall time, which no two runs share."""
    return [{k: v for k, v in r.to_row().items() if k != "elapsed_s"} for r in records]


if __name__ == "__main__":
    search(Path(sys.argv[1]), FakePool(delay_s=float(sys.argv[3])), Budget(generations=int(sys.argv[2])))

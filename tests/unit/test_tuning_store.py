"""The database of tuned kernels: what goes in comes out, for this device and version only; damage is said."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from gevo import tuning_store
from gevo.errors import RunDamaged
from gevo.tuning_store import TuningRow, TuningStore
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.kernels.schedule import Schedule

TILED = Choice(schedules=(Schedule(1, 8, 2, ((0, 4),), (1, 0)), Schedule()))
ROW = TuningRow(
    kernel="abc",
    choice=TILED,
    family="contraction",
    loops="32x128 sum 784",
    default_s=1e-4,
    ratio=0.9,
    spread=0.01,
    tried=20,
    failed=1,
    note="",
    finished=True,
    seed=0,
    workload="twofc",
    created="2026-01-01T00:00:00+00:00",
)


def test_rows_come_back(tmp_path: Path):
    store = TuningStore(tmp_path / "tuning.parquet")
    assert store.rows() == {} and store.choices() == {}
    rows = [ROW, replace(ROW, kernel="b", choice=BLAS), replace(ROW, kernel="d", choice=DEFAULT, ratio=1.0)]
    for row in rows:
        store.put(row)
    assert TuningStore(store.path).rows() == {row.kernel: row for row in rows}
    assert store.choices() == {"abc": TILED, "b": BLAS}


def test_a_row_takes_the_place_of_the_old_one(tmp_path: Path):
    store = TuningStore(tmp_path / "tuning.parquet")
    store.put(ROW)
    store.put(replace(ROW, ratio=0.8))
    assert [row.ratio for row in store.rows().values()] == [0.8]


@pytest.mark.parametrize("name", ["PIPELINE_VERSION", "device"])
def test_other_devices_and_versions_keep_their_rows_and_see_no_others(tmp_path: Path, monkeypatch, name: str):
    store = TuningStore(tmp_path / "tuning.parquet")
    store.put(ROW)
    other = {"PIPELINE_VERSION": 10_000, "device": lambda: "another"}[name]
    with monkeypatch.context() as patched:
        patched.setattr(tuning_store, name, other)
        elsewhere = TuningStore(store.path)
        assert elsewhere.rows() == {}
        elsewhere.put(replace(ROW, choice=BLAS))
        assert elsewhere.choices() == {"abc": BLAS}
    assert store.choices() == {"abc": TILED}


@pytest.mark.parametrize("damage", [b"", b"PAR1 and then nothing", b"\0" * 100])
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, damage: bytes):
    store = TuningStore(tmp_path / "tuning.parquet")
    store.path.write_bytes(damage)
    for use in (store.rows, lambda: store.put(ROW)):
        with pytest.raises(RunDamaged, match=r"tuning\.parquet: cannot be read") as error:
            use()
        assert "gevo tune" in error.value.todo
    assert store.path.read_bytes() == damage


def _put(path: Path, name: str) -> None:
    TuningStore(path).put(replace(ROW, kernel=name))


def test_two_tuners_at_once_lose_nothing(tmp_path: Path):
    path = tmp_path / "tuning.parquet"
    names = [f"k{i}" for i in range(4)]
    processes = [get_context("spawn").Process(target=_put, args=(path, name)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(TuningStore(path).rows()) == names
    assert {p.name for p in tmp_path.iterdir()} == {"tuning.parquet", "tuning.lock"}

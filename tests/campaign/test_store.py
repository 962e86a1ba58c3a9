import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from synthetic import FakePool
from toy import begin, essence, search

from gevo.config import Budget
from gevo.errors import NotFound, RunDamaged, RunLocked
from gevo.log import LogWriter, read_log
from gevo.record import Record
from gevo.store import Run, RunWriter

ROWS = [{"id": i, "text": "x" * i} for i in range(5)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    writer = LogWriter(tmp_path / "log.jsonl")
    for row in ROWS:
        writer.append(row)
    writer.close()
    return tmp_path / "log.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three whole generations of 8 and 4 records of the next, which are in the log."""
    begin(tmp_path / "run")
    search(tmp_path / "run", FakePool(), Budget(evaluations=28))
    return tmp_path / "run"


def test_log_gives_back_what_was_appended(log: Path) -> None:
    content = read_log(log)
    assert list(content.rows) == ROWS
    assert (content.good_bytes, content.torn_bytes) == (log.stat().st_size, 0)


def test_torn_tail_of_every_length_is_cut_off_and_counted(log: Path) -> None:
    whole = log.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(start + 1, len(whole)):
        log.write_bytes(whole[:end])
        assert list(read_log(log).rows) == ROWS[:4]
        writer = LogWriter(log)
        assert writer.torn_bytes == end - start
        writer.append(ROWS[4])
        writer.close()
        assert log.read_bytes() == whole


def test_last_line_with_a_hole_counts_as_torn(log: Path) -> None:
    whole = bytearray(log.read_bytes())
    whole[-6:-2] = b"\0\0\0\0"
    log.write_bytes(bytes(whole))
    content = read_log(log)
    assert list(content.rows) == ROWS[:4] and content.torn_bytes > 0


@pytest.mark.parametrize("line", [1, 3])
def test_damage_before_a_whole_line_is_an_error_that_names_it(log: Path, line: int) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b'"id"', b'"iD"')
    log.write_bytes(b"".join(lines))
    with pytest.raises(RunDamaged, match=f"line {line} fails its checksum"):
        read_log(log)
    with pytest.raises(RunDamaged):
        LogWriter(log)


def test_rows_survive_the_round_trip(run: Path) -> None:
    records = Run(run).records()
    assert [r.id for r in records] == [f"r{i:04d}" for i in range(1, 29)]
    for record in records:
        again = Record.from_row(json.loads(json.dumps(record.to_row())))
        assert again.to_row() == record.to_row() and again.genome == record.genome
    assert len({r.result.outcome for r in records}) > 1 and {r.result.ok for r in records} == {True, False}
    assert records[0].result.objectives["energy_j"].method == "model:fake"
    assert records[0].result.stage_s == {"verify": 0.001, "train": 0.01}


def test_generations_are_compacted_and_the_rest_stays_in_the_log(run: Path) -> None:
    parts = sorted(p.name for p in (run / "records").iterdir())
    assert parts == ["gen-00000.parquet", "gen-00001.parquet", "gen-00002.parquet"]
    assert len(read_log(run / "log.jsonl").rows) == 4
    state = Run(run).state()
    assert state is not None and state["search"]["generation"] == 3


def test_records_that_a_crash_left_in_log_and_part_count_once(run: Path) -> None:
    records = Run(run).records()
    with RunWriter(run) as writer:
        for record in records[:24]:
            writer.append(record)
    assert essence(Run(run).records()) == essence(records)


def test_old_temporary_files_are_not_read(run: Path) -> None:
    count = len(Run(run).records())
    (run / "records" / ".gen-00009.parquet.new").write_bytes(b"half")
    assert len(Run(run).records()) == count


def test_damaged_part_is_named(run: Path) -> None:
    part = run / "records" / "gen-00001.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(RunDamaged, match=r"gen-00001\.parquet"):
        Run(run).records()


def test_second_writer_is_told_who_holds_the_lock_and_readers_are_not_kept_out(run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gevo.store import RunWriter\n"
        "with RunWriter(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "in\n"
        with pytest.raises(RunLocked, match=f"process {holder.pid} writes to this run"), RunWriter(run):
            pass
        assert Run(run).writer() == holder.pid
        assert len(Run(run).records()) == 28
    finally:
        holder.kill()
        holder.wait()
    assert Run(run).writer() is None
    with RunWriter(run):
        assert (run / "lock").read_text() == f"{os.getpid()}\n"


def test_a_folder_without_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no manifest\.json"):
        Run(tmp_path)


def test_unknown_record_is_named(run: Path) -> None:
    assert Run(run).record("r0003").id == "r0003"
    with pytest.raises(NotFound, match="no record 'r9999'"):
        Run(run).record("r9999")


def test_old_generations_become_one_file_and_a_crash_meanwhile_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("merged", "crashed", "plain"):
        begin(tmp_path / name)
    budget = Budget(generations=7)
    search(tmp_path / "plain", FakePool(), budget)
    monkeypatch.setattr("gevo.store.MERGED", 3)
    search(tmp_path / "merged", FakePool(), budget)
    parts = sorted(p.name for p in (tmp_path / "merged" / "records").iterdir())
    assert parts == ["gen-00000-00002.parquet", "gen-00003-00005.parquet", "gen-00006.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self: (_ for _ in ()).throw(OSError("pulled the plug")))
        with pytest.raises(OSError, match="pulled the plug"):
            search(tmp_path / "crashed", FakePool(), budget)
    search(tmp_path / "crashed", FakePool(), budget)
    plain = essence(Run(tmp_path / "plain").records())
    assert essence(Run(tmp_path / "merged").records()) == essence(Run(tmp_path / "crashed").records()) == plain


def test_how_a_record_was_made_is_kept_and_is_unknown_in_older_runs(run: Path) -> None:
    new = Run(run).records()
    assert new[0].operator == "base"
    for part in (run / "records").glob("*.parquet"):
        pq.write_table(pq.read_table(part).drop_columns(["operator"]), part)
    rows = [{k: v for k, v in row.items() if k != "operator"} for row in read_log(run / "log.jsonl").rows]
    writer = LogWriter(run / "log.jsonl")
    writer.clear()
    for row in rows:
        writer.append(row)
    writer.close()
    old = Run(run).records()
    assert {r.operator for r in old} == {""}
    assert [r.to_row() | {"operator": ""} for r in new] == [r.to_row() for r in old]

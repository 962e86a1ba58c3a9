import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import FakePool, fake_result, make_space

from fitness.errors import FitnessError
from fitness.job import Context
from gevo import cli, launch
from gevo.beginning import load_beginning
from gevo.errors import RunDamaged, Unsupported
from gevo.genome import Genome
from gevo.scheduling import FILE, Schedules
from gevo.store import Run, RunWriter
from mlir_passes.schedule.problem import Op, Problem, Tensor
from workloads.errors import Kind, WorkloadError

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gevo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in an empty folder, with a made-up workload and evaluator behind it."""

    def lay_out(config: Any, folder: Path) -> SimpleNamespace:
        (folder / "base.mlir").write_text("module {}\n")
        make_space().save(folder / "space.json")
        return SimpleNamespace(folder=prepared, signature=signature)

    def lay_out_schedules(config: Any, context: Context, folder: Path) -> Schedules:
        ops = Op("op1", (), (0,), 1.0, 1.0), Op("op2", (0,), (1,), 1.0, 1.0)
        made = Schedules(Problem(ops, (Tensor("op1#0", 8, 0, (1,)), Tensor("op2#0", 8, 1, (), final=True))))
        made.save(folder / FILE)
        return made

    signature = SimpleNamespace(name="digits", storage=("f32", "f16"))
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / "step.mlir").write_text("module {}\n")
    (prepared / "signature.json").write_text('{"name": "digits", "frontend": "jax", "quality": {"kind": "loss"}}')
    context = Context(str(prepared), "base.mlir", "cache")
    pool = SimpleNamespace(Pool=lambda context, workers, base=None: FakePool(workers))
    monkeypatch.setitem(sys.modules, "fitness.pool", pool)
    monkeypatch.setattr("gevo.commands.lay_out", lay_out)
    monkeypatch.setattr("gevo.commands.lay_out_schedules", lay_out_schedules)
    monkeypatch.setattr("gevo.commands.context_for", lambda config, prepared, folder: context)
    for module in ("commands", "inspection"):
        monkeypatch.setattr(f"gevo.{module}.reopened", lambda manifest, folder: context)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path / "cache"))  # the user's has a database of tuned kernels
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture
def night(gevo: Cli) -> Path:
    assert gevo("search", "digits", "--generations", "4", "--population", "8", "--name", "night")[0] == 0
    return Path("runs/night")


def test_variants_are_stored_as_the_workload_permits_and_as_asked(gevo: Cli) -> None:
    search = "search", "digits", "--generations", "2", "--population", "8"
    assert gevo(*search, "--name", "free")[0] == 0
    assert gevo(*search, "--name", "wide", "--storage", "f32")[0] == 0
    found = {n: json.loads(Path(f"runs/{n}/manifest.json").read_text())["config"]["storage"] for n in ("free", "wide")}
    assert found == {"free": ["f32", "f16"], "wide": ["f32"]}
    assert "storage" in gevo("show", "free", "r0002")[1] and "f16 between kernels" in gevo("show", "free", "r0002")[1]
    assert '"storage"' not in Path("runs/wide/log.jsonl").read_text()


def test_a_storage_that_the_workload_does_not_permit_is_refused_with_its_rule(gevo: Cli) -> None:
    code, _, err = gevo("search", "digits", "--storage", "bf16", "--name", "night", "--evaluations", "5")
    assert code == 2 and "the numerics rule of digits permits f32, f16 between kernels, not bf16" in err
    assert 'Workload(..., storage=("f32", "bf16"))' in err and not Path("runs/night").exists()
    code, _, err = gevo("search", "digits", "--storage", "f8", "--name", "night", "--evaluations", "5")
    assert code == 2 and "unknown storage 'f8'; known: f32, f16, bf16" in err


def test_search_writes_a_run_and_prints_its_front(gevo: Cli) -> None:
    code, out, _ = gevo(
        "search", "digits", "--evaluations", "20", "--population", "8", "--name", "night", "--seed", "3"
    )
    assert code == 0
    assert "20 evaluated" in out and "Stopped: the budget is spent." in out
    assert "r0001 base" in out and "energy_j: model:fake" in out
    manifest = json.loads(Path("runs/night/manifest.json").read_text())
    assert manifest["config"]["seed"] == 3 and manifest["config"]["budget"]["evaluations"] == 20
    assert {"versions", "machine", "floors", "bounds", "base", "step_sha256"} <= set(manifest)
    assert sorted(p.name for p in Path("runs/night").iterdir()) == [
        "base.mlir", "confirmed.json", "lock", "log.jsonl", "manifest.json", "records", "schedules.json", "space.json",
        "state.json",
    ]  # fmt: skip


def test_a_search_begins_with_the_front_of_another_and_leaves_it_alone(gevo: Cli, night: Path) -> None:
    before = {path: path.read_bytes() for path in night.rglob("*") if path.is_file()}
    code, out, _ = gevo(
        "search", "digits", "--from", "night", "--generations", "1", "--population", "8", "--storage", "f32",
        "--objectives", "energy_j,error", "--no-confirm", "--name", "day",
    )  # fmt: skip
    front = {
        Genome.from_json(row["genome"]).edits
        for row in json.loads(gevo("front", "night", "--json", "--all")[1])["records"]
    }
    records = Run(Path("runs/day")).records()
    begun = [r.genome for r in records if r.operator == "seed:front"]
    given = load_beginning(Path("runs/day"))
    assert code == 0 and f"Beginning with {len(given)} variants of runs/night" in out
    assert begun and set(begun) <= set(given) <= {r.genome for r in records}  # some are its own single edits, too
    assert all(g.storage == "f32" and not g.schedule and g.edits in front for g in given)
    assert {path: path.read_bytes() for path in night.rglob("*") if path.is_file()} == before
    (Path("runs/day") / "beginning.json").write_text("[]")
    with pytest.raises(RunDamaged, match=r"beginning\.json is missing or was changed"):
        launch.reopened(Run(Path("runs/day")).manifest, Path("runs/day"))


def test_a_search_begins_with_no_run_of_another_step(gevo: Cli, night: Path) -> None:
    manifest = json.loads((night / "manifest.json").read_text())
    (night / "manifest.json").write_text(json.dumps({**manifest, "base_sha256": "0"}))
    code, _, err = gevo("search", "digits", "--from", "night", "--name", "day")
    assert code == 2 and "that run evolved another step, of digits" in err and not Path("runs/day").exists()
    code, _, err = gevo("search", "digits", "--from", "evening", "--name", "day")
    assert code == 10 and "unknown run 'evening'; runs there: night" in err


def test_resume_uses_up_the_budget_or_adds_to_it(gevo: Cli, night: Path) -> None:
    assert "The budget of this run is spent (4 generations)" in gevo("resume", "night")[1]
    code, out, _ = gevo("resume", "night", "--evaluations", "5")
    assert code == 0 and "37 evaluations" in out.replace("until 37 evaluations", "37 evaluations")
    assert "37 evaluations" in gevo("status", "night")[1]


def test_resume_says_what_it_cut_off(gevo: Cli, night: Path) -> None:
    (night / "log.jsonl").write_bytes(b"1234 56")
    code, out, _ = gevo("resume", "night", "--generations", "1")
    assert code == 0 and "Cut a torn record of 7 bytes off the log" in out


def test_status_lists_runs_and_shows_one(gevo: Cli, night: Path) -> None:
    assert "night" in gevo("status")[1]
    _, out, _ = gevo("status", "runs/night")
    assert "not running" in out and "32 evaluations, 4 generations" in out
    assert "best runtime_s" in out and " ok, " in out
    assert re.search(r"confirmed +\d+ holds", out)


def test_front_as_table_json_and_picture(gevo: Cli, night: Path) -> None:
    code, out, _ = gevo("front", "night")
    assert code == 0 and "r0001 base" in out and "1.000x" in out
    data = json.loads(gevo("front", "night", "--json")[1])
    base = next(r for r in data["records"] if r["base"])
    assert base["id"] == "r0001" and base["objectives"]["runtime_s"]["ratio"] == 1.0
    assert data["methods"]["energy_j"] == "model:fake"
    assert len(data["records"]) > 1
    pytest.importorskip("matplotlib")
    assert gevo("front", "night", "--plot", "front.png")[0] == 0
    assert Path("front.png").read_bytes()[:4] == b"\x89PNG"


def confirm_as(monkeypatch: pytest.MonkeyPatch, ratio: Callable[[Any], float]) -> None:
    """Have variants take `ratio(result)` of the base's time when they are timed again."""

    def pool(context: Context, workers: int, base: Any = None) -> FakePool:
        again = context.objectives == ("runtime_s",)
        return FakePool(workers, answer=lambda g: timed_again(fake_result(g)) if again else fake_result(g))

    def timed_again(result: Any) -> Any:
        return replace(result, runtime_ratio=ratio(result)) if result.ok else result

    monkeypatch.setattr(sys.modules["fitness.pool"], "Pool", pool)


def test_search_confirms_its_front_unless_told_not_to(gevo: Cli) -> None:
    short = "search", "digits", "--generations", "2", "--population", "8"
    _, out, _ = gevo(*short, "--name", "night")
    assert "Confirming" in out and "timed again in 6 processes each" in out and "Ctrl-C stops it" in out
    assert "which the search never saw" in out and "Not confirmed" not in out
    _, out, _ = gevo(*short, "--name", "day", "--no-confirm")
    assert "Confirming" not in out and not Path("runs/day/confirmed.json").exists()
    assert "Not confirmed: measured by the search alone" in out and "gevo confirm day" in out
    assert "Not confirmed" not in gevo("confirm", "day")[1] and Path("runs/day/confirmed.json").exists()
    assert "All of it is confirmed already" in gevo("confirm", "day")[1]
    assert "Confirming" in gevo("confirm", "day", "--again")[1]


def test_what_is_not_there_when_timed_again_leaves_the_front(gevo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm_as(monkeypatch, lambda result: 1.001)
    search = "search", "digits", "--generations", "4", "--population", "8", "--objectives", "runtime_s,error"
    _, out, _ = gevo(*search, "--name", "night")
    assert "Left the front" in out and "lucky: no faster when timed again" in out
    told = json.loads(gevo("front", "night", "--json")[1])
    left = {r["id"]: r["confirmed"] for r in told["left"]}
    assert left and all(row["verdict"] == "lucky" and row["ratio"]["value"] == 1.001 for row in left.values())
    assert not left.keys() & {r["id"] for r in told["records"]}
    assert told["confirmation"]["split"] == "test" and "runtime_s" in told["confirmation"]["methods"]
    everything = json.loads(gevo("front", "night", "--all", "--json")[1])
    assert left.keys() & {r["id"] for r in everything["records"]} and not everything["left"]
    first = next(iter(left))
    assert "Measured again: lucky" in gevo("show", "night", first)[1]
    assert gevo("show", "night", "fastest")[1].split()[1].rstrip(",") not in left


def test_what_holds_is_shown_with_its_interval_and_drawn(gevo: Cli, night: Path) -> None:
    told = json.loads(gevo("front", "night", "--json")[1])
    row = next(r for r in told["records"] if r["confirmed"] and not r["base"])
    ratio = row["confirmed"]["ratio"]
    assert ratio["low"] <= ratio["value"] <= ratio["high"] and ratio["level"] > 0.95
    _, out, _ = gevo("front", "night")
    assert (
        f"{ratio['value']:.3f}x ({ratio['low']:.3f}-{ratio['high']:.3f})" in out and "timed again: median of 6" in out
    )
    pytest.importorskip("matplotlib")
    assert gevo("front", "night", "--plot", "front.svg")[0] == 0
    assert "confirmed" in Path("front.svg").read_text()


def test_interrupted_confirming_keeps_what_is_done(gevo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(result: Any) -> float:
        raise KeyboardInterrupt

    confirm_as(monkeypatch, stop)
    code, out, _ = gevo("search", "digits", "--generations", "2", "--population", "8", "--name", "night")
    assert code == 130 and "Front of night" in out and "are not confirmed yet: gevo confirm night" in out
    assert any(r["errors"] for r in json.loads(Path("runs/night/confirmed.json").read_text())["records"])
    confirm_as(monkeypatch, lambda result: result.runtime_ratio)
    code, out, _ = gevo("confirm", "night")
    assert code == 0 and "not confirmed yet" not in out


def test_show_prints_a_record_and_its_rerun(gevo: Cli, night: Path) -> None:
    code, out, _ = gevo("show", "night", "r0001", "--rerun")
    assert code == 0 and "outcome" in out and "now" in out and "1.000x" in out
    best = json.loads(gevo("front", "night", "--json")[1])["records"][0]["id"]
    assert "edit 1" in gevo("show", "night", best)[1]


def unknown_workload(gevo: Cli) -> tuple[str, ...]:
    return ("search", "digit")


def bad_duration(gevo: Cli) -> tuple[str, ...]:
    return ("search", "digits", "--for", "soon")


def bad_size(gevo: Cli) -> tuple[str, ...]:
    return ("search", "digits", "--memory-budget", "4 apples")


def bad_objective(gevo: Cli) -> tuple[str, ...]:
    return ("search", "digits", "--objectives", "runtime_s,beauty")


def bad_target(gevo: Cli) -> tuple[str, ...]:
    return ("search", "digits", "--target", "abacus")


def unknown_run(gevo: Cli) -> tuple[str, ...]:
    return ("front", "day")


def unknown_record(gevo: Cli) -> tuple[str, ...]:
    return ("show", "night", "r9999")


def existing_run(gevo: Cli) -> tuple[str, ...]:
    return ("search", "digits", "--name", "night")


def unwritable_folder(gevo: Cli) -> tuple[str, ...]:
    Path("file").write_text("")
    return ("search", "digits", "--run-dir", "file")


def torn_in_the_middle(gevo: Cli) -> tuple[str, ...]:
    gevo("resume", "night", "--evaluations", "4")
    log = Path("runs/night/log.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"generation"', b'"Generation"', 1))
    return ("resume", "night", "--evaluations", "4")


def failed_record(gevo: Cli) -> tuple[str, ...]:
    from gevo.store import Run

    failed = next(r for r in Run(Path("runs/night")).records() if not r.result.ok)
    return ("export", "night", failed.id, "--to", "out")


def confirmed_base(gevo: Cli) -> tuple[str, ...]:
    return ("confirm", "night", "r0001")


def confirmed_failure(gevo: Cli) -> tuple[str, ...]:
    return ("confirm", *failed_record(gevo)[1:3])


def full_folder(gevo: Cli) -> tuple[str, ...]:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("")
    return ("export", "night", "r0001", "--to", "out")


@pytest.mark.parametrize(
    ("prepare", "code", "text"),
    [
        (unknown_workload, 3, "'digit': unknown workload"),
        (bad_duration, 2, "--for: expected a duration such as 90s"),
        (bad_size, 2, "--memory-budget: expected a size such as 4MiB"),
        (bad_objective, 2, "unknown objective 'beauty'; known: runtime_s"),
        (bad_target, 2, "unknown target 'abacus'; known: cpu"),
        (unknown_run, 10, "unknown run 'day'; runs there: night"),
        (unknown_record, 10, "no record 'r9999'"),
        (existing_run, 12, "a run of this name exists"),
        (unwritable_folder, 5, "cannot be made: Not a directory"),
        (torn_in_the_middle, 7, "line 1 fails its checksum"),
        (failed_record, 2, "nothing to export"),
        (confirmed_base, 2, "r0001 is the base, which others are compared with"),
        (confirmed_failure, 2, "nothing to confirm"),
        (full_folder, 5, "the folder is not empty"),
    ],
)
def test_wrong_usage_is_one_message_and_a_code(
    gevo: Cli, night: Path, prepare: Callable[[Cli], tuple[str, ...]], code: int, text: str
) -> None:
    got, _, message = gevo(*prepare(gevo))
    assert got == code and text in message
    assert message.startswith("gevo: ") and len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WorkloadError("scikit-learn is not installed", "digits", "Run pip", Kind.PACKAGE), 9),
        (WorkloadError("Fashion-MNIST is not on this machine", "fashion_mnist", "Run `make data`", Kind.DATA), 8),
        (WorkloadError("cannot write the cache: No space left", "cache", "Set GEVO_CACHE", Kind.CACHE), 5),
        (OSError(28, "No space left on device"), 5),
        (WorkloadError("the frontend's process died", "x.py", "See it"), 3),
        (WorkloadError("unsupported op stablehlo.sort", "x.py:8", "Write it without", Kind.OP), 4),
        (Unsupported("op17 is stablehlo.custom_call"), 4),
        (FitnessError("the base does not run"), 11),
        (PermissionError(13, "Permission denied", "runs"), 5),
        (KeyboardInterrupt(), 130),
        (RuntimeError("oops"), 1),
    ],
)
def test_failure_before_the_search_leaves_no_folder(
    gevo: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("gevo.commands.lay_out", fail)
    got, _, message = gevo("search", "digits", "--name", "night")
    assert got == code and len(message.splitlines()) == (0 if code == 130 else 1)
    assert not Path("runs/night").exists()


def test_debug_shows_the_traceback(gevo: Cli) -> None:
    with pytest.raises(Exception, match="unknown run 'day'"):
        cli.main(["--debug", "front", "day"])


def test_locked_run_names_the_writer(gevo: Cli, night: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gevo.store import RunWriter\n"
        "with RunWriter(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, night.absolute()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(launch.__file__).parent.parent,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "in\n"
        got, _, message = gevo("confirm", "night")
        assert got == 6 and f"process {holder.pid} still writes to this run" in message
        got, _, message = gevo("resume", "night", "--for", "1s")
        assert got == 6 and f"process {holder.pid} writes to this run" in message
        assert f"running, process {holder.pid}" in gevo("status", "night")[1]
    finally:
        holder.kill()
        holder.wait()


def test_ctrl_c_stops_with_130_and_says_how_to_go_on(gevo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(FakePool):
        def evaluate(self, *arguments: Any) -> Any:
            super().evaluate(*arguments)
            raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["fitness.pool"], "Pool", lambda context, workers, base=None: Interrupted(workers))
    code, out, _ = gevo("search", "digits", "--population", "8", "--name", "night")
    assert code == 130 and "Go on with: gevo resume night" in out


def test_missing_plot_package_is_said(gevo: Cli, night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, message = gevo("front", "night", "--plot", "front.png")
    assert code == 9 and "pip install 'gevo[report]'" in message


def test_mixed_energy_methods_are_refused(gevo: Cli, night: Path) -> None:
    from fitness.result import Measure
    from gevo.store import Run

    record = Run(night).records()[0]
    objectives = {**record.result.objectives, "energy_j": Measure(1.0, "rapl")}
    with RunWriter(night) as writer:
        writer.append(replace(record, id="r0999", result=replace(record.result, objectives=objectives)))
    code, _, message = gevo("front", "night")
    assert code == 7 and "model:fake (r0001), rapl (r0999)" in message


def test_a_changed_base_is_refused(night: Path) -> None:
    manifest = json.loads((night / "manifest.json").read_text())
    (night / "base.mlir").write_text("module { }\n")
    with pytest.raises(Exception, match=r"base\.mlir is missing or was changed"):
        launch.reopened(manifest, night)


def test_doctor_and_workloads_answer(gevo: Cli) -> None:
    code, out, _ = gevo("doctor")
    assert code in (0, 1) and "libLLVM" in out and "run folder" in out
    assert "twofc" in gevo("workloads")[1]


@pytest.mark.parametrize(
    "command",
    [
        "search",
        "kernels",
        "tune",
        "resume",
        "status",
        "front",
        "confirm",
        "show",
        "explain",
        "export",
        "workloads",
        "doctor",
    ],
)
def test_every_command_teaches_by_an_example(gevo: Cli, command: str) -> None:
    code, out, _ = gevo(command, "--help")
    assert code == 0 and f"Example:\n    gevo {command}" in out


def test_help_takes_under_three_tenths_of_a_second() -> None:
    """Of the processor's time: what a user waits on an idle machine, whatever else runs on this one.

    A processor that is shared or slow gets more, as an empty interpreter needs more than its 20 ms there.
    """
    root = Path(launch.__file__).parent.parent

    def cpu_s(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=root)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    pairs = [(cpu_s("-m", "gevo", "--help"), cpu_s("-S", "-c", "pass")) for _ in range(5)]
    helping, empty = (min(times) for times in zip(*pairs, strict=True))
    assert helping < 0.3 * max(1.0, empty / 0.02), (helping, empty)


def test_help_imports_nothing_heavy() -> None:
    root = Path(launch.__file__).parent.parent
    code = "import sys, gevo.cli; print(sorted(set(sys.modules) & {'numpy', 'pyarrow', 'deap', 'rich', 'mlir', 'jax'}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    assert done.stdout == "[]\n"


def test_record_rows_have_the_documented_columns(night: Path) -> None:
    import pyarrow.parquet as pq

    from gevo.store import SCHEMA

    assert pq.read_schema(night / "records" / "gen-00000.parquet").equals(SCHEMA)
    text = (Path(launch.__file__).parent.parent / "runs" / "README.md").read_text()
    documented = text.replace("<objective>", "runtime_s")
    for column in SCHEMA.names:
        base = (
            column.replace("peak_bytes_", "runtime_s_")
            .replace("energy_j_", "runtime_s_")
            .replace("error_", "runtime_s_")
        )
        assert f"`{base}`" in documented, column

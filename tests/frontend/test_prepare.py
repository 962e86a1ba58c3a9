"""`prepare` traces in a process of its own, caches by what it read, and fails with one clear message."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from workloads import PreparedWorkload, WorkloadError, prepare
from workloads.cache import cache_folder
from workloads.catalog import NAMED
from workloads.data import fashion_mnist_folder, fetch
from workloads.frontends.base import frontend
from workloads.frontends.user_code import load_workload

ROOT = Path(__file__).parents[2]
MODEL = """
    import jax, jax.numpy as jnp, numpy as np
    from workloads import Quality, Workload
    from neighbour import SCALE

    def init(seed):
        return {"w": np.full((3, 2), seed, np.float32), "key": np.array([0, seed], np.uint32)}

    def predict(state, x):
        return x @ state["w"]

    def step(state, batch):
        x, y = batch
        loss = lambda w: jnp.mean((x @ w - jax.nn.one_hot(y, 2)) ** 2)
        value, grad = jax.value_and_grad(loss)(state["w"])
        return {"w": state["w"] - SCALE * grad, "key": state["key"] + 1}, {"loss": value}

    def data():
        x = np.load("DATA")
        y = np.arange(len(x)) % 2
        return {name: (x, y) for name in ("train", "validation", "test")}

    workload = Workload(init=init, step=step, data=data, predict=predict,
                        batch_size=4, eval_batch=6, quality=Quality(seeds=(0, 7)))
"""


def write_model(folder: Path, *changes: tuple[str, str]) -> str:
    np.save(folder / "x.npy", np.arange(18, dtype=np.float32).reshape(6, 3))
    (folder / "neighbour.py").write_text("SCALE = 0.5\n")
    text = textwrap.dedent(MODEL).replace("DATA", str(folder / "x.npy"))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "model.py").write_text(text)
    return f"{folder / 'model.py'}:workload"


def fails(spec: str, cache: Path) -> WorkloadError:
    with pytest.raises(WorkloadError) as raised:
        prepare(spec, cache)
    assert not list((cache / "workloads").glob(".new-*"))
    return raised.value


def test_a_users_model_is_prepared_once_and_again_when_anything_it_read_changes(tmp_path):
    spec, cache = write_model(tmp_path), tmp_path / "cache"
    first = prepare(spec, cache)
    assert [s.name for s in first.signature.state] == ["key", "w"]
    assert [s.dtype for s in first.signature.state] == ["uint32", "float32"]
    assert [(s.name, s.shape) for s in first.signature.batch] == [("x", (4, 3)), ("y", (4,))]
    assert [(s.name, s.shape) for s in first.signature.predict_inputs] == [("x", (6, 3))]
    assert [s.name for s in first.signature.metrics] == ["loss"]
    assert "func.func public @step(" in first.step_text
    assert first.predict_text is not None and "func.func public @predict(" in first.predict_text
    assert not any(mark in first.step_text for mark in ("jax.", "mhlo.", "tf."))
    assert first.initial_state(7)[0].tolist() == [0, 7] and first.initial_state(4)[1][0, 0] == 4
    x, y = first.split("validation")
    assert x.shape == (6, 3) and y.dtype == np.int64

    assert prepare(spec, cache) == first
    (tmp_path / "neighbour.py").write_text("SCALE = 0.25\n")
    second = prepare(spec, cache)
    assert second.folder != first.folder and second.step_text != first.step_text
    np.save(tmp_path / "x.npy", np.zeros((6, 3), np.float32))
    third = prepare(spec, cache)
    assert third.folder not in (first.folder, second.folder)
    (tmp_path / "x.npy").unlink()
    assert prepare(spec, cache) == third, "the arrays are in the cache"


def test_the_caller_never_imports_jax_and_two_processes_may_prepare_at_once(tmp_path):
    spec = write_model(tmp_path)
    script = "import sys; from workloads import prepare; print(prepare(sys.argv[1]).folder, 'jax' in sys.modules)"
    environment = os.environ | {"GEVO_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def run(_: int) -> str:
        return subprocess.check_output([sys.executable, "-c", script, spec], text=True, env=environment)

    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(run, range(2))
    folder, jax_imported = one.split()
    assert one == two and jax_imported == "False"
    assert PreparedWorkload.load(Path(folder)).signature.name == "model"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (('"w": state["w"] - SCALE * grad', '"w": state["w"].sum(0)'), "state leaf w from float32[3, 2] to float32[2]"),
        (('"key": state["key"] + 1', '"k": 0'), "lost ['key'], added ['k']"),
        (("x @ w - ", "jnp.linalg.eigvalsh(w.T @ w) - "), "unsupported op stablehlo.custom_call"),
        (
            ("x = np.load", "raise ValueError('no such luck')\n    x = np.load"),
            "ValueError while calling data(): no such luck",
        ),
        (("def data():", "def data(:"), "SyntaxError"),
        (("Workload(init", "dict(a=1) or Workload(init"), "is a dict, not a Workload"),
        (("batch_size=4", "batch_size=40"), "'train' has 6 rows, fewer than batch_size=40"),
        (("return x @ state", "return (x @ state"), "SyntaxError"),
        (("return x @ state", "return 1 + 0 * x @ state[0]; x @ state"), "KeyError while tracing predict"),
        (("Quality(seeds", "Quality(kind='luck', seeds"), "unknown quality kind 'luck'"),
        (("eval_batch=6,", "frontend='tea', eval_batch=6,"), "unknown frontend 'tea'"),
        (("eval_batch=6,", "storage=('f8',), eval_batch=6,"), "storage is ('f8',), expected a tuple of f32, f16, bf16"),
    ],
)
def test_what_is_wrong_in_a_users_model_is_one_clear_message(tmp_path, change, what):
    write_model(tmp_path, change)
    path = tmp_path / "model.py"
    with pytest.raises(WorkloadError) as raised:  # in this process: a new one for each case would take seconds
        workload = load_workload(path, "workload")
        frontend(workload.frontend, str(path))("model", workload, path)
    assert what in raised.value.what and raised.value.where.startswith(str(path)) and raised.value.todo


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("import jax,", "import absent_library, jax,"), "absent_library is not installed"),
        (("import jax,", "import os; os.abort(); import jax,"), "died with signal 6"),
        (("x @ w - ", "jnp.linalg.eigvalsh(w.T @ w) - "), "unsupported op stablehlo.custom_call"),
    ],
)
def test_what_ends_the_frontends_process_is_one_clear_message_too(tmp_path, change, what):
    error = fails(write_model(tmp_path, change), tmp_path / "cache")
    assert what in error.what and "model.py" in error.where and error.todo


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        ('{"loss": value, "spectrum": jnp.linalg.svd(state["w"])[1].max()}', " 'spectrum'"),
        ('{"loss": value, "a": jnp.linalg.eigvalsh(x @ x.T), "b": jnp.linalg.svd(x)[1]}', "s 'a' and 'b'"),
    ],
)
def test_a_metric_that_alone_needs_an_unsupported_op_is_named(tmp_path, change, metric):
    write_model(tmp_path, ('{"loss": value}', change))
    path = tmp_path / "model.py"
    with pytest.raises(WorkloadError) as raised:
        workload = load_workload(path, "workload")
        frontend(workload.frontend, str(path))("model", workload, path)
    assert "unsupported op" in raised.value.what
    assert raised.value.todo == f"Leave the metric{metric} out of the step: nothing else depends on it"


def test_an_exception_is_told_with_its_line(tmp_path):
    spec = write_model(tmp_path, ("value, grad =", "value, grad = 1 / 0,"))
    lines = (tmp_path / "model.py").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "1 / 0" in text)
    assert fails(spec, tmp_path / "cache").where == f"{tmp_path / 'model.py'}:{line}"


def test_an_object_that_is_not_there_is_told_with_those_that_are(tmp_path):
    spec = write_model(tmp_path).replace(":workload", ":work")
    error = fails(spec, tmp_path / "cache")
    assert "no object 'work'" in error.what and "There is: workload" in error.todo


@pytest.mark.parametrize(
    ("spec", "what", "todo"),
    [
        ("twofx", "the shipped ones are digits, twofc, mlp, lenet", "Did you mean twofc?"),
        ("nothing/here.py:workload", "no such file", "path/to/file.py:object"),
        ("nothing/here.mlir", "no such file", "path/to/file.mlir"),
        (f"{ROOT}/examples/my_model.py", "which object", "my_model.py:workload"),
    ],
)
def test_a_spec_that_names_nothing_says_what_would(tmp_path, spec, what, todo):
    error = fails(spec, tmp_path)
    assert what in error.what and todo in error.todo


def test_a_missing_extra_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
    assert "pip install 'gevo[jax]'" in fails(write_model(tmp_path), tmp_path / "cache").todo


def test_a_cache_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    assert "GEVO_CACHE" in fails(write_model(tmp_path), tmp_path / "file").todo


def test_missing_fashion_mnist_names_the_four_files(tmp_path, monkeypatch):
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path))
    monkeypatch.delenv("GEVO_DATA", raising=False)
    monkeypatch.setattr("workloads.data.SYSTEM_FOLDER", tmp_path / "none")
    with pytest.raises(WorkloadError, match=r"make data.*GEVO_DATA.*train-images-idx3-ubyte.gz.*t10k-labels"):
        fashion_mnist_folder()


def test_fetching_without_apt_says_what_to_do_by_hand(tmp_path, monkeypatch):
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path))
    monkeypatch.delenv("GEVO_DATA", raising=False)
    monkeypatch.setattr("workloads.data.SYSTEM_FOLDER", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkloadError, match="set GEVO_DATA to a folder that holds train-images"):
        fetch()


def test_the_cache_folder_is_read_from_the_environment_at_each_call(tmp_path, monkeypatch):
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("GEVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "gevo"


def test_every_shipped_name_points_at_a_file():
    from workloads.catalog import ABOUT, resolve

    assert set(ABOUT) == set(NAMED)
    assert all(resolve(name).path.is_file() for name in NAMED)

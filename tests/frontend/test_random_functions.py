"""Random functions through the emitter give jax.jit's results; and the tools that say so find what is wrong."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from in_children import Died, results  # noqa: E402
from judge import Verdict, compared  # noqa: E402
from random_ops import draw  # noqa: E402
from random_programs import Argument, Line, Program, Value  # noqa: E402
from shrink import by_jax, shrunk  # noqa: E402

COUNT = 100
X, Y = Value("v0", (3,), "f32"), Value("v1", (3,), "f32")


def program(text, data="[1.0, 2.0, 3.0]", dtype="f32"):
    out = replace(Y, dtype=dtype)
    return Program((Argument(X, data),), (Line(out, text),), (out,))


def verdict(given, change=lambda results: results):
    arrays = given.arrays()
    want = [np.asarray(a) for a in jax.jit(given.function())(*arrays)]
    return compared(given, arrays, change([w.copy() for w in want]), want)


def moved(by, at=0):
    def change(found):
        found[0][at] += by
        return found

    return change


@pytest.mark.parametrize("first", range(0, 3 * COUNT, COUNT))
def test_random_functions_equal_jax_or_are_refused_by_name(first):
    command = [sys.executable, "benchmarks/random_functions.py", "--seed", str(first), "--count", str(COUNT)]
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([*command, "--shrink", "3"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{COUNT} functions" in done.stdout


def test_a_wrong_element_is_found():
    assert verdict(program("v0 * 2")) == Verdict("pass")
    found = verdict(program("v0 * 2"), moved(1e-3, at=2))
    assert found.kind == "wrong"
    assert "at [2] and 0 more of 3" in found.message


def test_rounding_is_no_fault_and_much_more_is():
    assert not verdict(program("jnp.sin(v0)"), moved(2e-7)).bad
    assert verdict(program("jnp.sin(v0)"), moved(2e-5)).bad


def test_an_integer_is_wrong_by_one_unless_rounding_decides_it():
    count = "jnp.floor(v0 * 2 + 0.25).astype(i32)"
    assert verdict(program(count, dtype="i32"), moved(1)).kind == "wrong"
    lines = (Line(Y, "v0 * 3"), Line(replace(Y, name="v2", dtype="i32"), "jnp.floor(v1).astype(i32)"))
    undecided = Program((Argument(X, "[1.0, 2.0, 3.0]"),), lines, (lines[1].value,))
    assert not verdict(undecided, moved(-1)).bad
    assert verdict(undecided, moved(-9)).bad


def test_nan_where_a_number_should_be_is_wrong():
    assert verdict(program("v0 + 1"), moved(np.nan)).kind == "wrong"


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_one_program_and_its_source_the_same_results(seed):
    made = draw(seed)
    assert made == draw(seed)
    scope = {}
    exec(made.source(), scope)
    given = [scope[a.value.name] for a in made.arguments]
    found = jax.tree.leaves(scope["function"](*given))
    want = jax.tree.leaves(made.function()(*made.arrays()))
    for f, w in zip(found, want, strict=True):
        np.testing.assert_allclose(np.asarray(f), np.asarray(w), rtol=1e-5, atol=1e-5)


def work(task):
    if task == "raise":
        raise ValueError("no such task")
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "hang":
        time.sleep(60)
    if task == "leave":
        os.write(2, b"LLVM ERROR: out of words\n")
        os._exit(7)
    return task.upper()


def test_what_ends_a_child_is_named_and_the_rest_goes_on():
    found = dict(results(["a", "crash", "b", "raise", "leave", "hang", "c"], work, seconds=1.0))
    assert (found["a"], found["b"], found["c"]) == ("A", "B", "C")
    assert found["crash"].how.startswith("SIGSEGV")
    assert found["leave"] == Died("exit 7 LLVM ERROR: out of words")
    assert found["raise"] == Died("exit 3 ValueError: no such task")
    assert found["hang"] == Died("ran out of time")


def test_a_failure_is_made_small():
    names = [Value(f"v{i}", (3,), "f32") for i in range(5)]
    texts = ("v0 * 2", "jnp.tanh(v1)", "v2[::-1] + v1", "v3 - 1")
    lines = tuple(Line(v, t) for v, t in zip(names[1:], texts, strict=True))
    large = Program((Argument(names[0], "[1.0, 2.0, 3.0]"),), lines, tuple(names[3:]))

    def judge(candidate):
        return Verdict("wrong" if any("tanh" in line.text for line in candidate.lines) else "pass")

    small = shrunk(large, "wrong", judge, by_jax)
    assert [line.text for line in small.lines] == ["jnp.tanh(v1)"]
    assert [a.value.name for a in small.arguments] == ["v1"]

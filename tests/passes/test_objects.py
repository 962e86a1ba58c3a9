"""The object cache: hits, damage, and several processes that fill one folder at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_steps import MLP, compiled, floats, mlp_reference, run_program

from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.ir_tools import new_context
from mlir_passes.lower_cpu import compile_kernel, kernel_key
from mlir_passes.objects import KernelObject, ObjectCache
from mlir_passes.pipeline import recompile

ARGUMENTS = [floats(3, 4), floats(4, 2, seed=1), floats(5, 3, seed=2), floats(5, 2, seed=3)]
MADE = KernelObject(b"\x7fELF and more", 128)


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_second_compile_finds_every_object(tmp_path: Path):
    first = ObjectCache(tmp_path)
    program = compiled(MLP, 2, 2, first)
    assert (first.hits, first.misses) == (0, len(program.kernels))
    assert len(entries(tmp_path)) == len(program.kernels)
    for cache in (first, ObjectCache(tmp_path)):
        hits = cache.hits
        again = compiled(MLP, 2, 2, cache)
        assert cache.hits - hits == len(program.kernels)
        assert again == program
    assert ObjectCache(None).get(next(iter(program.kernels))) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"\xff\xfe" + data,
        lambda data: b"5\n" + data,
        lambda data: data.replace(b'"workspace": 128', b'"workspace": 192'),
    ],
    ids=["empty", "torn head", "torn tail", "flipped bit", "no text", "other json", "other workspace"],
)
def test_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, damage):
    ObjectCache(tmp_path).put("key", MADE)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    cache = ObjectCache(tmp_path)
    assert cache.get("key") is None
    assert (cache.hits, cache.misses) == (0, 1)
    cache.put("key", MADE)
    assert path.read_bytes() == whole
    assert ObjectCache(tmp_path).get("key") == MADE


def test_program_is_right_after_its_cache_was_damaged(tmp_path: Path):
    program = compiled(MLP, 2, 2, ObjectCache(tmp_path))
    for path in entries(tmp_path):
        path.write_bytes(path.read_bytes()[:-100])
    cache = ObjectCache(tmp_path)
    again = compiled(MLP, 2, 2, cache)
    assert cache.misses == len(program.kernels)
    for got, exact in zip(run_program(again, ARGUMENTS[:2], ARGUMENTS[2:]), mlp_reference(*ARGUMENTS), strict=True):
        np.testing.assert_allclose(got, exact, rtol=3e-6, atol=3e-6)


FILL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from small_steps import MLP, compiled
from mlir_passes.objects import ObjectCache
cache = ObjectCache(Path(sys.argv[1]))
program = compiled(MLP, 2, 2, cache)
print(len(program.kernels))
"""


def test_two_processes_may_fill_one_folder_at_once(tmp_path: Path):
    command = [sys.executable, "-c", FILL, str(tmp_path), str(Path(__file__).parent)]
    root = Path(__file__).parents[2]
    running = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [int(process.communicate(timeout=60)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert {p.suffix for p in entries(tmp_path)} == {".o"}  # nothing half-written is left
    cache = ObjectCache(tmp_path)
    program = compiled(MLP, 2, 2, cache)
    assert (cache.hits, cache.misses) == (len(program.kernels), 0)
    assert counts == [len(program.kernels)] * 2
    for got, exact in zip(run_program(program, ARGUMENTS[:2], ARGUMENTS[2:]), mlp_reference(*ARGUMENTS), strict=True):
        np.testing.assert_allclose(got, exact, rtol=3e-6, atol=3e-6)


def test_objects_made_anew_are_the_same():
    program = compiled(MLP, 2, 2)
    assert recompile(program) == program


def test_key_is_of_the_kernel_text_alone():
    text = f"func.func @{PLACEHOLDER}() {{\n  return\n}}"
    kernel = KernelText("move", text, 0, 0, 1, 2, 3)
    assert kernel_key(kernel) == kernel_key(KernelText("move", text, 0, 0, 7, 8, 9))
    assert kernel_key(kernel) != kernel_key(KernelText("move", text + "\n", 0, 0, 1, 2, 3))
    made = compile_kernel(kernel, "abc", new_context())
    assert made.workspace == 0 and made.code.startswith(b"\x7fELF")

"""Kernels read and write elements of every type, whatever is left over after whole vectors, and nothing beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fitness.cpu import CpuRunner
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from workloads.dtypes import ELEMENTS, dtype_named

LENGTHS = (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 47, 65)


def generic(n: int, name: str, inputs: list[tuple[str, str]], made: str, body: str, shift: bool = False) -> str:
    """An elementwise op over n elements; shift: its first input is read backwards."""
    maps = [f"affine_map<(d0) -> ({n - 1} - d0)>" if shift and not i else "#id" for i in range(len(inputs))]
    names = ", ".join(value for value, _ in inputs)
    types = ", ".join(f"tensor<{n}x{e}>" for _, e in inputs)
    given = ", ".join(f"%i{i}: {e}" for i, (_, e) in enumerate(inputs))
    return f"""
  %{name}_e = tensor.empty() : tensor<{n}x{made}>
  %{name} = linalg.generic {{indexing_maps = [{", ".join([*maps, "#id"])}], iterator_types = ["parallel"]}}
      ins({names} : {types}) outs(%{name}_e : tensor<{n}x{made}>) {{
  ^bb0({given}, %o: {made}):
    {body}
    linalg.yield %r : {made}
  }} -> tensor<{n}x{made}>"""


def module(name: str, n: int) -> str:
    """@predict(x, y, mask): x backwards; x where the mask is set, else y; their sum; x in 32 bits if it has fewer."""
    e, add = ELEMENTS[name], "xori" if name == "bool" else "addf" if "float" in name else "addi"
    made = {
        "back": (e, generic(n, "back", [("%x", e)], e, f"%r = arith.select %yes, %i0, %i0 : {e}", shift=True)),
        "some": (e, generic(n, "some", [("%x", e), ("%y", e), ("%m", "i1")], e,
                            f"%r = arith.select %i2, %i0, %i1 : {e}")),
        "sum": (e, generic(n, "sum", [("%x", e), ("%y", e)], e, f"%r = arith.{add} %i0, %i1 : {e}")),
    }  # fmt: skip
    if is_short(name):
        to, op = ("f32", "extf") if "float" in name else ("i32", "extui" if name[0] in "ub" else "extsi")
        made["wide"] = (to, generic(n, "wide", [("%x", e)], to, f"%r = arith.{op} %i0 : {e} to {to}"))
    kinds = ", ".join(f"tensor<{n}x{kind}>" for kind, _ in made.values())
    return f"""
#id = affine_map<(d0) -> (d0)>
func.func @predict(%x: tensor<{n}x{e}>, %y: tensor<{n}x{e}>, %m: tensor<{n}xi1>) -> ({kinds}) {{
  %yes = arith.constant true{"".join(text for _, text in made.values())}
  return {", ".join(f"%{value}" for value in made)} : {kinds}
}}
"""


def is_short(name: str) -> bool:
    return dtype_named(name).itemsize < 4


def numbers(name: str, rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    dtype = dtype_named(name)
    if name == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if "float" in name:
        return rng.standard_normal(n).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, n, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_of_every_type_at_every_length(name):
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        runner = CpuRunner(compile_text(module(name, n), "predict", 0, 3, ObjectCache(None)), guard=True)
        x, y, mask = numbers(name, rng, n), numbers(name, rng, n), rng.integers(0, 2, n).astype(bool)
        runner.poison(0xAA)
        runner.write_batch([x, y, mask])
        before = [a.tobytes() for a in runner.batch]
        runner.run()
        got = [np.array(metric) for metric in runner.metrics]
        with np.errstate(over="ignore"):
            want = [x[::-1], np.where(mask, x, y), x ^ y if name == "bool" else x + y]
        if is_short(name):
            want.append(x.astype(np.float32 if "float" in name else np.int32))
        for one, other in zip(got, want, strict=True):
            assert one.tobytes() == other.tobytes(), f"{name}, {n} elements"
        assert [a.tobytes() for a in runner.batch] == before

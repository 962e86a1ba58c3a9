"""StableHLO's interpreter tests through gevo: pass, refused by name, wrong, failed, by op.

    python benchmarks/stablehlo_conformance.py FOLDER [--only TEXT] [--show 100] [--smoke]

FOLDER holds `stablehlo/tests/interpret/*.mlir` and `stablehlo/testdata/*.mlir` of github.com/openxla/stablehlo, or some
of them. Every function with checks is run by the frontend, the pipeline and the emitter in a forked child; its results
must be what the checks ask: integers and booleans exactly, floats within 64 roundings. StableHLO itself asks for one or
three, which a sum in another order or a function by another polynomial may miss; `exact` counts those within three.
Tests of what is outside the documented types (quantised, 2 and 4 bits, small floats, dynamic shapes, several
devices, tokens) are only counted. --smoke: a few tests that are in this file, without a folder. Exit status 1 if
anything is wrong or fails without naming an op.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxlib.mlir import ir
from rich.progress import track

from fitness.cpu import CpuRunner
from in_children import Died, results
from mlir_passes.errors import UnsupportedOp
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from random_functions import alike
from stablehlo_files import Expected, Test, case, context, outside, tests_in
from workloads.errors import Kind, WorkloadError
from workloads.frontends.stablehlo import legalise

ROUNDING = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
NEAR = 64  # roundings
KINDS = ("pass", "exact", "refused", "wrong", "failed", "not parsed", "outside")
SMOKE = """
func.func @sum() {
  %x = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  check.expect_almost_eq_const %y, dense<[6.0, 15.0]> : tensor<2xf32>
  func.return
}
// -----
func.func @add_of_small_integers() {
  %x = stablehlo.constant dense<[100, -100, 7]> : tensor<3xi8>
  %y = stablehlo.add %x, %x : tensor<3xi8>
  check.expect_eq_const %y, dense<[-56, 56, 14]> : tensor<3xi8>
  func.return
}
// -----
func.func @of_complex_numbers() {
  %x = stablehlo.constant dense<[(1.0, 2.0)]> : tensor<1xcomplex<f32>>
  %y = stablehlo.multiply %x, %x : tensor<1xcomplex<f32>>
  check.expect_eq_const %y, dense<[(-3.0, 4.0)]> : tensor<1xcomplex<f32>>
  func.return
}
// -----
func.func @of_four_bits() {
  %x = stablehlo.constant dense<[1]> : tensor<1xi4>
  check.expect_eq_const %x, dense<[1]> : tensor<1xi4>
  func.return
}
// -----
func.func @sort() {
  %x = stablehlo.constant dense<[3, 1, 2]> : tensor<3xi32>
  %y = "stablehlo.sort"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %less = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
  }) : (tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %y, dense<[1, 2, 3]> : tensor<3xi32>
  func.return
}
// -----
module @a_file_of_testdata {
  func.func public @main() -> tensor<2xf32> {
    %0:2 = call @inputs() : () -> (tensor<2xf32>, tensor<2xf32>)
    %1 = call @expected() : () -> tensor<2xf32>
    %2 = stablehlo.multiply %0#0, %0#1 : tensor<2xf32>
    stablehlo.custom_call @check.expect_close(%2, %1) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> ()
    return %2 : tensor<2xf32>
  }
  func.func private @inputs() -> (tensor<2xf32>, tensor<2xf32>) {
    %a = stablehlo.constant dense<"0x0000803F00000040"> : tensor<2xf32>
    %b = stablehlo.constant dense<[3.0, 0x7F800000]> : tensor<2xf32>
    return %a, %b : tensor<2xf32>, tensor<2xf32>
  }
  func.func private @expected() -> tensor<2xf32> {
    %a = stablehlo.constant dense<[3.0, 0x7F800000]> : tensor<2xf32>
    return %a : tensor<2xf32>
  }
}
"""


@dataclass(frozen=True)
class Outcome:
    """kind: one of KINDS, "exact" and "pass" for what is right."""

    kind: str
    op: str
    message: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="files whose path has this text")
    parser.add_argument("--show", type=int, default=100, help="how many failures to list")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    if not arguments.smoke and (arguments.folder is None or not arguments.folder.is_dir()):
        parser.error("give the folder of the .mlir files, or --smoke")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            Path(folder, "smoke.mlir").write_text(SMOKE)
        found = tests_in(Path(folder) if arguments.smoke else arguments.folder)
    found = [test for test in found if arguments.only in str(test.path)]
    outcomes: list[tuple[Test, Outcome]] = []
    for test, result in track(results(found, outcome_of), total=len(found), description="tests"):
        if isinstance(result, Died):
            result = Outcome("failed", test.path.stem, result.how)
        outcomes.append((test, result))
    report([o for _, o in outcomes], time.perf_counter() - start)
    bad = [(t, o) for t, o in outcomes if o.kind in ("wrong", "failed", "not parsed")]
    for test, outcome in bad[: arguments.show]:
        print(f"{outcome.kind}: {test.path.name} @{test.function}: {outcome.op}: {outcome.message}")
    return int(any(o.kind in ("wrong", "failed") for _, o in outcomes))


def outcome_of(test: Test) -> Outcome:
    reason = outside(test)
    if reason:
        return Outcome("outside", test.path.stem, reason)
    with context(), ir.Location.unknown():
        try:
            found = case(test)
        except ir.MLIRError as error:
            return Outcome("not parsed", test.path.stem, str(error).replace("\n", " ")[:300])
        except ValueError as error:
            return Outcome("not parsed", test.path.stem, str(error)[:300])
        try:
            text = legalise(found.module, "predict", test.path).text
            got = _run(text, found.arguments)
        except WorkloadError as error:
            return Outcome("refused" if error.kind == Kind.OP else "failed", found.op, error.what)
        except UnsupportedOp as error:
            return Outcome("refused", found.op, error.what)
        except Exception as error:
            return Outcome("failed", found.op, f"{type(error).__name__}: {str(error).splitlines()[0][:300]}")
    messages = [_wrong(g, e) for g, e in zip(got, found.expected, strict=True)]
    wrong = next((m for m in messages if m), "")
    if wrong:
        return Outcome("wrong", found.op, wrong)
    exact = all(_exact(g, e) for g, e in zip(got, found.expected, strict=True))
    return Outcome("exact" if exact else "pass", found.op)


def _run(text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    runner = CpuRunner(compile_text(text, "predict", 0, len(arguments), ObjectCache(None)), guard=True)
    runner.poison(0xAA)
    for view, array in zip(runner.batch, arguments, strict=True):
        view[...] = array if view.dtype == array.dtype else array.view(view.dtype)
    runner.run()
    return [np.array(m) for m in runner.metrics]


def _wrong(got: np.ndarray, expected: Expected) -> str:
    """What is wrong with a result, "" for nothing."""
    want = expected.data
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if expected.element not in ROUNDING:
        bits = 2 ** (8 * want.itemsize)  # unsigned results may come as signed integers of these bits
        exact = want.dtype.kind != "u"
        off = np.asarray(got != want if exact else got.astype(object) % bits != want.astype(object) % bits)
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite = np.abs(w[np.isfinite(w)])
        scale = float(np.quantile(finite, 0.9)) if finite.size else 0.0
        with np.errstate(all="ignore"):
            room = NEAR * ROUNDING[expected.element] * (np.abs(w) + scale / 8) + expected.tolerance
            off = ~((g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= room))
    if not off.any():
        return ""
    at = tuple(int(k) for k in np.argwhere(off)[0])
    return (
        f"at {list(at)} and {off.sum() - 1} more of {off.size} {expected.element}: got {got[at]}, expected {want[at]}"
    )


def _exact(got: np.ndarray, expected: Expected) -> bool:
    """Whether floats are off by three units in the last place at most, the most that a check of StableHLO allows."""
    if expected.element not in ROUNDING:
        return True
    g, w = got.astype(np.float64), expected.data.astype(np.float64)
    with np.errstate(all="ignore"):
        return bool(np.all((g == w) | np.isnan(g) | (np.abs(g - w) <= 3 * ROUNDING[expected.element] * np.abs(w))))


def report(outcomes: Sequence[Outcome], wall_s: float) -> None:
    by_op: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        by_op["outside" if outcome.kind == "outside" else outcome.op][outcome.kind] += 1
        by_op["all"][outcome.kind] += 1
    total = by_op["all"]
    print(f"{len(outcomes)} tests in {wall_s:.0f} s")
    print(f"{'op':26s} right  exact  refused  wrong  failed  not parsed  outside")
    for op in [*sorted(set(by_op) - {"all"}), "all"]:
        c = by_op[op]
        print(
            f"{op:26s} {c['pass'] + c['exact']:5d} {c['exact']:6d} {c['refused']:8d} {c['wrong']:6d} {c['failed']:7d}"
            f" {c['not parsed']:11d} {c['outside']:8d}"
        )
    assert sum(total.values()) == len(outcomes)
    for kind in ("refused", "outside", "failed"):
        for message, count in Counter(alike(o.message) for o in outcomes if o.kind == kind).most_common(40):
            print(f"  {kind:8s} {count:5d} {message}")


if __name__ == "__main__":
    raise SystemExit(main())

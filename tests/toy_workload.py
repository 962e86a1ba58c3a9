"""A prepared workload that needs no frontend: a linear classifier of 4 features into 3 classes, by least squares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mlir_passes.canonical import write_base
from workloads.workload import ArraySpec, PreparedWorkload, Quality, Signature

RATE = 0.05
ROWS, FEATURES, CLASSES, EVAL_ROWS = 8, 4, 3, 10

STEP = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#a = affine_map<(d0, d1, d2) -> (d2, d0)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>
func.func @step(%w: tensor<4x3xf32>, %x: tensor<8x4xf32>, %y: tensor<8x3xf32>) -> (tensor<4x3xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<8x3xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8x3xf32>) -> tensor<8x3xf32>
  %p = linalg.matmul ins(%x, %w : tensor<8x4xf32>, tensor<4x3xf32>) outs(%f0 : tensor<8x3xf32>) -> tensor<8x3xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %y : tensor<8x3xf32>, tensor<8x3xf32>) outs(%e0 : tensor<8x3xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %s = arith.subf %i, %j : f32
    linalg.yield %s : f32
  } -> tensor<8x3xf32>
  %e1 = tensor.empty() : tensor<f32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<f32>) -> tensor<f32>
  %l = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction"]}
      ins(%r : tensor<8x3xf32>) outs(%f1 : tensor<f32>) {
  ^bb0(%i: f32, %o: f32):
    %q = arith.mulf %i, %i : f32
    %t = arith.addf %o, %q : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  %e2 = tensor.empty() : tensor<4x3xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %r : tensor<8x4xf32>, tensor<8x3xf32>) outs(%f2 : tensor<4x3xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.mulf %i, %j : f32
    %t = arith.addf %o, %m : f32
    linalg.yield %t : f32
  } -> tensor<4x3xf32>
  %rate = arith.constant RATE : f32
  %n = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %g : tensor<4x3xf32>, tensor<4x3xf32>) outs(%e2 : tensor<4x3xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %d = arith.mulf %j, %rate : f32
    %s = arith.subf %i, %d : f32
    linalg.yield %s : f32
  } -> tensor<4x3xf32>
  return %n, %l : tensor<4x3xf32>, tensor<f32>
}
"""
PREDICT = """
func.func @predict(%w: tensor<4x3xf32>, %x: tensor<10x4xf32>) -> tensor<10x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<10x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<10x3xf32>) -> tensor<10x3xf32>
  %p = linalg.matmul ins(%x, %w : tensor<10x4xf32>, tensor<4x3xf32>) outs(%f : tensor<10x3xf32>) -> tensor<10x3xf32>
  return %p : tensor<10x3xf32>
}
"""


class Silent:
    """The channel of a child that nobody listens to, and that knows no other result."""

    def stage(self, name: str) -> None:
        pass

    def known(self, fingerprint: str) -> bool:
        return False


def toy_workload(
    folder: Path, kind: str = "accuracy", rate: float = RATE, seeds: tuple[int, ...] = (0, 1)
) -> PreparedWorkload:
    """Write the prepared workload and its base.mlir and space.json into `folder`."""
    signature = Signature(
        name="toy",
        frontend="none",
        state=(ArraySpec("w", (FEATURES, CLASSES), "float32"),),
        batch=(ArraySpec("x", (ROWS, FEATURES), "float32"), ArraySpec("y", (ROWS, CLASSES), "float32")),
        metrics=(ArraySpec("loss", (), "float32"),),
        predict_inputs=(ArraySpec("x", (EVAL_ROWS, FEATURES), "float32"),),
        quality=Quality(kind=kind, steps=30, seeds=seeds),
    )
    folder.mkdir(parents=True, exist_ok=True)
    step = STEP.replace("RATE", f"{rate:e}")
    (folder / "signature.json").write_text(json.dumps(signature.to_json()))
    (folder / "step.mlir").write_text(step)
    (folder / "predict.mlir").write_text(PREDICT)
    (folder / "data.json").write_text(json.dumps({"folder": "."}))
    rng = np.random.default_rng(7)
    true = rng.standard_normal((FEATURES, CLASSES))
    for seed in seeds:
        first = np.random.default_rng(seed).standard_normal((FEATURES, CLASSES)) * 0.1
        np.savez(folder / f"init_{seed}.npz", s0=first.astype(np.float32))
    for split, rows in (("train", 100), ("validation", 33), ("test", 20)):
        x = rng.standard_normal((rows, FEATURES)).astype(np.float32)
        labels = (x @ true).argmax(axis=1)
        np.save(folder / f"{split}_0.npy", x)
        np.save(folder / f"{split}_1.npy", np.eye(CLASSES, dtype=np.float32)[labels])
    write_base(step, 1, ["w"], folder)
    return PreparedWorkload.load(folder)


def toy_prediction(folder: Path, weights: np.ndarray[Any, Any] | None = None) -> PreparedWorkload:
    """The classifier's prediction as a workload, its weights those of the true labels unless given."""
    toy_workload(folder, seeds=(0,))
    rng = np.random.default_rng(7)
    true = rng.standard_normal((FEATURES, CLASSES)) if weights is None else weights
    scores = ArraySpec("scores", (EVAL_ROWS, CLASSES), "float32")
    signature = Signature(
        name="toy_prediction",
        frontend="none",
        state=(ArraySpec("w", (FEATURES, CLASSES), "float32"),),
        batch=(ArraySpec("x", (EVAL_ROWS, FEATURES), "float32"),),
        metrics=(scores,),
        quality=Quality(kind="accuracy"),
        task="prediction",
        labels=(ArraySpec("y", (EVAL_ROWS, CLASSES), "float32"),),
    )
    (folder / "signature.json").write_text(json.dumps(signature.to_json()))
    (folder / "step.mlir").write_text(PREDICT)
    (folder / "predict.mlir").unlink()
    np.savez(folder / "init_0.npz", s0=true.astype(np.float32))
    write_base(PREDICT, 1, ["w"], folder, entry="predict")
    return PreparedWorkload.load(folder)

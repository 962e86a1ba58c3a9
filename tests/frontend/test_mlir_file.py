"""A ready .mlir file with a signature beside it is a workload, checked against its signature."""

import json

import numpy as np
import pytest

from workloads import WorkloadError, prepare
from workloads.frontends.base import save
from workloads.frontends.mlir_file import trace_file

STEP = """
func.func @step(%w: tensor<3x2xf32>, %x: tensor<4x3xf32>, %y: tensor<4xi32>) -> (tensor<3x2xf32>, tensor<f32>) {
  %loss = arith.constant dense<1.0> : tensor<f32>
  return %w, %loss : tensor<3x2xf32>, tensor<f32>
}
"""
SIGNATURE = {
    "state": [{"name": "w", "shape": [3, 2], "dtype": "float32"}],
    "batch": [{"name": "x", "shape": [4, 3], "dtype": "float32"}, {"name": "y", "shape": [4], "dtype": "int32"}],
    "metrics": [{"name": "loss", "shape": [], "dtype": "float32"}],
    "quality": {"kind": "loss", "steps": 10, "seeds": [0]},
    "data": "arrays",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.mlir").write_text(STEP)
    (tmp_path / "tiny.json").write_text(json.dumps(SIGNATURE))
    np.savez(tmp_path / "init_0.npz", s0=np.ones((3, 2), np.float32))
    (tmp_path / "arrays").mkdir()
    for split in ("train", "validation", "test"):
        np.savez(tmp_path / "arrays" / f"{split}.npz", x=np.ones((8, 3), np.float32), y=np.zeros(8, np.int32))
    return tmp_path


def test_file_is_prepared_with_its_arrays(folder):
    traced = trace_file("tiny", folder / "tiny.mlir")
    (folder / "made").mkdir()
    prepared = save(traced, folder / "made", folder / "store")
    assert prepared.signature.name == "tiny" and prepared.signature.frontend == "mlir"
    assert prepared.step_text == STEP and prepared.predict_text is None
    assert prepared.initial_state(0)[0].shape == (3, 2)
    assert [a.shape for a in prepared.split("test")] == [(8, 3), (8,)]
    assert [a.shape for a in next(prepared.batches(0, 1))] == [(4, 3), (4,)]


def test_file_is_a_workload_like_any_other_and_needs_no_jax(folder, monkeypatch):
    (folder / "hidden").mkdir()
    (folder / "hidden" / "jax.py").write_text("raise RuntimeError('jax was imported')\n")
    monkeypatch.setenv("PYTHONPATH", str(folder / "hidden"))
    spec, cache = str(folder / "tiny.mlir"), folder / "cache"
    first = prepare(spec, cache)
    assert first.signature.name == "tiny" and prepare(spec, cache) == first
    (folder / "tiny.json").write_text(json.dumps(SIGNATURE | {"quality": {"kind": "loss", "steps": 20}}))
    assert prepare(spec, cache).signature.quality.steps == 20


def test_data_may_come_from_a_function_in_a_file_beside_it(folder):
    (folder / "mine.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    return {s: (np.zeros((5, 3)), np.zeros(5, int)) for s in ('train', 'validation', 'test')}\n"
    )
    (folder / "tiny.json").write_text(json.dumps(SIGNATURE | {"data": "mine.py:load"}))
    assert trace_file("tiny", folder / "tiny.mlir").splits["train"][0].shape == (5, 3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"state": []}, "@step has arguments"),
        ({"metrics": []}, "@step has results"),
        ({"quality": {"kind": "accuracy"}}, "accuracy needs predict_inputs"),
        ({"predict_inputs": SIGNATURE["batch"][:1]}, "no public function @predict"),
        ({"data": ""}, '"data" is missing'),
        ({"data": "nowhere"}, "No such file"),
        ({"data": "absent_module:load"}, "absent_module is not installed"),
        ({"quality": {"kind": "loss", "seeds": [0, 5]}}, "no initial state for seeds [5]"),
        ({"quality": {"kind": "loss", "size": 3}}, "not a signature"),
    ],
)
def test_signature_that_does_not_fit_is_refused(folder, change, what):
    (folder / "tiny.json").write_text(json.dumps(SIGNATURE | change))
    with pytest.raises(WorkloadError) as raised:
        trace_file("tiny", folder / "tiny.mlir")
    assert what in raised.value.what and raised.value.todo


def test_missing_signature_is_told(folder):
    (folder / "tiny.json").unlink()
    with pytest.raises(WorkloadError, match="signature file is missing"):
        trace_file("tiny", folder / "tiny.mlir")


def test_arrays_of_another_shape_are_refused(folder):
    np.savez(folder / "init_0.npz", s0=np.ones((3, 3), np.float32))
    with pytest.raises(WorkloadError, match=r"init_0: w is float32\[3, 3\]"):
        trace_file("tiny", folder / "tiny.mlir")


def test_arrays_of_another_type_are_converted_with_a_word_or_refused(folder):
    arrays = folder / "arrays"
    for split in ("train", "validation", "test"):
        np.savez(arrays / f"{split}.npz", x=np.ones((8, 3)), y=np.arange(8))
    np.savez(folder / "init_0.npz", s0=np.full((3, 2), 0.1))
    traced = trace_file("tiny", folder / "tiny.mlir")
    assert [a.dtype.name for a in traced.splits["test"]] == ["float32", "int32"]
    assert traced.initial[0][0].dtype == np.float32
    assert set(traced.notes) == {
        "data x is float64; kept as float32, as the signature says",
        "data y is int64; kept as int32, as the signature says",
        "state leaf w is float64; kept as float32, as the signature says",
    }
    for wrong in (np.arange(8) + 2**31, np.ones(8)):
        np.savez(arrays / "test.npz", x=np.ones((8, 3), np.float32), y=wrong)
        with pytest.raises(WorkloadError):
            trace_file("tiny", folder / "tiny.mlir")


def test_bfloat16_may_be_written_as_its_bits(folder):
    import ml_dtypes

    signature = json.loads(json.dumps(SIGNATURE).replace('"shape": [3, 2], "dtype": "float32"',
                                                         '"shape": [3, 2], "dtype": "bfloat16"'))  # fmt: skip
    (folder / "tiny.json").write_text(json.dumps(signature))
    (folder / "tiny.mlir").write_text(STEP.replace("3x2xf32", "3x2xbf16"))
    leaf = np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16)
    for given in (leaf.view(np.uint16), leaf, leaf.astype(np.float32)):
        np.savez(folder / "init_0.npz", s0=given)
        read = trace_file("tiny", folder / "tiny.mlir").initial[0][0]
        assert read.dtype == leaf.dtype and np.array_equal(read, leaf)
    (folder / "tiny.json").write_text(json.dumps(signature).replace("bfloat16", "float8_e5m2"))
    with pytest.raises(WorkloadError, match="w has dtype 'float8_e5m2'"):
        trace_file("tiny", folder / "tiny.mlir")

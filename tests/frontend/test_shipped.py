"""The shipped workloads: their text parses in MLIR 22.1 and does what JAX does, and their data is fixed."""

import hashlib
import importlib
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from execution import compiled
from mlir import ir

from workloads import WorkloadError, prepare
from workloads.catalog import NAMED, SHIPPED, resolve
from workloads.data import digits, fashion_mnist, fashion_mnist_32, fashion_mnist_folder
from workloads.frontends.stablehlo import DIALECTS
from workloads.frontends.user_code import load_workload

TOLERANCE = {  # Adam divides by the root of a gradient near zero
    "digits": 1e-4,
    "twofc": 1e-5,
    "mlp": 1e-5,
    "lenet": 1e-5,
    "my_model": 1e-5,
}
LARGE = ("mobilenet", "resnet18", "bert", "llama")  # for plain loops; tests/campaign/test_base_equals_jax.py has them
TEXT = ("bert", "llama")


def need_fashion_mnist():
    try:
        fashion_mnist_folder()
    except WorkloadError as error:
        pytest.skip(str(error))


EXAMPLE = f"{Path(__file__).parents[2]}/examples/my_model.py:workload"


@pytest.fixture(params=[*SHIPPED, EXAMPLE], ids=[*SHIPPED, "example"], scope="module")
def shipped(request):
    if request.param not in ("digits", *TEXT, EXAMPLE):
        need_fashion_mnist()
    source = resolve(request.param)
    return source.name, prepare(request.param), load_workload(source.path, source.object)


def test_text_parses_and_holds_core_dialects_only(shipped):
    name, prepared, _ = shipped
    for function, text in (("step", prepared.step_text), ("predict", prepared.predict_text)):
        with ir.Context():
            module = ir.Module.parse(text)
        assert module.operation.verify()
        public = [op.attributes["sym_name"].value for op in module.body.operations if "private" not in str(op)[:40]]
        assert public == [function], name
        used = set(re.findall(r"^\s*(?:%\S+ = |)([a-z]+)\.[a-z]", text, re.M))
        assert used <= set(DIALECTS)


def test_results_of_step_are_the_state_and_the_metrics(shipped):
    _, prepared, _ = shipped
    with ir.Context():
        module = ir.Module.parse(prepared.step_text)
        [step] = [op for op in module.body.operations if op.attributes["sym_name"].value == "step"]
        signature = ir.FunctionType(step.attributes["function_type"].value)
        inputs, results = ([str(t) for t in types] for types in (signature.inputs, signature.results))
    leaves = len(prepared.signature.state)
    assert results[:leaves] == inputs[:leaves]
    assert len(results) == leaves + len(prepared.signature.metrics)
    assert len(inputs) == leaves + len(prepared.signature.batch)


def test_step_and_predict_equal_jax_from_the_same_state(shipped):
    name, prepared, workload = shipped
    if name in LARGE:
        pytest.skip("too large for plain loops")
    step, state = compiled(prepared.step_text, "step"), prepared.initial_state(0)
    structure = jax.tree.structure(workload.init(0))
    theirs = jax.jit(workload.step)
    for batch in prepared.batches(seed=0, steps=3):
        ours = step([*state, *batch])
        new_state, metrics = theirs(jax.tree.unflatten(structure, state), batch)
        state = [np.asarray(leaf) for leaf in jax.tree.leaves(new_state)]
        for mine, expected in zip(ours, [*state, *jax.tree.leaves(metrics)], strict=True):
            np.testing.assert_allclose(mine, np.asarray(expected), rtol=0, atol=TOLERANCE[name])
    rows = prepared.signature.predict_inputs[0].shape[0]
    x = prepared.split("validation")[0][:rows]
    [scores] = compiled(prepared.predict_text, "predict")([*state, x])
    expected = workload.predict(jax.tree.unflatten(structure, state), x)
    np.testing.assert_allclose(scores, np.asarray(expected), rtol=0, atol=1e-4)


def test_batches_depend_on_the_seed_alone(shipped):
    _, prepared, _ = shipped
    first, again, other = (next(prepared.batches(seed, 1))[1] for seed in (3, 3, 4))
    assert first.tolist() == again.tolist() != other.tolist()


def test_digits_are_split_once_and_for_all():
    splits = digits()
    assert [len(splits[s][0]) for s in ("train", "validation", "test")] == [1077, 360, 360]
    assert digest(splits) == "b997032dc164ae0c"
    assert sum(len(np.unique(y)) for _, y in splits.values()) == 30
    assert overlap(splits) == 0


def test_fashion_mnist_is_split_once_and_for_all():
    need_fashion_mnist()
    splits = fashion_mnist()
    assert [len(splits[s][0]) for s in ("train", "validation", "test")] == [50_000, 10_000, 10_000]
    assert digest(splits) == "157972a7080a85fd"
    images = fashion_mnist(images=True, validation_rows=2_000)
    assert images["validation"][0].shape == (2_000, 28, 28, 1)
    assert np.array_equal(images["validation"][0].reshape(2_000, 784), splits["validation"][0][:2_000])


def test_fashion_mnist_in_the_shape_of_cifar_has_zeros_around_it_and_equal_channels():
    need_fashion_mnist()
    splits = fashion_mnist_32(channels=3, validation_rows=300)
    assert [splits[s][0].shape for s in ("train", "validation", "test")] == [
        (rows, 32, 32, 3) for rows in (10_000, 300, 2_000)
    ]
    x, y = splits["validation"]
    plain, labels = fashion_mnist(images=True, validation_rows=300)["validation"]
    assert np.array_equal(x[:, 2:30, 2:30, 1:2], plain) and np.array_equal(y, labels)
    assert x.sum() == pytest.approx(3 * plain.sum(), rel=1e-3)
    assert np.array_equal(x[..., 0], x[..., 2])


def test_shipped_models_are_found_by_their_module():
    for target in NAMED.values():
        module, _, name = target.partition(":")
        assert vars(importlib.import_module(module))[name].quality.steps > 0


def digest(splits):
    return hashlib.sha256(b"".join(a.tobytes() for s in sorted(splits) for a in splits[s])).hexdigest()[:16]


def overlap(splits):
    rows = {name: {row.tobytes() for row in x} for name, (x, _) in splits.items()}
    return len(rows["train"] & rows["validation"]) + len(rows["train"] & rows["test"])

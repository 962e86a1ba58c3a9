"""Which source a workload's name stands for."""

from __future__ import annotations

import difflib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from workloads.errors import WorkloadError

# name -> "module:object", and what `gevo workloads` says of it
SHIPPED = {
    "digits": "workloads.models.digits:workload",
    "twofc": "workloads.models.twofc:workload",
    "mlp": "workloads.models.mlp:workload",
    "lenet": "workloads.models.lenet:workload",
    "mobilenet": "workloads.models.mobilenet:workload",
    "resnet18": "workloads.models.resnet18:workload",
    "bert": "workloads.models.bert:workload",
    "llama": "workloads.models.llama:workload",
}
PREDICTIONS = {  # and the trainings that their weights come from
    "mobilenet_predict": "workloads.models.mobilenet_predict:workload",
    "mobilenet_training": "workloads.models.mobilenet_predict:training",
}
NAMED = {**SHIPPED, **PREDICTIONS}
ABOUT = {
    "digits": "64-128-10 MLP, Adam, on scikit-learn's 1797 handwritten digits",
    "twofc": "784-128-10 MLP (the 2fcNet of GEVO-ML), SGD, on Fashion-MNIST",
    "mlp": "784-512-512-10 MLP, SGD, on Fashion-MNIST",
    "lenet": "LeNet-5 with max-pooling, SGD, on Fashion-MNIST",
    "mobilenet": "small MobileNetV2, SGD, on Fashion-MNIST padded to 32x32",
    "resnet18": "ResNet-18 of width 16, SGD, on Fashion-MNIST padded to 32x32x3",
    "bert": "2-layer encoder, Adam, predicts hidden bytes of Python's standard library",
    "llama": "2-layer decoder, Adam, predicts the next byte of Python's standard library",
    "mobilenet_predict": "prediction with a trained MobileNetV2 of 11 blocks; first: gevo train mobilenet_training",
    "mobilenet_training": "the training that mobilenet_predict has its weights from, SGD with momentum",
}
FASHION_MNIST = ("twofc", "mlp", "lenet", "mobilenet", "resnet18", *PREDICTIONS)  # the shipped ones that need it
FORMS = "Give a shipped name, path/to/file.py:object, or path/to/file.mlir with its signature file.json beside it"


@dataclass(frozen=True)
class Source:
    """Where a workload is written: its name, its file, and the object in a Python file ("" for .mlir)."""

    name: str
    path: Path
    object: str


def resolve(spec: str) -> Source:
    """The source that `spec` names: a shipped name, file.py:object, or file.mlir."""
    if spec in NAMED:
        module, _, name = NAMED[spec].partition(":")
        found = importlib.util.find_spec(module)  # imports the package only, which is empty
        assert found is not None and found.origin is not None, f"{module} is missing from this installation"
        return Source(spec, Path(found.origin), name)
    file, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    path = Path(file).expanduser().absolute()
    if path.suffix not in (".py", ".mlir"):
        raise WorkloadError(f"unknown workload; the shipped ones are {', '.join(NAMED)}", repr(spec), _advice(spec))
    if not path.is_file():
        raise WorkloadError("no such file", str(path), FORMS)
    if path.suffix == ".py" and not name:
        raise WorkloadError("which object in this file is the workload?", spec, f"Write {spec}:workload")
    return Source(path.stem, path, name)


def _advice(spec: str) -> str:
    close = difflib.get_close_matches(spec, NAMED, n=1)
    return f"Did you mean {close[0]}?" if close else FORMS

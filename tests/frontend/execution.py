"""Runs a function of linalg-on-tensors text on NumPy arrays, by plain loops: the reference way through MLIR 22.1."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mlir import ir
from mlir.execution_engine import ExecutionEngine
from mlir.passmanager import PassManager

from mlir_passes.i1_storage import store_i1_as_i8

BUFFERS = (
    "builtin.module(inline,symbol-dce,canonicalize,cse,func.func(linalg-fuse-elementwise-ops,canonicalize,cse),"
    "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map"
    " allow-return-allocs-from-loops=1},"
    "buffer-results-to-out-params{modify-public-functions=1},canonicalize,"
    "func.func(convert-linalg-to-loops),canonicalize,cse)"
)
TO_LLVM = (
    "builtin.module(convert-scf-to-cf,expand-strided-metadata,lower-affine,math-expand-ops,convert-math-to-llvm,"
    "convert-math-to-libm,convert-arith-to-llvm,convert-cf-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm,canonicalize,cse,reconcile-unrealized-casts)"
)
DTYPES = {"f32": np.float32, "i32": np.int32, "i1": np.bool_, "f64": np.float64, "i8": np.int8}


def run_module(text: str, name: str, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The results of `@name` on `inputs`."""
    return compiled(text, name)(inputs)


def compiled(text: str, name: str) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """`@name` as a function from its arguments to its results."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        entry = next(op for op in module.body.operations if op.attributes["sym_name"].value == name)
        types = [ir.RankedTensorType(t) for t in ir.FunctionType(entry.attributes["function_type"].value).results]
        forms = [(list(t.shape), DTYPES[str(t.element_type)]) for t in types]
        PassManager.parse(BUFFERS).run(module.operation)
        _request_wrapper(module, name)
        store_i1_as_i8(module)
        PassManager.parse(TO_LLVM).run(module.operation)
        libraries = Path(ir.__file__).parent
        shared = [str(p) for p in libraries.rglob("libmlir_c_runner_utils*")]
        engine = ExecutionEngine(module, opt_level=0, shared_libs=shared)

    def call(inputs: Sequence[Any]) -> list[np.ndarray]:
        outputs = [np.zeros(shape, dtype) for shape, dtype in forms]
        arguments = [np.array(a, order="C", copy=True) for a in inputs] + outputs
        engine.invoke(name, *(ctypes.pointer(ctypes.pointer(_descriptor(a))) for a in arguments))
        return outputs

    return call


def _request_wrapper(module: ir.Module, name: str) -> None:
    for op in module.body.operations:
        if op.attributes["sym_name"].value == name and op.operation.name == "func.func":
            op.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()


def _descriptor(array: np.ndarray) -> ctypes.Structure:
    """A ranked memref descriptor of a dense array."""

    class Descriptor(ctypes.Structure):
        _fields_ = (
            ("allocated", ctypes.c_void_p),
            ("aligned", ctypes.c_void_p),
            ("offset", ctypes.c_longlong),
            ("shape", ctypes.c_longlong * max(array.ndim, 1)),
            ("strides", ctypes.c_longlong * max(array.ndim, 1)),
        )

    elements = [s // array.itemsize for s in array.strides]
    full = ctypes.c_longlong * max(array.ndim, 1)
    return Descriptor(array.ctypes.data, array.ctypes.data, 0, full(*array.shape), full(*elements))

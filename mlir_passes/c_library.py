"""Calls of the C library's functions in the place of math ops: what MLIR expands itself (log1p, sinh) loses digits."""

from __future__ import annotations

from typing import Any

from mlir import ir

from mlir_passes.ir_tools import walk
from mlir_passes.kernels.vector_math import FUNCTIONS

_SUFFIX = {"f32": "f", "f64": ""}


def call_functions(module: ir.Module) -> None:
    """Turn each math op on f32 or f64 scalars for which there is a C function into a call of it; in place."""
    declared: set[str] = set()
    for op in walk(module.operation):
        if op.name not in FUNCTIONS or str(op.results[0].type) not in _SUFFIX:
            continue
        name, types = FUNCTIONS[op.name] + _SUFFIX[str(op.results[0].type)], [v.type for v in op.operands]
        if name not in declared:
            declared.add(name)
            _declare(module, name, ir.FunctionType.get(types, [op.results[0].type]))
        with ir.InsertionPoint(op):
            callee = {"callee": ir.FlatSymbolRefAttr.get(name)}
            call = ir.Operation.create(
                "func.call", results=[op.results[0].type], operands=list(op.operands), attributes=callee
            )
        op.results[0].replace_all_uses_with(call.results[0])
        op.erase()


def _declare(module: ir.Module, name: str, type_: Any) -> None:
    """A private function without a body that reads and writes no memory."""
    attributes: dict[str, Any] = {
        "sym_name": ir.StringAttr.get(name),
        "function_type": ir.TypeAttr.get(type_),
        "sym_visibility": ir.StringAttr.get("private"),
        "llvm.readnone": ir.UnitAttr.get(),
    }
    with ir.InsertionPoint.at_block_begin(module.body):
        ir.Operation.create("func.func", attributes=attributes, regions=1)

"""Store i1 elements as bytes: MLIR 22.1 aborts the process on a `memref.store` of i1."""

from __future__ import annotations

from typing import Any

import numpy as np
from mlir import ir
from mlir.dialects import arith

from mlir_passes.ir_tools import walk


def store_i1_as_i8(module: ir.Module) -> None:
    """Give every i1 memref byte elements, truncating after loads and extending before stores; in place."""
    ops = list(walk(module.operation))
    loads = [op for op in ops if op.name == "memref.load" and str(op.results[0].type) == "i1"]
    stores = [op for op in ops if op.name == "memref.store" and str(op.operands[0].type) == "i1"]
    globals_ = [op for op in ops if op.name == "memref.global"]
    for op in ops:
        for result in op.results:
            _retype(result)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    _retype(argument)
    i1, i8 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(8)
    for op in loads:
        result = op.results[0]
        result.set_type(i8)
        with ir.InsertionPoint.after(op):
            narrow = arith.TruncIOp(i1, result)
        result.replace_all_uses_except(narrow.result, narrow.operation)
    for op in stores:
        with ir.InsertionPoint(op):
            op.operands[0] = arith.ExtUIOp(i8, op.operands[0]).result
    for op in globals_:
        _retype_global(op, i8)
    for op in ops:
        if op.name == "func.func" and len(op.regions[0].blocks):
            signature = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            types = [a.type for a in op.regions[0].blocks[0].arguments]
            op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, signature.results))


def _byte_type(found: Any) -> Any | None:
    try:
        memref = ir.MemRefType(found)
    except ValueError:
        return None
    if str(memref.element_type) != "i1":
        return None
    return ir.MemRefType.get(memref.shape, ir.IntegerType.get_signless(8), memref.layout, memref.memory_space)


def _retype(value: Any) -> None:
    wanted = _byte_type(value.type)
    if wanted is not None:
        value.set_type(wanted)


def _retype_global(op: Any, i8: Any) -> None:
    wanted = _byte_type(ir.TypeAttr(op.attributes["type"]).value)
    if wanted is None:
        return
    op.attributes["type"] = ir.TypeAttr.get(wanted)
    content: Any = np.array(ir.DenseElementsAttr(op.attributes["initial_value"])).astype(np.int8)
    op.attributes["initial_value"] = ir.DenseElementsAttr.get(content, type=i8, shape=list(wanted.shape))

"""What JAX does to 64-bit arrays while jax_enable_x64 is off: it reads them in 32 bits. Said once, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.mlir import ir

Array = np.ndarray[Any, Any]


def read_as(dtype: Any) -> np.dtype[Any]:
    """The type that JAX computes with where it is given an array of `dtype`."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def kept(array: Array, what: str, notes: list[str]) -> Array:
    """`array` as gevo keeps it, with a note where JAX reads another type: integers stay as they are, for the step
    reads them; floats are rounded here, once and not in each step."""
    stored, read = array.dtype, read_as(array.dtype)
    if stored == read:
        return array
    off = "(jax_enable_x64 is off)"
    if stored.kind == "f":
        _note(notes, f"{what} is {stored}; kept as {read}, as JAX reads it {off}")
        return array.astype(read)
    limits = np.iinfo(read)
    beyond = array.size and (array.min() < limits.min or array.max() > limits.max)
    _note(notes, f"{what} is {stored}; JAX reads it as {read} {off}{', and values beyond that wrap' if beyond else ''}")
    return array


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def store_wide(module: Any, arguments: Sequence[np.dtype[Any]], results: Sequence[np.dtype[Any]]) -> None:
    """Give `@main` arguments of the stored types and, as leading results, those of `results`; it converts where it
    computes in others. In place."""
    main = next(op for op in module.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main")
    block = main.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    with module.context, ir.Location.unknown():
        for argument, stored in zip(block.arguments, arguments, strict=True):
            if stored != read_as(stored):
                narrow = argument.type
                argument.set_type(_like(narrow, stored))
                with ir.InsertionPoint.at_block_begin(block):
                    read = _converted(argument, narrow)
                argument.replace_all_uses_except(read, read.owner.operation)
        for number, stored in enumerate(results):
            if stored != read_as(stored):
                with ir.InsertionPoint(end):
                    value = end.operands[number]
                    end.operands[number] = _converted(value, _like(value.type, stored))
        types = [a.type for a in block.arguments], [v.type for v in end.operands]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))


def _converted(value: Any, to: Any) -> Any:
    return ir.Operation.create("stablehlo.convert", results=[to], operands=[value]).result


def _like(tensor: Any, stored: np.dtype[Any]) -> Any:
    """The tensor type with elements of a 64-bit integer type."""
    make = ir.IntegerType.get_unsigned if stored.kind == "u" else ir.IntegerType.get_signless
    return ir.RankedTensorType.get(ir.RankedTensorType(tensor).shape, make(64))

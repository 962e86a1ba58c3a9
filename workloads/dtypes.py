"""Which element types data, batch, state and metrics may have: by NumPy's name, and as the IR spells them.

The IR has no signs: an op says how it reads its operands. NumPy has no bf16: ml_dtypes brings it; files hold its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ELEMENTS = {
    "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "i8", "uint16": "i16", "uint32": "i32", "uint64": "i64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's type of this name, bfloat16 among them; raises TypeError for a name that it does not know."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floating-point numbers; NumPy says no of bfloat16."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array` as .npy and .npz files hold it: bfloat16, which they cannot name, as its 16 bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def from_bits(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """An array of a file, whose elements are of the type `name`; the 16 bits that `np.save` writes for bfloat16 by
    itself are read too."""
    is_bits = array.dtype == np.uint16 or array.dtype.str[1:] == "V2"
    return array.view(dtype_named(name)) if name == "bfloat16" and is_bits else array

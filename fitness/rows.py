"""A table of rows, and the tiny compiled loop over it. A row: a function, its arguments, padded with null."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fitness.loader import Loader
from fitness.team import row_call
from mlir_passes import llvm

Array = np.ndarray[Any, Any]
_WIDTH_STEP = 4
_LOOP = """
define void @run(ptr %table, i64 %rows, i64 %times) {{
entry:
  br label %step
step:
  %t = phi i64 [0, %entry], [%t1, %after]
  br label %row
row:
  %i = phi i64 [0, %step], [%i1, %row]
  %p = getelementptr [{columns} x ptr], ptr %table, i64 %i
  %f = load ptr, ptr %p
{loads}
  call void %f({args})
  %i1 = add i64 %i, 1
  %last = icmp eq i64 %i1, %rows
  br i1 %last, label %after, label %row
after:
  %t1 = add i64 %t, 1
  %done = icmp eq i64 %t1, %times
  br i1 %done, label %exit, label %step
exit:
  ret void
}}
"""


def table_of(rows: Sequence[Sequence[int]]) -> Array:
    """Rows (function, arguments) as `row_loop` wants them, padded to a common width."""
    width = max(map(len, rows)) - 1
    table = np.zeros((len(rows), 1 + -(-width // _WIDTH_STEP) * _WIDTH_STEP), np.uint64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


@dataclass(frozen=True)
class RowLoop:
    """The compiled loop, and what holds its code."""

    owner: Loader
    function: Any


@cache
def row_loop(width: int) -> RowLoop:
    """The loop over a table of rows, for rows of `width` arguments: function(table, rows, times)."""
    loader = Loader()
    ir_text = _LOOP.format(columns=width + 1, **row_call(width))
    loader.add(llvm.object_from_ir(ir_text, level=2), f"loop{width}")
    return RowLoop(loader, c.CFUNCTYPE(None, c.c_void_p, c.c_int64, c.c_int64)(loader.address("run")))

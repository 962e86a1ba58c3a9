"""Hand-made programs whose kernels honour `begin, end`, from LLVM IR text."""

from __future__ import annotations

import numpy as np
from fitness_toys import kernel, program

from mlir_passes.program import Buffer, Kernel, KernelCall, Plan, Program

# y[r, :] = chain of multiply-adds on x[(r + SHIFT) % ROWS, :]
ROWS_KERNEL = """
define void @NAME(ptr noalias %x, ptr noalias %y, i64 %begin, i64 %end) {
entry:
  %empty = icmp uge i64 %begin, %end
  br i1 %empty, label %exit, label %row
row:
  %r = phi i64 [%begin, %entry], [%r1, %next]
  %shifted = add i64 %r, SHIFT
  %from = urem i64 %shifted, ROWS
  %a0 = mul i64 %from, COLS
  %b0 = mul i64 %r, COLS
  br label %col
col:
  %c = phi i64 [0, %row], [%c1, %col]
  %ai = add i64 %a0, %c
  %bi = add i64 %b0, %c
  %pa = getelementptr float, ptr %x, i64 %ai
  %pb = getelementptr float, ptr %y, i64 %bi
  %v0 = load float, ptr %pa
CHAIN
  store float %vLAST, ptr %pb
  %c1 = add i64 %c, 1
  %cd = icmp eq i64 %c1, COLS
  br i1 %cd, label %next, label %col
next:
  %r1 = add i64 %r, 1
  %rd = icmp eq i64 %r1, %end
  br i1 %rd, label %exit, label %row
exit:
  ret void
}
"""
# out = sum of the first and the last row: a whole call that needs all slices
EDGES = """
define void @edges(ptr %x, ptr %out) {
entry:
  br label %col
col:
  %c = phi i64 [0, %entry], [%c1, %col]
  %s = phi float [0.0, %entry], [%s2, %col]
  %p = getelementptr float, ptr %x, i64 %c
  %l = add i64 %c, LASTROW
  %q = getelementptr float, ptr %x, i64 %l
  %a = load float, ptr %p
  %b = load float, ptr %q
  %s1 = fadd float %s, %a
  %s2 = fadd float %s1, %b
  %c1 = add i64 %c, 1
  %d = icmp eq i64 %c1, COLS
  br i1 %d, label %exit, label %col
exit:
  store float %s2, ptr %out
  ret void
}
"""


def rows_kernel(key: str, rows: int, cols: int, shift: int, chain: int, scale: float = 0.0) -> tuple[Kernel, bytes]:
    """y[r] = chain of v * 0.5 + 0.25 on x[(r + shift) % rows]; `scale` times its true cost, 0 for a high one."""
    steps = [f"  %m{k} = fmul float %v{k}, 0.5\n  %v{k + 1} = fadd float %m{k}, 0.25" for k in range(chain)]
    text = ROWS_KERNEL.replace("CHAIN", "\n".join(steps)).replace("LAST", str(chain)).replace("NAME", key)
    for name, value in (("ROWS", rows), ("COLS", cols), ("SHIFT", shift)):
        text = text.replace(name, str(value))
    size = rows * cols
    made, data = kernel(key, key, text, 2 * size * chain, 4 * size, 4 * size)
    cost = 10_000_000 if not scale else int(2 * size * chain * scale)
    return Kernel(key, key, "toy", text, cost, made.bytes_read, made.bytes_written, rows, 1), data


def mill(rows: int = 24, cols: int = 8, layers: int = 4, chain: int = 2, scale: float = 0.0) -> Program:
    """State w goes through `layers` of row kernels that read other rows than they write, and back into w.

    Two activations share the arena's memory in turn, so that every layer waits for the one before. The metric is
    a whole call on the last activation.
    """
    size = 4 * rows * cols
    pad = -(-size // 64) * 64
    shape = (rows, cols)
    buffers = (
        Buffer("w", "state", 0, size, shape, "float32"),
        Buffer("a", "activation", pad, size, shape, "float32"),
        Buffer("b", "activation", 2 * pad, size, shape, "float32"),
        Buffer("m", "metric", 3 * pad, 4, (), "float32"),
    )
    shift = kernel_shift(rows)
    parts = [rows_kernel("mix", rows, cols, shift, chain, scale)]
    text = EDGES.replace("LASTROW", str((rows - 1) * cols)).replace("COLS", str(cols))
    parts.append(kernel("edges", "edges", text, 2 * cols, 8 * cols, 4))
    calls: list[KernelCall] = []
    at = 0
    for layer in range(layers):
        to = 1 + layer % 2
        calls.append(KernelCall("mix", (at, to)))
        at = to
    calls += [KernelCall("edges", (at, 3)), KernelCall("mix", (at, 0))]
    return program(Plan(buffers, tuple(calls), (0,), (), (3,), 3 * pad + 4), parts)


def kernel_shift(rows: int) -> int:
    return rows // 2 + 1


def mill_state(rows: int = 24, cols: int = 8) -> np.ndarray:
    return np.random.default_rng(0).random((rows, cols), np.float32)

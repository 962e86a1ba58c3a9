"""Hand-made programs from LLVM IR text: a step that needs no MLIR."""

from __future__ import annotations

from dataclasses import replace

from mlir_passes import llvm
from mlir_passes.program import Buffer, Kernel, KernelCall, Plan, Program

# w -= 0.5 * (w - x) elementwise; loss = sum (w - x)^2 before the update
RESIDUAL = """
define void @residual(ptr %w, ptr %x, ptr %r) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %pw = getelementptr float, ptr %w, i64 %i
  %px = getelementptr float, ptr %x, i64 %i
  %pr = getelementptr float, ptr %r, i64 %i
  %a = load float, ptr %pw
  %b = load float, ptr %px
  %d = fsub float %a, %b
  store float %d, ptr %pr
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 8
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
"""
UPDATE = """
define void @update(ptr %w, ptr %r) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %pw = getelementptr float, ptr %w, i64 %i
  %pr = getelementptr float, ptr %r, i64 %i
  %a = load float, ptr %pw
  %d = load float, ptr %pr
  %h = fmul float %d, RATE
  %n = fsub float %a, %h
  store float %n, ptr %pw
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 8
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
"""
LOSS = """
define void @loss(ptr %r, ptr %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %s = phi float [0.0, %entry], [%t, %loop]
  %pr = getelementptr float, ptr %r, i64 %i
  %d = load float, ptr %pr
  %q = fmul float %d, %d
  %t = fadd float %s, %q
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 8
  br i1 %done, label %exit, label %loop
exit:
  store float %t, ptr %out
  ret void
}
"""
STATE = Buffer("w", "state", 0, 32, (8,), "float32")
BATCH = Buffer("x", "batch", 64, 32, (8,), "float32")
METRIC = Buffer("loss", "metric", 128, 4, (), "float32")
WORK = Buffer("r", "activation", 192, 32, (8,), "float32")


def kernel(key: str, symbol: str, text: str, flops: int, read: int, written: int) -> tuple[Kernel, bytes]:
    return Kernel(key, symbol, "toy", text, flops, read, written), llvm.object_from_ir(text)


def program(plan: Plan, parts: list[tuple[Kernel, bytes]]) -> Program:
    kernels = {k.key: k for k, _ in parts}
    return Program(plan, kernels, {k.key: data for k, data in parts}, "cpu", llvm.host().text)


def pull(rate: str = "5.000000e-01", peak: int = 224, work: Buffer = WORK) -> Program:
    """State w (8 floats) is pulled to the batch x by `rate`; the metric is the squared distance before it."""
    parts = [
        kernel("k1", "residual", RESIDUAL, 8, 64, 32),
        kernel("k2", "loss", LOSS, 16, 32, 4),
        kernel("k3", "update", UPDATE.replace("RATE", rate), 16, 64, 32),
    ]
    calls = (KernelCall("k1", (0, 1, 3)), KernelCall("k2", (3, 2)), KernelCall("k3", (0, 3)))
    plan = Plan((STATE, BATCH, METRIC, work), calls, (0,), (1,), (2,), peak)
    return program(plan, parts)


COUNT = """
@calls = internal global float 0.0
define void @count(ptr %out) {
  %a = load float, ptr @calls
  %b = fadd float %a, 1.0
  store float %b, ptr @calls
  store float %b, ptr %out
  ret void
}
"""


def counting() -> Program:
    """Like `pull`, but its metric is how often it ran: a step that keeps something outside its arena."""
    toy = pull()
    counter, data = kernel("k4", "count", COUNT, 1, 0, 4)
    plan = replace(toy.plan, calls=(*toy.plan.calls, KernelCall("k4", (2,))))
    return replace(toy, plan=plan, kernels={**toy.kernels, "k4": counter}, objects={**toy.objects, "k4": data})

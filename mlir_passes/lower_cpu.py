"""One kernel to host object bytes: schedule, bufferize, temporaries to workspace, loops, LLVM."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from mlir import ir
from mlir.dialects import linalg, memref
from mlir.dialects.llvm import translate_module_to_llvmir as translate  # pyright: ignore

from mlir_passes.errors import CompileError, PassError
from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.i1_storage import store_i1_as_i8
from mlir_passes.ir_tools import MLIR_ERRORS, body, function, operations, parse, run_passes, walk
from mlir_passes.kernels import contraction
from mlir_passes.llvm import host, object_from_ir
from mlir_passes.objects import PIPELINE_VERSION, KernelObject
from mlir_passes.outline import MAIN, ROOT, START

_ALIGN = 64
_BACKWARDS = re.compile(r"-d\d|\* -")
_BUFFERIZE = (
    "empty-tensor-to-alloc-tensor,one-shot-bufferize{allow-return-allocs-from-loops=true},"
    "drop-equivalent-buffer-results,canonicalize,cse,canonicalize,"
    "func.func(buffer-loop-hoisting,promote-buffers-to-stack{max-alloc-size-in-bytes=1024})"
)
_DEALLOCATE = "buffer-deallocation-pipeline,convert-bufferization-to-memref,inline,symbol-dce,canonicalize,cse"
_LOOPS = (
    "canonicalize,cse,fold-memref-alias-ops,func.func(convert-vector-to-scf{full-unroll=true}),"
    "convert-linalg-to-loops,func.func(scf-forall-to-for),canonicalize,cse"
)
_TO_LLVM = (
    "expand-strided-metadata,lower-affine,convert-scf-to-cf,canonicalize,cse,convert-vector-to-llvm,"
    "math-expand-ops,convert-math-to-llvm,convert-math-to-libm,expand-strided-metadata,lower-affine,"
    "convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-cf-to-llvm,convert-ub-to-llvm,"
    "reconcile-unrealized-casts,canonicalize,cse"
)


def kernel_key(kernel: KernelText) -> str:
    """Name of a kernel's object: its text and the version of the pipeline that lowers it."""
    return hashlib.sha256(f"{PIPELINE_VERSION}\n{kernel.text}".encode()).hexdigest()[:20]


def symbol(key: str) -> str:
    return f"k_{key}"


def compile_kernel(kernel: KernelText, key: str, context: ir.Context) -> KernelObject:
    """The object of a kernel by its family's schedule, or by plain loops where that fails; raises CompileError."""
    try:
        return _compile(kernel, key, context, scheduled=True)
    except PassError:
        return _compile(kernel, key, context, scheduled=False)


def _compile(kernel: KernelText, key: str, context: ir.Context, scheduled: bool) -> KernelObject:
    try:
        with context, ir.Location.unknown():
            module = parse(kernel.text.replace(PLACEHOLDER, symbol(key)), context, "compile")
            if scheduled:
                _schedule(module, kernel.kind, symbol(key))
            _strip_marks(module)
            run_passes(module, _BUFFERIZE, "compile")
            workspace = _workspace(module, symbol(key))
            _copies_to_linalg(module)
            if _has(module, "memref.alloc"):
                run_passes(module, _DEALLOCATE, "compile")
            run_passes(module, _LOOPS, "compile")
            store_i1_as_i8(module)
            _mark_arguments(function(module, symbol(key)))
            run_passes(module, _TO_LLVM, "compile")
            text = translate(module.operation)
        return KernelObject(object_from_ir(text), workspace)
    except MLIR_ERRORS as error:
        raise CompileError("compile", f"kernel {key}: {str(error).strip()[:400]}") from error


def _schedule(module: ir.Module, kind: str, name: str) -> None:
    """Apply the kernel family's transform script, where the family has one."""
    if kind != "contraction":
        return
    ops = [op for op in operations(body(function(module, name))) if op.name == "linalg.generic"]
    main = next(op for op in ops if MAIN in op.attributes)
    root = next(op for op in ops if ROOT in op.attributes)
    script = contraction.script(main, root, host().vector_bytes)
    if script is None or any(_runs_backwards(op) for op in ops):
        return
    module.operation.attributes["transform.with_named_sequence"] = ir.UnitAttr.get()
    holder = parse(f"module attributes {{transform.with_named_sequence}} {{\n{script}\n}}", module.context, "compile")
    module.body.append(holder.body.operations[0].operation.clone().operation)
    run_passes(module, "transform-interpreter", "compile")
    for op in operations(module.body):
        if op.name == "transform.named_sequence":
            op.erase()
    del module.operation.attributes["transform.with_named_sequence"]


def _runs_backwards(op: Any) -> bool:
    """Whether an operand is read against the direction of a loop: tiling asserts on a negative coefficient."""
    return _BACKWARDS.search(str(op.attributes["indexing_maps"])) is not None


def _strip_marks(module: ir.Module) -> None:
    for op in walk(module.operation):
        for mark in (MAIN, ROOT, START):
            if mark in op.attributes:
                del op.attributes[mark]


def _has(module: ir.Module, name: str) -> bool:
    return any(op.name == name for op in walk(module.operation))


def _workspace(module: ir.Module, name: str) -> int:
    """Turn the kernel's static temporaries into views of one more argument; its size in bytes."""
    func_op = function(module, name)
    block = body(func_op)
    temporaries = [op for op in operations(block) if op.name == "memref.alloc" and not len(op.operands)]
    if not temporaries:
        return 0
    offsets: list[int] = []
    total = 0
    for op in temporaries:
        offsets.append(total)
        total += -(-_bytes(op.results[0].type) // _ALIGN) * _ALIGN
    i8 = ir.IntegerType.get_signless(8)
    space = block.add_argument(ir.MemRefType.get([total], i8), ir.Location.unknown())
    types = [a.type for a in block.arguments]
    func_op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    index = ir.IndexType.get()
    for op, offset in zip(temporaries, offsets, strict=True):
        with ir.InsertionPoint(op):
            at = ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, offset)}
            ).result
            view = memref.view(op.results[0].type, space, at, [])
        op.results[0].replace_all_uses_with(view)
        op.erase()
    return total


def _bytes(value_type: Any) -> int:
    found = ir.MemRefType(value_type)
    count = 1
    for dim in found.shape:
        count *= dim
    bits = 64 if str(found.element_type) == "index" else int(str(found.element_type).lstrip("bfi"))
    return count * max(1, bits // 8)


def _copies_to_linalg(module: ir.Module) -> None:
    """Replace memref.copy, which would call into a runtime library, by a loop."""
    for op in [o for o in walk(module.operation) if o.name == "memref.copy"]:
        if op.operands[0] != op.operands[1]:
            with ir.InsertionPoint(op):
                linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()


def _mark_arguments(func_op: Any) -> None:
    """Say that arguments do not overlap. In-place kernels pass one buffer twice; they read every element
    before they write it and no other, so that the promise changes nothing for them."""
    promise = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
    count = len(body(func_op).arguments)
    func_op.attributes["arg_attrs"] = ir.ArrayAttr.get([promise] * count)

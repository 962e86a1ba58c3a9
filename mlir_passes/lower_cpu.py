"""One kernel to host object bytes: by its family's emitter, or, where that does not know it, by plain loops."""

from __future__ import annotations

import hashlib
from typing import Any

from mlir import ir
from mlir.dialects import linalg, memref
from mlir.dialects.llvm import translate_module_to_llvmir as translate  # pyright: ignore

from mlir_passes.c_library import call_functions
from mlir_passes.errors import CompileError
from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.i1_storage import store_i1_as_i8
from mlir_passes.ir_tools import MLIR_ERRORS, body, function, operations, parse, run_passes, walk
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice, check
from mlir_passes.kernels.collapse import collapse
from mlir_passes.kernels.emit import emit
from mlir_passes.kernels.families import defaults
from mlir_passes.kernels.machine import Machine
from mlir_passes.kernels.nest import Nest, NotCovered
from mlir_passes.kernels.read import read
from mlir_passes.llvm import host, object_from_ir
from mlir_passes.objects import PIPELINE_VERSION, KernelObject
from mlir_passes.outline import INPLACE

_ALIGN = 64
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
_IN_F32 = (  # arithmetic on f16 and bf16, for which LLVM calls a library that is not there
    "math-extend-to-supported-types{target-type=f32},"
    "arith-emulate-unsupported-floats{source-types=bf16,f16 target-type=f32},arith-expand{include-bf16=true}"
)


_EMITTED_TO_LLVM = (
    "convert-scf-to-cf,convert-vector-to-llvm{reassociate-fp-reductions=true},convert-math-to-llvm,"
    "convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-cf-to-llvm,reconcile-unrealized-casts"
)


def kernel_hash(kernel: KernelText) -> str:
    """What a kernel is known by in `Choices`: its text, whatever lowers it."""
    return hashlib.sha256(kernel.text.encode()).hexdigest()[:20]


# What O2 does for code that is in vectors already, and no more: two thirds of its time, within 2 % of its speed
# over the kernels of resnet18 and llama. Where one round of instcombine does not settle, LLVM would end the process.
_LLVM_PASSES = (
    "function(early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,loop-mssa(licm),gvn,loop(indvars),"
    "loop-unroll<O2;no-peeling>,instcombine<no-verify-fixpoint>,early-cse,simplifycfg)"
)


def kernel_key(kernel: KernelText, choice: Choice = DEFAULT) -> str:
    """Name of a kernel's object: its text, the version of the pipeline that lowers it, and how it is made."""
    made = f"{PIPELINE_VERSION}\n{kernel.text}" + ("" if choice == DEFAULT else f"\n{choice.text}")
    return hashlib.sha256(made.encode()).hexdigest()[:20]


def symbol(key: str) -> str:
    return f"k_{key}"


def compile_kernel(kernel: KernelText, key: str, context: ir.Context, choice: Choice = DEFAULT) -> KernelObject:
    """The object of a kernel, as chosen or, where that does not fit it, by default; raises CompileError."""
    try:
        with context, ir.Location.unknown():
            for one in dict.fromkeys((choice, DEFAULT)):
                try:
                    return compile_choice(kernel, key, context, one)
                except NotCovered:
                    continue
            return _by_loops(kernel, key, context)
    except MLIR_ERRORS as error:
        raise CompileError("compile", f"kernel {key}: {str(error).strip()[:400]}") from error


def compile_choice(kernel: KernelText, key: str, context: ir.Context, choice: Choice) -> KernelObject:
    """The object of a kernel exactly as chosen; raises NotCovered where that cannot be, and what MLIR raises."""
    with context, ir.Location.unknown():
        return _by_blas(kernel, key, context) if choice == BLAS else _by_emitter(kernel, key, context, choice)


def read_nest(kernel: KernelText, context: ir.Context) -> Nest:
    """A kernel as loops and expressions, for its families; raises NotCovered, PassError."""
    with context, ir.Location.unknown():
        module = parse(kernel.text, context, "compile")
        return collapse(read(function(module, PLACEHOLDER)))


def machine() -> Machine:
    """The host's vectors."""
    width = host().vector_bytes
    return Machine(width, 32 if width == 64 else 16)


def _by_blas(kernel: KernelText, key: str, context: ir.Context) -> KernelObject:
    return KernelObject(object_from_ir(blas.llvm_ir(read_nest(kernel, context), symbol(key))), 0)


def _by_emitter(kernel: KernelText, key: str, context: ir.Context, choice: Choice) -> KernelObject:
    module = parse(kernel.text, context, "compile")
    func_op = function(module, PLACEHOLDER)
    nest = collapse(read(func_op))
    aliased = _aliased(func_op)
    if choice.schedules:
        check(nest, choice.schedules)
    chosen = choice.schedules or defaults(nest, machine())
    text, shards = emit(nest, chosen, symbol(key), aliased)
    module = parse(text, context, "compile")
    run_passes(module, _EMITTED_TO_LLVM, "compile")
    return KernelObject(object_from_ir(translate(module.operation), passes=_LLVM_PASSES), 0, shards)


def _by_loops(kernel: KernelText, key: str, context: ir.Context) -> KernelObject:
    module = parse(kernel.text.replace(PLACEHOLDER, symbol(key)), context, "compile")
    run_passes(module, _BUFFERIZE, "compile")
    workspace = _workspace(module, symbol(key))
    _mark_arguments(function(module, symbol(key)))
    _copies_to_linalg(module)
    if _has(module, "memref.alloc"):
        run_passes(module, _DEALLOCATE, "compile")
    run_passes(module, _LOOPS, "compile")
    store_i1_as_i8(module)
    if "f16" in kernel.text:  # bf16 too
        run_passes(module, _IN_F32, "compile")
    call_functions(module)
    run_passes(module, _TO_LLVM, "compile")
    return KernelObject(object_from_ir(translate(module.operation)), workspace)


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
    """Say that arguments do not overlap, but for those that may be one buffer with another."""
    promise, none = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()}), ir.DictAttr.get({})
    count, shared = len(body(func_op).arguments), _aliased(func_op)
    func_op.attributes["arg_attrs"] = ir.ArrayAttr.get([none if i in shared else promise for i in range(count)])


def _aliased(func_op: Any) -> frozenset[int]:
    """Arguments that may be one buffer with another."""
    marks = list(func_op.attributes["arg_attrs"]) if "arg_attrs" in func_op.attributes else []
    return frozenset(i for i, found in enumerate(marks) if INPLACE in found)

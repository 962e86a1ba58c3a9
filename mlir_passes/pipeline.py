"""The one list of named stages from a base module and edits to a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mlir import ir

from mlir_passes.canonical import canonicalise, cleaned, fingerprint
from mlir_passes.edits.base import Edit
from mlir_passes.errors import CompileError
from mlir_passes.graph import KernelText
from mlir_passes.ir_tools import body, function, new_context, parse
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.llvm import host
from mlir_passes.lower_cpu import compile_kernel, kernel_hash, kernel_key, symbol
from mlir_passes.objects import KernelObject, ObjectCache
from mlir_passes.partition import partition
from mlir_passes.plan import make_plan, settle_state
from mlir_passes.program import Kernel, Plan, Program
from mlir_passes.repair import Editor

STAGES = ("parse", "edit", "verify", "cleanup", "partition", "compile", "plan")
OnStage = Callable[[str], None]


@dataclass(frozen=True)
class Variant:
    """A step with its edits applied, simplified; variants with one fingerprint are one program."""

    module: ir.Module
    text: str
    fingerprint: str


def parse_base(text: str, context: ir.Context | None = None) -> ir.Module:
    """A numbered base module, ready for `edit_module`; a process that forks parses it once, before."""
    return parse(text, context or new_context())


def edit_module(module: ir.Module, edits: Sequence[Edit], on_stage: OnStage = lambda _: None) -> Variant:
    """The variant that `edits` make of a base module, which is used up; raises EditDoesNotApply or PassError."""
    on_stage("edit")
    editor = Editor(body(function(module, "step")))
    for edit in edits:
        edit.apply(editor)
    on_stage("verify")
    text = cleaned(module, "step")
    return Variant(module, text, fingerprint(text))


def apply_genome(base_text: str, edits: Sequence[Edit], on_stage: OnStage = lambda _: None) -> Variant:
    """The variant of a numbered base module given as text."""
    on_stage("parse")
    return edit_module(parse_base(base_text), edits, on_stage)


def compile_program(
    text: str,
    entry: str,
    n_state: int,
    n_batch: int,
    cache: ObjectCache,
    on_stage: OnStage = lambda _: None,
    choices: Mapping[str, Choice] | None = None,
) -> Program:
    """The program of a cleaned module given as text; see `compile_module`."""
    return compile_module(parse_base(text), entry, n_state, n_batch, cache, on_stage, choices=choices)


def compile_module(
    module: ir.Module,
    entry: str,
    n_state: int,
    n_batch: int,
    cache: ObjectCache,
    on_stage: OnStage = lambda _: None,
    kernel_context: ir.Context | None = None,
    choices: Mapping[str, Choice] | None = None,
) -> Program:
    """Cut, compile and plan a cleaned module, which is used up; raises PassError, CompileError.

    With entry "step" the leading `n_state` results are new state; with any other entry the state is
    only read and every result is a metric. Kernels are lowered in a context of their own: every dialect that
    a context has loaded makes each canonicalisation in it dearer. choices: how to make kernels, by `kernel_hash`;
    the others are made by default.
    """
    on_stage("partition")
    updated = n_state if entry == "step" else 0
    settled = settle_state(partition(module, entry, updated), updated)
    on_stage("compile")
    kernels = settled.graph.kernels
    chosen = [usable((choices or {}).get(kernel_hash(kernel), DEFAULT)) for kernel in kernels]
    keys = [kernel_key(kernel, choice) for kernel, choice in zip(kernels, chosen, strict=True)]
    texts = dict(zip(keys, zip(kernels, chosen, strict=True), strict=True))
    context = kernel_context or new_context()
    made = {key: _object(kernel, key, cache, context, choice) for key, (kernel, choice) in texts.items()}
    on_stage("plan")
    workspaces = {key: found.workspace for key, found in made.items()}
    return Program(
        plan=make_plan(settled, keys, workspaces, n_state, n_batch),
        kernels={
            key: _described(kernel, key, made[key].shards, blas.symbol() if choice == BLAS else "")
            for key, (kernel, choice) in texts.items()
        },
        objects={key: found.code for key, found in made.items()},
        target="cpu",
        cpu=host().text,
    )


def usable(choice: Choice) -> Choice:
    """`choice`, or the default where it wants a library that is not here."""
    return DEFAULT if choice == BLAS and not blas.symbol() else choice


def recompile(program: Program) -> Program:
    """The program with objects for this machine, made by default; raises CompileError, also where its plan has too
    little workspace."""
    context = new_context()
    room = _workspaces(program.plan)
    objects: dict[str, bytes] = {}
    kernels: dict[str, Kernel] = {}
    for key, kernel in program.kernels.items():
        made = compile_kernel(kernel_text(kernel), key, context)
        if made.workspace > room.get(key, 0):
            raise CompileError("plan", f"kernel {key} needs more workspace on this CPU", "Export it again here")
        objects[key] = made.code
        kernels[key] = replace(kernel, shards=made.shards, library="")
    return replace(program, kernels=kernels, objects=objects, cpu=host().text)


def _workspaces(plan: Plan) -> dict[str, int]:
    """Bytes of workspace that the plan gives each kernel."""
    room: dict[str, int] = {}
    for call in plan.calls:
        last = plan.buffers[call.args[-1]] if call.args else None
        if last is not None and last.role == "workspace":
            room[call.kernel] = min(last.bytes, room.get(call.kernel, last.bytes))
    return room


def warm_up(context: ir.Context) -> ir.Context:
    """Compile a small step for nothing, so that children forked later find MLIR and LLVM initialised.

    `context` is the one for steps; the one returned is for kernels.
    """
    text = """func.func @step(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8x8xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = linalg.matmul ins(%x, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%fill : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}"""
    kernel_context = new_context()
    module = canonicalise(text, "step", context)
    compile_module(module, "step", 1, 0, ObjectCache(None), kernel_context=kernel_context)
    return kernel_context


def canonical_text(text: str, entry: str) -> str:
    """A frontend's module as `compile_program` wants it; raises PassError, UnsupportedOp."""
    return cleaned(canonicalise(text, entry, new_context()), entry)


def _object(
    kernel: KernelText, key: str, cache: ObjectCache, context: ir.Context, choice: Choice = DEFAULT
) -> KernelObject:
    found = cache.get(key)
    if found is None:
        found = compile_kernel(kernel, key, context, choice)
        cache.put(key, found)
    return found


def _described(kernel: KernelText, key: str, shards: int, library: str) -> Kernel:
    costs = kernel.flops, kernel.bytes_read, kernel.bytes_written
    return Kernel(key, symbol(key), kernel.kind, kernel.text, *costs, shards, kernel.inputs, library)


def kernel_text(kernel: Kernel) -> KernelText:
    """A compiled kernel as the emitters take it."""
    return KernelText(kernel.kind, kernel.text, kernel.inputs, 0, kernel.flops, kernel.bytes_read, kernel.bytes_written)

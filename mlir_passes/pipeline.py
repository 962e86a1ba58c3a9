"""The one list of named stages from a base module and edits to a compiled program."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mlir import ir

from mlir_passes.canonical import canonical_module, canonicalise, cleaned, fingerprint
from mlir_passes.edits.base import Edit
from mlir_passes.errors import CompileError
from mlir_passes.graph import KernelText
from mlir_passes.ir_tools import body, entry_of, function, new_context, parse
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, DEFAULT, Choice
from mlir_passes.llvm import host
from mlir_passes.lower_cpu import compile_kernel, kernel_hash, kernel_key, symbol
from mlir_passes.objects import KernelObject, ObjectCache
from mlir_passes.parallel import compile_missing
from mlir_passes.partition import partition
from mlir_passes.plan import LineOf, Settled, make_plan, settle_state
from mlir_passes.program import Kernel, Plan, Program
from mlir_passes.repair import Editor
from mlir_passes.schedule.genes import Gene, to_plain

STAGES = ("parse", "edit", "verify", "cleanup", "partition", "compile", "plan")
OnStage = Callable[[str], None]


@dataclass(frozen=True)
class Variant:
    """A step with its edits applied, simplified; variants with one fingerprint are one program."""

    module: ir.Module
    text: str
    fingerprint: str
    storage: str = "f32"
    schedule: tuple[Gene, ...] = ()


def parse_base(text: str, context: ir.Context | None = None) -> ir.Module:
    """A numbered base module, ready for `edit_module`; a process that forks parses it once, before."""
    return parse(text, context or new_context())


def edit_module(
    module: ir.Module,
    edits: Sequence[Edit],
    on_stage: OnStage = lambda _: None,
    storage: str = "f32",
    schedule: Sequence[Gene] = (),
) -> Variant:
    """The variant that `edits` make of a base module, which is used up; raises EditDoesNotApply or PassError.

    storage: what its values between kernels are to be stored in. schedule: the genes of the line that its plan is to
    follow. With f32 and no genes the fingerprint is of the text alone.
    """
    on_stage("edit")
    entry = entry_of(module)
    editor = Editor(body(function(module, entry)))
    for edit in edits:
        edit.apply(editor)
    on_stage("verify")
    text = cleaned(module, entry)
    made_of = text if storage == "f32" else f"{text}\nstorage {storage}"
    made_of += f"\nschedule {json.dumps(to_plain(schedule))}" if schedule else ""
    return Variant(module, text, fingerprint(made_of), storage, tuple(schedule))


def apply_genome(
    base_text: str,
    edits: Sequence[Edit],
    on_stage: OnStage = lambda _: None,
    storage: str = "f32",
    schedule: Sequence[Gene] = (),
) -> Variant:
    """The variant of a numbered base module given as text."""
    on_stage("parse")
    return edit_module(parse_base(base_text), edits, on_stage, storage, schedule)


def compile_program(
    text: str,
    entry: str,
    n_state: int,
    n_batch: int,
    cache: ObjectCache,
    on_stage: OnStage = lambda _: None,
    choices: Mapping[str, Choice] | None = None,
    storage: str = "f32",
    line_of: LineOf | None = None,
) -> Program:
    """The program of a cleaned module given as text; see `compile_module`."""
    module = parse_base(text)
    return compile_module(module, entry, n_state, n_batch, cache, on_stage, None, choices, storage, line_of)


def compile_module(
    module: ir.Module,
    entry: str,
    n_state: int,
    n_batch: int,
    cache: ObjectCache,
    on_stage: OnStage = lambda _: None,
    kernel_context: ir.Context | None = None,
    choices: Mapping[str, Choice] | None = None,
    storage: str = "f32",
    line_of: LineOf | None = None,
) -> Program:
    """Cut, compile and plan a cleaned module, which is used up; raises PassError, CompileError.

    With entry "step" the leading `n_state` results are new state; with any other entry the state is
    only read and every result is a metric. Kernels are lowered in a context of their own: every dialect that
    a context has loaded makes each canonicalisation in it dearer. choices: how to make kernels, by `kernel_hash`;
    the others are made by default. storage: what values between kernels are stored in, of `storage.STORAGES`.
    line_of: what makes the line of steps that the plan follows; without it each call runs once.
    """
    on_stage("partition")
    updated = _updated(entry, n_state)
    settled = settle_state(partition(module, entry, updated, storage), updated)
    on_stage("compile")
    wanted, context = _wanted(settled, choices), kernel_context or new_context()
    objects = {key: _object(*found, key, cache, context) for key, found in wanted.items()}
    on_stage("plan")
    return _program(settled, wanted, objects, n_state, n_batch, line_of)


def compile_text(
    text: str,
    entry: str,
    n_state: int,
    n_batch: int,
    cache: ObjectCache,
    choices: Mapping[str, Choice] | None = None,
    storage: str = "f32",
    jobs: int = 0,
    line_of: LineOf | None = None,
) -> Program:
    """The program of a module as a frontend wrote it; see `compile_module`. How it is cut is kept in the cache
    too, and kernels that are not there are compiled by `jobs` processes (0: one a core)."""
    key = hashlib.sha256(f"{entry} {n_state} {storage}\n{text}".encode()).hexdigest()[:20]
    graph = cache.get_graph(key)
    if graph is None:
        graph = partition(canonical_module(text, entry), entry, _updated(entry, n_state), storage)
        cache.put_graph(key, graph)
    settled = settle_state(graph, _updated(entry, n_state))
    wanted = _wanted(settled, choices)
    if cache.root is not None:
        compile_missing(wanted, cache.root, jobs or len(os.sched_getaffinity(0)))
    context = new_context()
    objects = {key: _object(*found, key, cache, context) for key, found in wanted.items()}
    return _program(settled, wanted, objects, n_state, n_batch, line_of)


def _updated(entry: str, n_state: int) -> int:
    """How many leading results are new state."""
    return n_state if entry == "step" else 0


def _wanted(settled: Settled, choices: Mapping[str, Choice] | None) -> dict[str, tuple[KernelText, Choice]]:
    """The kernels of a graph, each with how it is made, by key."""
    found: dict[str, tuple[KernelText, Choice]] = {}
    for kernel in settled.graph.kernels:
        choice = usable((choices or {}).get(kernel_hash(kernel), DEFAULT))
        found[kernel_key(kernel, choice)] = kernel, choice
    return found


def _program(
    settled: Settled,
    wanted: Mapping[str, tuple[KernelText, Choice]],
    objects: Mapping[str, KernelObject],
    n_state: int,
    n_batch: int,
    line_of: LineOf | None,
) -> Program:
    key_of = {kernel.text: key for key, (kernel, _) in wanted.items()}
    keys = [key_of[kernel.text] for kernel in settled.graph.kernels]
    workspaces = {key: found.workspace for key, found in objects.items()}
    line = line_of(settled, keys, workspaces) if line_of else None
    return Program(
        plan=make_plan(settled, keys, workspaces, n_state, n_batch, line),
        kernels={
            key: _described(kernel, key, objects[key].shards, blas.symbol() if choice == BLAS else "")
            for key, (kernel, choice) in wanted.items()
        },
        objects={key: found.code for key, found in objects.items()},
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


def _object(kernel: KernelText, choice: Choice, key: str, cache: ObjectCache, context: ir.Context) -> KernelObject:
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

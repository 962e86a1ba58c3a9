"""A kernel in words: what it computes, over which loops, and what makes it code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.ir_tools import body, function, iterators, operations, parse, producer, tensor_type
from mlir_passes.kernels import blas
from mlir_passes.kernels.choice import BLAS, Choice
from mlir_passes.kernels.emit import emit
from mlir_passes.kernels.families import defaults, family
from mlir_passes.kernels.machine import trips
from mlir_passes.kernels.nest import Nest, NotCovered, Phase
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.linalg_ops import indexing_map, is_contraction, loop_sizes
from mlir_passes.lower_cpu import machine, read_nest

EMITTER, OPENBLAS, LOOPS = "emitter", "OpenBLAS", "plain loops"
_MOVES = {"tensor.pad": "pad", "tensor.extract_slice": "slice", "tensor.insert_slice": "insert", "memref.copy": "copy"}
_COMBINERS = {"add": "sum", "mul": "product of all"}
_SAID = {"max": "max", "min": "min", "cmp": "compare", "sitof": "convert", "uitof": "convert", "fpto": "convert"}
_UNSAID = ("constant", "index_cast", "extract", "index", "yield")
_MOST_NAMES = 5  # of the different ops of one loop nest


@dataclass(frozen=True)
class Description:
    """work: what each of its ops does, in order. loops: trip counts of the largest, those of a sum after "sum".

    made_by: EMITTER, OPENBLAS or LOOPS; phases: for the emitter, the family and tile of each; why: for plain loops,
    what the emitter does not know.
    """

    work: tuple[str, ...]
    loops: str
    made_by: str
    phases: tuple[str, ...] = ()
    why: str = ""


def describe(kernel: KernelText, choice: Choice, context: ir.Context) -> Description:
    """A kernel as `lower_cpu.compile_kernel` makes it by `choice`; raises PassError."""
    with context, ir.Location.unknown():
        module = parse(kernel.text, context)
        ops = operations(body(function(module, PLACEHOLDER)))
        work = [op for op in ops if op.name in ("linalg.generic", *_MOVES) or op.name.startswith("scf.")]
        words = tuple(dict.fromkeys(map(_work, work)))
        try:
            nest = read_nest(kernel, context)
            chosen = choice.schedules or tuple(defaults(nest, machine()))
            if choice != BLAS:
                emit(nest, chosen, PLACEHOLDER, frozenset())
        except NotCovered as error:
            return Description(words, _loops_of_ops(work), LOOPS, why=str(error))
        if choice == BLAS and blas.symbol() and blas.product(nest) is not None:
            return Description(words, _loops(nest), OPENBLAS)
        if choice == BLAS:
            chosen = tuple(defaults(nest, machine()))
        phases = tuple(f"{family(nest, p)} {tile(nest, p, s)}" for p, s in zip(nest.phases, chosen, strict=True))
        return Description(words, _loops(nest), EMITTER, phases)


def tile(nest: Nest, phase: Phase, schedule: Schedule) -> str:
    """A schedule in short: what is unrolled, times vectors, times lanes; then what is special."""
    reduced = nest.reduced(phase)
    unrolled = [count for loop, count in schedule.unroll if loop not in reduced]
    deep = math.prod(count for loop, count in schedule.unroll if loop in reduced)
    text = "x".join(map(str, [*unrolled, schedule.columns, schedule.lanes])) if schedule.vector >= 0 else "scalar"
    if schedule.vector in reduced:
        text += " along the sum"
    if deep > 1:
        text += f", {deep} terms at once"
    return text + (", packed" if schedule.pack else "")


def _loops(nest: Nest) -> str:
    phase = max(nest.phases, key=lambda p: trips(nest, p.loops))
    outer = [nest.sizes[loop] for loop in (*nest.rows, *nest.parallel(phase))]
    return _sizes(outer, [nest.sizes[loop] for loop in nest.reduced(phase)])


def _loops_of_ops(work: Sequence[Any]) -> str:
    """The loops of the largest op; of what is no loop nest, its result's shape."""
    found: list[tuple[list[int], list[int]]] = []
    for op in work:
        if op.name == "linalg.generic":
            kinds, sizes = iterators(op), loop_sizes(op)
            both = list(zip(kinds, sizes, strict=True))
            found.append(([n for k, n in both if k == "p"], [n for k, n in both if k == "r"]))
        elif len(op.results):
            made = tensor_type(op.results[0].type)
            found.append((list(made.shape) if made else [], []))
        else:
            return f"{ir.MemRefType(op.operands[0].type).shape[0]} bytes"  # of a copy, which is all there is
    outer, inner = max(found, key=lambda pair: math.prod(pair[0]) * math.prod(pair[1]), default=([], []))
    return _sizes(outer, inner)


def _sizes(outer: Sequence[int], inner: Sequence[int]) -> str:
    text = "x".join(map(str, outer)) or "1"
    return f"{text} sum {'x'.join(map(str, inner))}" if inner else text


def _work(op: Any) -> str:
    if op.name in _MOVES:
        return _MOVES[op.name]
    if op.name != "linalg.generic":
        return op.name.partition(".")[2]
    if is_contraction(op):
        return "product" if all(_one_loop_a_dimension(op, i) for i in (0, 1)) else "convolution"
    inner = operations(op.regions[0].blocks[0])
    if "r" not in iterators(op):
        return _named(inner) or _move(op)
    combiners = [producer(value) for value in inner[-1].operands]
    rest = _named([o for o in inner if all(c is None or o != c for c in combiners)])
    what = ", ".join(dict.fromkeys(_combined(c) for c in combiners))
    return f"{what} of {rest}" if rest else what


def _one_loop_a_dimension(op: Any, operand: int) -> bool:
    return all(isinstance(e, ir.AffineDimExpr) for e in indexing_map(op, operand).results)


def _move(op: Any) -> str:
    """What an op that computes nothing does."""
    if len(op.operands) != 2:
        return "copy"
    read = indexing_map(op, 0)
    if not all(isinstance(e, ir.AffineDimExpr) for e in read.results):
        return "reverse"
    if len(read.results) < read.n_dims:
        return "broadcast"
    return "copy" if read == ir.AffineMap.get_identity(read.n_dims, context=read.context) else "transpose"


def _combined(op: Any) -> str:
    name = "copy" if op is None else _short(op.name)
    return _COMBINERS.get(name, name)


def _named(ops: Sequence[Any]) -> str:
    names = list(dict.fromkeys(_names(ops)))
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


def _names(ops: Sequence[Any]) -> Iterator[str]:
    for op in ops:
        name = op.name.partition(".")[2]
        if name == "extract":
            yield "gather"
        elif name not in _UNSAID:
            yield _short(op.name)


def _short(name: str) -> str:
    """Of "arith.maximumf", "max"."""
    short = name.partition(".")[2]
    for long, said in _SAID.items():
        if short.startswith(long):
            return said
    return short.rstrip("fi") if name.startswith("arith.") else short.removesuffix("f")

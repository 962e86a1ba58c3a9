"""Steps written once: every op is appended as MLIR text and done in float64 at once, with a bound of its rounding.

A value carries what it is exactly and how far a compiled step may be from that: running error analysis, first order,
for any order of a sum. Where a comparison is within its own rounding, both outcomes are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from small_steps import memory_cache, run_program

from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.emit import emit
from mlir_passes.kernels.families import defaults, family
from mlir_passes.lower_cpu import machine, read_nest
from mlir_passes.pipeline import canonical_text, compile_program, kernel_text
from mlir_passes.program import Program

ROUNDING = {"f32": 2.0**-24, "f64": 2.0**-53}  # half a unit in the last place, relative
SLACK = 1.01  # for terms of second order
TINY = {"f32": 1e-37, "f64": 1e-300}
DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i1": np.bool_}
NAMES = {np.dtype(d): name for name, d in DTYPES.items()}
INFINITY = {("f32", 1): "0x7F800000", ("f32", -1): "0xFF800000", ("f64", -1): "0xFFF0000000000000"}
_ERF = np.vectorize(math.erf, otypes=[np.float64])


def held(element: str) -> Any:
    """The type in which exact values of an element type are kept."""
    return np.float64 if element[0] == "f" else DTYPES[element]


def literal(value: float, element: str) -> str:
    if element == "i1":
        return "true" if value else "false"
    if element[0] != "f":
        return str(int(value))
    if math.isinf(value):
        return INFINITY[element, 1 if value > 0 else -1]
    return f"{value:.17e}"


@dataclass(frozen=True)
class Tensor:
    name: str
    element: str
    exact: np.ndarray
    error: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.exact.shape

    @property
    def type(self) -> str:
        return tensor(self.shape, self.element)


def tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


@dataclass(frozen=True, eq=False)
class Element:
    """A scalar of a body: its SSA name, and its value in every iteration."""

    lines: list[str]
    name: str
    element: str
    exact: Any
    error: Any

    def _op(self, op: str, others: Sequence[Element], exact: Any, error: Any, ulps: float = 1.0) -> Element:
        """An arith or math op of one type; ulps: how many half units in the last place it rounds by."""
        name = f"%b{len(self.lines)}"
        given = ", ".join(e.name for e in (self, *others))
        self.lines.append(f"{name} = {op} {given} : {self.element}")
        if self.element[0] == "f":
            error = error + ulps * ROUNDING[self.element] * (np.abs(exact) + error) + TINY[self.element]
        return Element(self.lines, name, self.element, exact, error)

    def _kind(self, floats: str, integers: str) -> str:
        return f"arith.{floats if self.element[0] == 'f' else integers}"

    def of(self, value: float) -> Element:
        """A constant of this one's type."""
        return constant(self.lines, value, self.element)

    def _other(self, other: Element | float) -> Element:
        return other if isinstance(other, Element) else self.of(other)

    def __add__(self, value: Element | float) -> Element:
        other = self._other(value)
        return self._op(self._kind("addf", "addi"), [other], self.exact + other.exact, self.error + other.error)

    def __sub__(self, value: Element | float) -> Element:
        other = self._other(value)
        return self._op(self._kind("subf", "subi"), [other], self.exact - other.exact, self.error + other.error)

    def __mul__(self, value: Element | float) -> Element:
        other = self._other(value)
        error = np.abs(self.exact) * other.error + np.abs(other.exact) * self.error + self.error * other.error
        return self._op(self._kind("mulf", "muli"), [other], self.exact * other.exact, error)

    def __truediv__(self, value: Element | float) -> Element:
        other = self._other(value)
        exact = self.exact / other.exact
        error = (self.error + np.abs(exact) * other.error) / (np.abs(other.exact) - other.error)
        return self._op("arith.divf", [other], exact, error)

    def __neg__(self) -> Element:
        return self._op("arith.negf", [], -self.exact, self.error, 0)

    def abs(self) -> Element:
        return self._op("math.absf", [], np.abs(self.exact), self.error, 0)

    def maximum(self, value: Element | float) -> Element:
        other = self._other(value)
        error = np.maximum(self.error, other.error)
        return self._op(self._kind("maximumf", "maxsi"), [other], np.maximum(self.exact, other.exact), error, 0)

    def minimum(self, value: Element | float) -> Element:
        other = self._other(value)
        error = np.maximum(self.error, other.error)
        return self._op(self._kind("minimumf", "minsi"), [other], np.minimum(self.exact, other.exact), error, 0)

    def _function(self, name: str, exact: Callable[[Any], Any], ulp: float) -> Element:
        """A monotonic function; `ulp` of rounding as test_vector_math.py has it."""
        value = exact(self.exact)
        low, high = exact(self.exact - self.error), exact(self.exact + self.error)
        return self._op(f"math.{name}", [], value, np.maximum(np.abs(high - value), np.abs(low - value)), 2 * ulp)

    def exp(self) -> Element:
        return self._function("exp", np.exp, 2.0)

    def tanh(self) -> Element:
        return self._function("tanh", np.tanh, 3.0)

    def erf(self) -> Element:
        return self._function("erf", _ERF, 3.0)

    def log(self) -> Element:
        return self._function("log", np.log, 1.0)

    def sqrt(self) -> Element:
        return self._function("sqrt", np.sqrt, 0.5)

    def rsqrt(self) -> Element:
        return self._function("rsqrt", lambda x: 1 / np.sqrt(x), 1.5)

    def compare(self, predicate: str, value: Element | float) -> Element:
        other = self._other(value)
        found = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "eq": np.equal}[predicate]
        exact = found(self.exact, other.exact)
        error = np.abs(self.exact - other.exact) < self.error + other.error
        name = f"%b{len(self.lines)}"
        signed = predicate if predicate == "eq" else f"s{predicate}"
        kind = f"cmpf o{predicate}" if self.element[0] == "f" else f"cmpi {signed}"
        self.lines.append(f"{name} = arith.{kind}, {self.name}, {other.name} : {self.element}")
        return Element(self.lines, name, "i1", exact, error)

    def __or__(self, other: Element) -> Element:
        return self._op("arith.ori", [other], self.exact | other.exact, self.error + other.error)

    def choose(self, yes: Element, no: Element) -> Element:
        """yes where this is true, else no; either where it is not sure."""
        name = f"%b{len(self.lines)}"
        self.lines.append(f"{name} = arith.select {self.name}, {yes.name}, {no.name} : {yes.element}")
        exact, error = np.where(self.exact, yes.exact, no.exact), np.where(self.exact, yes.error, no.error)
        if yes.element[0] == "f":
            apart = np.abs(yes.exact - no.exact) + np.maximum(yes.error, no.error)
            error = np.where(self.error, apart, error)
        return Element(self.lines, name, yes.element, exact, error)

    def to(self, element: str) -> Element:
        op = {
            ("i1", "f32"): "arith.uitofp", ("i32", "f32"): "arith.sitofp", ("f32", "i32"): "arith.fptosi",
            ("f32", "f64"): "arith.extf", ("f64", "f32"): "arith.truncf", ("index", "i32"): "arith.index_cast",
            ("i32", "index"): "arith.index_cast", ("i1", "i32"): "arith.extui", ("i32", "i64"): "arith.extsi",
        }[self.element, element]  # fmt: skip
        name = f"%b{len(self.lines)}"
        self.lines.append(f"{name} = {op} {self.name} : {self.element} to {element}")
        exact = np.asarray(self.exact).astype(np.int64 if element == "index" else held(element))
        rounded = ROUNDING["f32"] * np.abs(exact) if element == "f32" else 0.0
        return Element(self.lines, name, element, exact, self.error + rounded)


def constant(lines: list[str], value: float, element: str) -> Element:
    name = f"%b{len(lines)}"
    text = literal(value, element)
    lines.append(f"{name} = arith.constant {text}" + ("" if element == "i1" else f" : {element}"))
    exact = DTYPES[element](value).astype(held(element)) if element != "index" else np.int64(value)
    return Element(lines, name, element, exact, np.zeros(()))


Body = Callable[..., Any]


class Step:
    """A step under construction; `arguments` are the arrays that it is run with."""

    def __init__(self) -> None:
        self.arguments: list[np.ndarray] = []
        self._inputs: list[Tensor] = []
        self._lines: list[str] = []
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _made(self, element: str, exact: Any, error: Any, name: str = "") -> Tensor:
        exact = np.array(exact, held(element))
        kept = np.broadcast_to(np.asarray(error, np.float64), exact.shape).copy()
        return Tensor(name or self._name(), element, exact, kept)

    def argument(self, array: np.ndarray) -> Tensor:
        array = np.asarray(array)
        made = self._made(NAMES[array.dtype], array, 0.0, f"%x{len(self._inputs)}")
        self.arguments.append(array)
        self._inputs.append(made)
        return made

    def constant(self, array: np.ndarray) -> Tensor:
        """A dense constant."""
        made = self._made(NAMES[array.dtype], array, 0.0)
        text = str([literal(float(v), made.element) for v in array.flat]).replace("'", "")
        flat = tensor((array.size,), made.element)
        self._lines.append(f"{made.name}f = arith.constant dense<{text}> : {flat}")
        if array.ndim == 1:
            return Tensor(f"{made.name}f", made.element, made.exact, made.error)
        groups = [list(range(array.ndim))]
        self._lines.append(f"{made.name} = tensor.expand_shape {made.name}f {groups} output_shape"
                           f" {list(array.shape)} : {flat} into {made.type}")  # fmt: skip
        return made

    def empty(self, shape: Sequence[int], element: str) -> str:
        name = self._name()
        self._lines.append(f"{name} = tensor.empty() : {tensor(shape, element)}")
        return name

    def filled(self, shape: Sequence[int], value: float, element: str = "f32") -> Tensor:
        scalar, start = self._name(), self.empty(shape, element)
        exact = np.full(shape, DTYPES[element](value), held(element))
        made = self._made(element, exact, 0.0)
        text = literal(value, element)
        self._lines.append(f"{scalar} = arith.constant {text}" + ("" if element == "i1" else f" : {element}"))
        self._lines.append(
            f"{made.name} = linalg.fill ins({scalar} : {element}) outs({start} : {made.type}) -> {made.type}"
        )
        return made

    def generic(
        self, kinds: str, sizes: Sequence[int], inputs: Sequence[tuple[Tensor, str]],
        outputs: Sequence[tuple[float | Tensor | None, str, str]], body: Body, combine: str = "", named: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """kinds: a letter p or r a loop. inputs: tensor and map, such as "d0 + d2, d1". outputs: start (None where
        nothing is read), map, element type. body gets the elements of the inputs, then (without `combine`) those of
        the results so far, and returns the new ones; with `combine` it returns the terms. named: the same as an op
        of its own."""
        starts = [self._start(start, sizes, to, element) for start, to, element in outputs]
        turned = [_by_loops(start, to) for start, (_, to, _) in zip(starts, outputs, strict=True)]
        dims = np.meshgrid(*map(np.arange, sizes), indexing="ij", sparse=True) if sizes else []
        lines: list[str] = []
        reduced = tuple(axis for axis, kind in enumerate(kinds) if kind == "r")
        first = [self._taken(lines, f"%i{k}", found, to, dims) for k, (found, to) in enumerate(inputs)]
        if combine:
            accs = [f"%o{k}" for k in range(len(outputs))]
            terms = _several(body(*first))
            made = [_combined(combine, term, start, sizes, reduced) for term, start in zip(terms, turned, strict=True)]
            yielded: list[str] = []
            for acc, term in zip(accs, terms, strict=True):
                lines.append(f"%b{len(lines)} = arith.{combine} {acc}, {term.name} : {term.element}")
                yielded.append(f"%b{len(lines) - 1}")
        else:
            made, yielded = self._one_by_one(lines, body, inputs, turned, dims, sizes, reduced)
        results: list[Tensor] = []
        for (_, to, element), (exact, error) in zip(outputs, made, strict=True):
            order = _order(to, reduced, len(sizes))
            error = np.broadcast_to(error, np.shape(exact))
            results.append(self._made(element, np.transpose(exact, order), np.transpose(error, order)))
        self._write(kinds, inputs, outputs, starts, results, lines, yielded, named)
        return results

    def _start(self, start: float | Tensor | None, sizes: Sequence[int], to: str, element: str) -> Tensor:
        if isinstance(start, Tensor):
            return start
        shape = [sizes[int(d[1:])] for d in to.split(", ") if d]
        if start is None:
            return self._made(element, np.zeros(shape), 0.0, self.empty(shape, element))
        return self.filled(shape, start, element)

    def _taken(self, lines: list[str], name: str, found: Tensor, to: str, dims: Sequence[Any]) -> Element:
        known = {f"d{k}": dim for k, dim in enumerate(dims)}
        at = tuple(eval(e, known) for e in to.split(", ") if e)
        return Element(lines, name, found.element, found.exact[at], found.error[at])

    def _one_by_one(
        self, lines: list[str], body: Body, inputs: Sequence[tuple[Tensor, str]], starts: Sequence[Tensor],
        dims: Sequence[Any], sizes: Sequence[int], reduced: Sequence[int],
    ) -> tuple[list[tuple[Any, Any]], list[str]]:  # fmt: skip
        """The body for each step of the reduction loops in order; its lines are those of the first."""
        shape = [1 if axis in reduced else size for axis, size in enumerate(sizes)]
        now = [(np.broadcast_to(s.exact.reshape(shape), shape), np.broadcast_to(s.error.reshape(shape), shape))
               if reduced else (np.broadcast_to(s.exact, sizes), np.broadcast_to(s.error, sizes))
               for s in starts]  # fmt: skip
        yielded: list[str] = []
        for number, at in enumerate(np.ndindex(*(sizes[axis] for axis in reduced))):
            here = list(dims)
            for axis, k in zip(reduced, at, strict=True):
                here[axis] = np.full((1,) * len(sizes), k)
            into = lines if not number else list[str]()
            taken = [self._taken(into, f"%i{k}", found, to, here) for k, (found, to) in enumerate(inputs)]
            accs = [
                Element(into, f"%o{k}", start.element, exact, error)
                for k, (start, (exact, error)) in enumerate(zip(starts, now, strict=True))
            ]
            self.loops = [_index(into, k, dim) for k, dim in enumerate(here)]
            found = _several(body(*taken, *accs))
            yielded = yielded or [e.name for e in found]
            now = [(np.broadcast_to(e.exact, shape), np.broadcast_to(e.error, shape)) for e in found]
        return [(np.squeeze(x, tuple(reduced)), np.squeeze(e, tuple(reduced))) for x, e in now], yielded

    def _write(
        self, kinds: str, inputs: Sequence[tuple[Tensor, str]], outputs: Sequence[tuple[Any, str, str]],
        starts: Sequence[Tensor], results: Sequence[Tensor], lines: Sequence[str], yielded: Sequence[str], named: str,
    ) -> None:  # fmt: skip
        loops = ", ".join(f"d{k}" for k in range(len(kinds)))
        maps = ", ".join(
            f"affine_map<({loops}) -> ({to})>" for to in (*(m for _, m in inputs), *(o[1] for o in outputs))
        )
        iterators = ", ".join({"p": '"parallel"', "r": '"reduction"'}[k] for k in kinds)
        ins = f"{', '.join(t.name for t, _ in inputs)} : {', '.join(t.type for t, _ in inputs)}"
        outs = f"{', '.join(s.name for s in starts)} : {', '.join(r.type for r in results)}"
        group = self._name()
        names = [group] if len(results) == 1 else [f"{group}#{k}" for k in range(len(results))]
        head = f"{group}{'' if len(results) == 1 else f':{len(results)}'} = "
        types = ", ".join(r.type for r in results)
        types = types if len(results) == 1 else f"({types})"
        reads = f" ins({ins})" if inputs else ""
        if named:
            self._lines.append(f"{head}{named}{reads} outs({outs}) -> {types}")
        else:
            elements = [f"%i{k}: {t.element}" for k, (t, _) in enumerate(inputs)]
            elements += [f"%o{k}: {r.element}" for k, r in enumerate(results)]
            self._lines += [
                f"{head}linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}{reads}",
                f"outs({outs}) {{",
                f"^bb0({', '.join(elements)}):",
                *lines,
                f"linalg.yield {', '.join(yielded)} : {', '.join(r.element for r in results)}",
                f"}} -> {types}",
            ]
        for result, name in zip(results, names, strict=True):
            object.__setattr__(result, "name", name)

    # shorthands

    def map(self, body: Body, *inputs: Tensor | tuple[Tensor, str], element: str = "f32",
            shape: Sequence[int] | None = None) -> Tensor:  # fmt: skip
        """An elementwise op; inputs without a map are read at the element that is written."""
        sizes = list(shape if shape is not None else next(t for t in inputs if isinstance(t, Tensor)).shape)
        identity = ", ".join(f"d{k}" for k in range(len(sizes)))
        pairs = [t if isinstance(t, tuple) else (t, identity) for t in inputs]
        (made,) = self.generic("p" * len(sizes), sizes, pairs, [(None, identity, element)],
                               lambda *elements: body(*elements[: len(inputs)]))  # fmt: skip
        return made

    def reduce(self, found: Tensor, axes: Sequence[int], combine: str = "addf", start: float | Tensor = 0.0,
               body: Body = lambda x: x) -> Tensor:  # fmt: skip
        rank = len(found.shape)
        kinds = "".join("r" if axis in axes else "p" for axis in range(rank))
        to = ", ".join(f"d{k}" for k in range(rank) if k not in axes)
        inputs = [(found, ", ".join(f"d{k}" for k in range(rank)))]
        (made,) = self.generic(kinds, found.shape, inputs, [(start, to, found.element)], body, combine)
        return made

    def product(self, a: Tensor, b: Tensor, sizes: Sequence[int], kinds: str, maps: Sequence[str], named: str = "",
                start: float | Tensor = 0.0) -> Tensor:  # fmt: skip
        """A contraction: the sum of a * b; maps of a, of b, of the result."""
        (made,) = self.generic(kinds, sizes, [(a, maps[0]), (b, maps[1])], [(start, maps[2], a.element)],
                               lambda p, q: p * q, "addf" if a.element[0] == "f" else "addi", named)  # fmt: skip
        return made

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        (m, k), n = a.shape, b.shape[1]
        return self.product(a, b, (m, n, k), "ppr", ("d0, d2", "d2, d1", "d0, d1"), "linalg.matmul")

    def transpose(self, found: Tensor, order: Sequence[int]) -> Tensor:
        exact, error = np.transpose(found.exact, order), np.transpose(found.error, order)
        made = self._made(found.element, exact, error)
        start = self.empty(made.shape, made.element)
        self._lines.append(f"{made.name} = linalg.transpose ins({found.name} : {found.type})"
                           f" outs({start} : {made.type}) permutation = {list(order)}")  # fmt: skip
        return made

    def broadcast(self, found: Tensor, shape: Sequence[int], axes: Sequence[int]) -> Tensor:
        """`found` repeated along new dimensions."""
        to = ", ".join(f"d{k}" for k in range(len(shape)) if k not in axes)
        return self.map(lambda x: x, (found, to), shape=shape, element=found.element)

    def collapse(self, found: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        shape = [math.prod(found.shape[k] for k in group) for group in groups]
        made = self._made(found.element, found.exact.reshape(shape), found.error.reshape(shape))
        text = [list(group) for group in groups]
        self._lines.append(f"{made.name} = tensor.collapse_shape {found.name} {text} : {found.type} into {made.type}")
        return made

    def expand(self, found: Tensor, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> Tensor:
        made = self._made(found.element, found.exact.reshape(shape), found.error.reshape(shape))
        text = [list(group) for group in groups]
        self._lines.append(f"{made.name} = tensor.expand_shape {found.name} {text} output_shape {list(shape)}"
                           f" : {found.type} into {made.type}")  # fmt: skip
        return made

    def pad(self, found: Tensor, low: Sequence[int], high: Sequence[int], value: float = 0.0) -> Tensor:
        widths = list(zip(low, high, strict=True))
        exact = np.pad(found.exact, widths, constant_values=DTYPES[found.element](value))
        made = self._made(found.element, exact, np.pad(found.error, widths))
        scalar = self._name()
        indices = ", ".join(f"%p{k}: index" for k in range(len(widths)))
        self._lines += [
            f"{scalar} = arith.constant {literal(value, found.element)} : {found.element}",
            f"{made.name} = tensor.pad {found.name} low{list(low)} high{list(high)} {{",
            f"^bb0({indices}):",
            f"tensor.yield {scalar} : {found.element}",
            f"}} : {found.type} to {made.type}",
        ]
        return made

    def slice(self, found: Tensor, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
              drop: Sequence[int] = ()) -> Tensor:  # fmt: skip
        """extract_slice; drop: dimensions of size 1 that the result leaves out."""
        at = tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(offsets, sizes, strides, strict=True))
        shape = [n for k, n in enumerate(sizes) if k not in drop]
        made = self._made(found.element, found.exact[at].reshape(shape), found.error[at].reshape(shape))
        self._lines.append(f"{made.name} = tensor.extract_slice {found.name}{list(offsets)} {list(sizes)}"
                           f" {list(strides)} : {found.type} to {made.type}")  # fmt: skip
        return made

    def insert(self, source: Tensor, target: Tensor, offsets: Sequence[int], sizes: Sequence[int],
               strides: Sequence[int]) -> Tensor:  # fmt: skip
        at = tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(offsets, sizes, strides, strict=True))
        exact, error = target.exact.copy(), target.error.copy()
        exact[at], error[at] = source.exact.reshape(sizes), source.error.reshape(sizes)
        made = self._made(target.element, exact, error)
        self._lines.append(f"{made.name} = tensor.insert_slice {source.name} into {target.name}{list(offsets)}"
                           f" {list(sizes)} {list(strides)} : {source.type} into {target.type}")  # fmt: skip
        return made

    def concatenate(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """As the JAX frontend's legaliser writes it: branches on an index around loads."""
        exact = np.concatenate([t.exact for t in parts], axis)
        made = self._made(parts[0].element, exact, np.concatenate([t.error for t in parts], axis))
        rank, element = exact.ndim, made.element
        start, identity = self.empty(made.shape, element), ", ".join(f"d{k}" for k in range(rank))
        iterators = ", ".join(['"parallel"'] * rank)
        lines = [
            f"{made.name} = linalg.generic {{indexing_maps = [affine_map<({identity}) -> ({identity})>],"
            f" iterator_types = [{iterators}]}} outs({start} : {made.type}) {{",
            f"^bb0(%o: {element}):",
            *(f"%d{k} = linalg.index {k} : index" for k in range(rank)),
        ]
        done, closing = 0, list[str]()
        for number, part in enumerate(parts):
            size = part.shape[axis]
            at = [f"%d{k}" for k in range(rank)]
            inner = [f"%at{number}_c = arith.constant {done} : index",
                     f"%at{number} = arith.subi %d{axis}, %at{number}_c : index"]  # fmt: skip
            at[axis] = f"%at{number}"
            inner.append(f"%e{number} = tensor.extract {part.name}[{', '.join(at)}] : {part.type}")
            done += size
            if number < len(parts) - 1:
                lines += [
                    f"%end{number} = arith.constant {done} : index",
                    f"%in{number} = arith.cmpi ult, %d{axis}, %end{number} : index",
                    f"%r{number} = scf.if %in{number} -> ({element}) {{",
                    *inner,
                    f"scf.yield %e{number} : {element}",
                    "} else {",
                ]
                last = f"%e{number + 1}" if number == len(parts) - 2 else f"%r{number + 1}"
                closing = [f"scf.yield {last} : {element}", "}", *closing]
            else:
                lines += inner
        whole = "%r0" if len(parts) > 1 else "%e0"
        self._lines += [*lines, *closing, f"linalg.yield {whole} : {element}", f"}} -> {made.type}"]
        return made

    def gather(self, table: Tensor, indices: Tensor) -> Tensor:
        """Rows of a table by numbers read from memory."""
        (count,), (_, width) = indices.shape, table.shape
        at = indices.exact
        made = self._made(table.element, table.exact[at], table.error[at])
        start = self.empty(made.shape, table.element)
        self._lines += [
            f"{made.name} = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>],"
            f' iterator_types = ["parallel", "parallel"]}} outs({start} : {made.type}) {{',
            f"^bb0(%o: {table.element}):",
            "%d0 = linalg.index 0 : index",
            "%d1 = linalg.index 1 : index",
            f"%n = tensor.extract {indices.name}[%d0] : {indices.type}",
            "%at = arith.index_cast %n : i32 to index",
            f"%e = tensor.extract {table.name}[%at, %d1] : {table.type}",
            f"linalg.yield %e : {table.element}",
            f"}} -> {made.type}",
        ]
        assert made.shape == (count, width)
        return made

    def text(self, results: Sequence[Tensor]) -> str:
        arguments = ", ".join(f"{t.name}: {t.type}" for t in self._inputs)
        types = ", ".join(r.type for r in results)
        code = "\n  ".join(self._lines)
        names = ", ".join(r.name for r in results)
        return f"func.func @step({arguments}) -> ({types}) {{\n  {code}\n  return {names} : {types}\n}}"


def _several(found: Any) -> Sequence[Element]:
    return found if isinstance(found, (list, tuple)) else [found]


def _index(lines: list[str], loop: int, values: Any) -> Callable[[], Element]:
    """What appends a linalg.index of a loop when it is asked for."""

    def make() -> Element:
        name = f"%b{len(lines)}"
        lines.append(f"{name} = linalg.index {loop} : index")
        return Element(lines, name, "index", values, np.zeros(()))

    return make


def _by_loops(found: Tensor, to: str) -> Tensor:
    """A result's start with its dimensions in the order of the loops."""
    back = np.argsort([int(d[1:]) for d in to.split(", ") if d]).astype(int)
    return Tensor(found.name, found.element, np.transpose(found.exact, back), np.transpose(found.error, back))


def _order(to: str, reduced: Sequence[int], rank: int) -> list[int]:
    """The transposition from parallel loops in order to the result's dimensions."""
    parallel = [k for k in range(rank) if k not in reduced]
    return [parallel.index(int(d[1:])) for d in to.split(", ") if d]


def _combined(
    combine: str, term: Element, start: Tensor, sizes: Sequence[int], axes: tuple[int, ...]
) -> tuple[Any, Any]:
    """Value and error of start (+) all terms, by loops of the parallel dimensions in order."""
    exact, error = np.broadcast_to(term.exact, sizes), np.broadcast_to(term.error, sizes)
    if term.element[0] != "f":
        found = {"addi": np.add, "muli": np.multiply, "maxsi": np.maximum, "minsi": np.minimum,
                 "andi": np.bitwise_and, "ori": np.bitwise_or}[combine]  # fmt: skip
        total = found.reduce(exact, axes, dtype=exact.dtype)
        return found(total, start.exact.reshape(total.shape)), np.zeros(())
    u = ROUNDING[term.element]
    count = math.prod(sizes[a] for a in axes)
    shape = exact.sum(axes).shape
    before, before_error = start.exact.reshape(shape), start.error.reshape(shape)
    if combine == "addf":
        rounding = (count + 2) * u * (np.abs(exact).sum(axes) + error.sum(axes) + np.abs(before))
        return exact.sum(axes) + before, SLACK * (error.sum(axes) + before_error + rounding) + TINY[term.element]
    if combine == "mulf":
        value = exact.prod(axes) * before
        relative = (error / np.maximum(np.abs(exact), 1e-30)).sum(axes) + (count + 1) * u
        return value, SLACK * np.abs(value) * np.expm1(relative) + TINY[term.element]
    found = np.maximum if combine.startswith("max") else np.minimum
    value = found(found.reduce(exact, axes), before)
    return value, np.maximum(error.max(axes), before_error)


# running


def compiled_step(step: Step, results: Sequence[Tensor]) -> Program:
    text = canonical_text(step.text(results), "step")
    return compile_program(text, "step", 0, len(step.arguments), memory_cache())


def assert_near(got: Sequence[np.ndarray], results: Sequence[Tensor]) -> None:
    """Every result is within its bound; integers and sure masks are equal."""
    for place, (found, wanted) in enumerate(zip(got, results, strict=True)):
        assert found.shape == wanted.shape and found.dtype == DTYPES[wanted.element]
        if wanted.element[0] == "f":
            with np.errstate(invalid="ignore"):
                off = np.abs(found.astype(np.float64) - wanted.exact)
            same = (found == wanted.exact) | (off <= SLACK * wanted.error)
            worst = float(np.nanmax(np.where(same, 0, off / np.maximum(wanted.error, 1e-300)), initial=0))
            assert same.all(), f"result {place}: {worst:.3g} times its bound at {np.argwhere(~same)[:3].tolist()}"
        else:
            sure = wanted.error == 0
            np.testing.assert_array_equal(found[sure], wanted.exact[sure])


def families_of(program: Program) -> list[list[str]]:
    """For each kernel the families of its phases; raises NotCovered where plain loops lower it."""
    context, found = new_context(), list[list[str]]()
    for kernel in program.kernels.values():
        nest = read_nest(kernel_text(kernel), context)
        emit(nest, defaults(nest, machine()), "k", frozenset())
        found.append([family(nest, phase) for phase in nest.phases])
    return found


def check(step: Step, *results: Tensor, emitted: bool = True) -> Program:
    """Compile and run a step; its results are within their bounds, and emitters made all of its kernels."""
    program = compiled_step(step, results)
    if emitted:
        families_of(program)
    assert_near(run_program(program, [], step.arguments), results)
    return program

"""From a kernel's function (linalg on tensors over memref arguments) to a `Nest`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mlir import ir

from mlir_passes.affine import linear
from mlir_passes.ir_tools import attribute_names, body, is_block_argument, iterators, operations, producer, tensor_type
from mlir_passes.kernels.forms import condition, cuts, domain, kept_dimensions, shared_rows, slice_of
from mlir_passes.kernels.halves import Halves
from mlir_passes.kernels.narrow import NARROW
from mlir_passes.kernels.nest import (
    Access,
    Apply,
    Array,
    Carried,
    Constant,
    Index,
    Load,
    Nest,
    NotCovered,
    Phase,
    Reduction,
    Store,
    Total,
)
from mlir_passes.linalg_ops import loop_sizes
from mlir_passes.space import TensorType

_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape")
_SKIPPED = ("tensor.empty", "arith.constant", "func.return", "bufferization.to_tensor", *_VIEWS)
_MOST_TEMPORARY = 1 << 16  # bytes of stack for values that later phases of a row read
_COMBINERS = frozenset(
    f"arith.{name}"
    for name in ("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "addi", "muli", "andi", "ori", "xori",
                 "maxsi", "minsi", "maxui", "minui")
)  # fmt: skip
_LINEAR = {"arith.addi": 1, "arith.subi": -1}

Linear = tuple[dict[int, int], int, dict[int, int]]  # coefficient by loop, constant, coefficient by node


@dataclass(frozen=True)
class _Value:
    """A tensor made in the kernel: its scalar node, the loops that are its dimensions, the phase that makes it.

    phase -1: a value of a row, which every phase after `origin` may use.
    """

    node: int
    dims: tuple[int, ...]
    phase: int
    origin: int


def read(func_op: Any) -> Nest:
    """The nest of a kernel's function; raises NotCovered."""
    return _Reader(func_op).read()


class _Reader:
    def __init__(self, func_op: Any) -> None:
        self._nest = Nest()
        self._halves = Halves(self._nest)
        self._ops = operations(body(func_op))
        self._values: dict[Any, _Value] = {}
        self._stored: dict[Any, str] = {}  # tensors of the kernel that stand in an array
        self._arrays: dict[Any, str] = {}  # tensors that are arguments or constants
        self._fills: dict[Any, int] = {}
        self._targets: dict[Any, list[str]] = {}
        self._phase_loops: list[list[int]] = []
        self._phase_reductions: list[list[int]] = []
        self._phase_stores: list[list[Store]] = []
        for position, argument in enumerate(body(func_op).arguments):
            self._argument(argument, position)

    def read(self) -> Nest:
        for op in self._ops:
            if op.name == "bufferization.materialize_in_destination":
                self._targets.setdefault(op.operands[0], []).append(f"arg{op.operands[1].arg_number}")
        work = [op for op in self._ops if self._is_work(op)]
        rows = shared_rows(work)
        sizes = domain(work[0]) if rows else []
        self._nest.rows = tuple(self._nest.loop(sizes[i]) for i in range(rows))
        for op in work:
            if op.name == "linalg.generic":
                self._generic(op)
            elif op.name == "tensor.pad":
                self._pad(op)
            elif op.name == "tensor.extract_slice":
                self._extract_slice(op)
            elif op.name == "tensor.insert_slice":
                self._insert_slice(op)
            else:
                raise NotCovered(op.name)
        self._store_fills()
        for loops, reductions, stores in zip(
            self._phase_loops, self._phase_reductions, self._phase_stores, strict=True
        ):
            self._nest.phases.append(Phase(tuple(loops), tuple(reductions), tuple(stores)))
        self._check()
        self._drop_empty()
        return self._nest

    def _check(self) -> None:
        own = (a for a in self._nest.arrays.values() if a.argument < 0 and not a.constant)
        temporary = sum(TensorType((a.size,), a.element).bytes for a in own)
        if temporary > _MOST_TEMPORARY:
            raise NotCovered("temporaries too large for the stack")
        written = {s.access.array for p in self._nest.phases for s in p.stores}
        wanted = {name for names in self._targets.values() for name in names}
        if written & set(self._nest.arguments) != wanted:
            raise NotCovered("an output that nothing writes")

    def _drop_empty(self) -> None:
        """Leave out the phases that make nothing; a sum of nothing is for plain loops."""
        nest = self._nest
        if any(not nest.sizes[loop] for phase in nest.phases for loop in nest.reduced(phase)):
            raise NotCovered("a reduction over no elements")
        nest.phases = [p for p in nest.phases if all(nest.sizes[loop] for loop in (*nest.rows, *p.loops))]
        if not nest.phases:
            nest.rows = ()

    # arguments, constants, fills

    def _argument(self, argument: Any, position: int) -> None:
        found = ir.MemRefType(argument.type)
        name = f"arg{position}"
        self._nest.arrays[name] = Array(str(found.element_type), math.prod(found.shape), position)
        self._nest.arguments.append(name)
        for use in argument.uses:
            op = use.owner.operation
            if op.name == "bufferization.to_tensor":
                self._arrays[op.results[0]] = name

    def _is_work(self, op: Any) -> bool:
        if op.name == "arith.constant":
            self._constant(op)
        elif op.name == "linalg.fill":
            self._fills[op.results[0]] = self._scalar(op.operands[0], {}, [])
        elif op.name in _VIEWS:
            self._view(op)
        return op.name not in (*_SKIPPED, "linalg.fill", "bufferization.materialize_in_destination")

    def _view(self, op: Any) -> None:
        source, result = op.operands[0], op.results[0]
        if source in self._fills:
            self._fills[result] = self._fills[source]
        elif source in self._arrays:
            self._arrays[result] = self._arrays[source]
        elif not self._is_storage(source):
            raise NotCovered("a view of a value of the kernel")

    def _is_storage(self, value: Any) -> bool:
        """Whether nothing wrote a value."""
        op = producer(value)
        return op is not None and op.name == "tensor.empty"

    def _constant(self, op: Any) -> None:
        found = tensor_type(op.results[0].type)
        if found is None:
            return
        content = op.attributes["value"]
        if not isinstance(content, ir.DenseElementsAttr):
            raise NotCovered("a constant that is not dense")
        if content.is_splat:
            self._fills[op.results[0]] = self._nest.add(_constant(content.get_splat_value()))
            return
        if found.element not in ("f32", "i32", "f64", "i64"):
            raise NotCovered(f"a constant array of {found.element}")
        flat = np.array(content).reshape(-1)
        kind = ir.RankedTensorType.get([flat.size], ir.RankedTensorType(op.results[0].type).element_type)
        text = str(ir.DenseElementsAttr.get(np.ascontiguousarray(flat), type=kind))  # pyright: ignore
        name = f"const{len(self._arrays)}"
        self._nest.arrays[name] = Array(found.element, int(flat.size), -1, text.partition(" : ")[0])
        self._arrays[op.results[0]] = name

    def _store_fills(self) -> None:
        """An output that is one constant."""
        for value, targets in self._targets.items():
            if value in self._fills:
                shape = ir.RankedTensorType(value.type).shape
                loops = [self._nest.loop(size) for size in shape]
                phase = self._new_phase(loops)
                for name in targets:
                    access = self._access(name, shape, [({loop: 1}, 0, {}) for loop in loops])
                    self._phase_stores[phase].append(Store(access, self._fills[value]))

    # phases

    def _new_phase(self, loops: list[int]) -> int:
        self._phase_loops.append(loops)
        self._phase_reductions.append([])
        self._phase_stores.append([])
        return len(self._phase_loops) - 1

    def _place(self, op: Any, sizes: list[int], kinds: str, dims: list[int]) -> tuple[int, list[int]]:
        """The phase that an op joins, and its loops there; dims: which of its loops are the result's dimensions."""
        rows, nest, last = self._nest.rows, self._nest, len(self._phase_loops) - 1
        inner = sizes[len(rows) :]
        if last >= 0:
            own = self._phase_loops[last]
            reduced = nest.reductions[self._phase_reductions[last][0]].loops if self._phase_reductions[last] else ()
            if "r" not in kinds:
                parallel = [loop for loop in own if loop not in reduced]
                order = self._result_order(last) or parallel
                if [nest.sizes[loop] for loop in order] == inner and (not reduced or not rows):
                    return last, [*rows, *order]
            elif reduced and [nest.sizes[loop] for loop in own] == inner:
                needs = any(v in self._values and self._values[v].origin == last for v in op.operands)
                same = not needs and "".join("r" if loop in reduced else "p" for loop in (*rows, *own)) == kinds
                if same and self._result_order(last) == [own[d - len(rows)] for d in dims if d >= len(rows)]:
                    return last, [*rows, *own]
        loops = [nest.loop(size) for size in inner]
        return self._new_phase(loops), [*rows, *loops]

    def _result_order(self, phase: int) -> list[int]:
        """The phase's parallel loops in the order of its results' dimensions."""
        for value in self._values.values():
            if value.phase == phase:
                return [loop for loop in value.dims if loop not in self._nest.rows]
        return []

    # ops

    def _generic(self, op: Any) -> None:
        if any(inner.name == "scf.if" for inner in operations(op.regions[0].blocks[0])):
            self._pieces(op)
            return
        kinds, sizes = iterators(op), loop_sizes(op)
        outputs = len(op.results)
        inputs = len(op.operands) - outputs
        maps = [_linear_map(m) for m in op.attributes["indexing_maps"]]
        dims = [_one_loop(form) for form in maps[inputs]]
        if any([_one_loop(form) for form in m] != dims for m in maps[inputs:]):
            raise NotCovered("results of one op in different orders")
        if "r" not in kinds and dims != list(range(len(kinds))):
            raise NotCovered("an elementwise op that permutes its result")
        phase, loops = self._place(op, sizes, kinds, dims)
        block = op.regions[0].blocks[0]
        scalars: dict[Any, int] = {}
        for number, argument in enumerate(list(block.arguments)[:inputs]):
            if list(argument.uses):
                form = [self._on_loops(f, loops) for f in maps[number]]
                scalars[argument] = self._element(op.operands[number], form, phase)
        if "r" in kinds:
            self._reduce(op, block, scalars, loops, kinds, dims, phase)
            return
        for number, argument in enumerate(list(block.arguments)[inputs:]):
            if list(argument.uses):
                form = [({loop: 1}, 0, {}) for loop in loops]
                scalars[argument] = self._element(op.operands[inputs + number], form, phase)
        self._body(block, scalars, loops, phase)
        terminator = operations(block)[-1]
        for result, yielded in zip(op.results, terminator.operands, strict=True):
            node = self._scalar(yielded, scalars, loops)
            self._made(result, node, tuple(loops), phase)

    def _pieces(self, op: Any) -> None:
        """An elementwise op that branches on one of its loops (a concatenation): a phase for each range of it."""
        kinds, sizes = iterators(op), loop_sizes(op)
        block, inputs = op.regions[0].blocks[0], len(op.operands) - 1
        if "r" in kinds or len(op.results) != 1 or list(block.arguments[inputs].uses) or self._nest.rows:
            raise NotCovered("a branch in a body")
        maps = [_linear_map(m) for m in op.attributes["indexing_maps"]]
        if [_one_loop(form) for form in maps[inputs]] != list(range(len(kinds))):
            raise NotCovered("an elementwise op that permutes its result")
        split, places = cuts(block)
        bounds = sorted({0, sizes[split], *(c for c in places if 0 < c < sizes[split])})
        shape = list(ir.RankedTensorType(op.results[0].type).shape)
        for low, high in itertools.pairwise(bounds):
            own = [self._nest.loop(high - low if d == split else size) for d, size in enumerate(sizes)]
            phase = self._new_phase(own)
            scalars: dict[Any, int] = {}
            for argument, value, places in zip(list(block.arguments)[:inputs], op.operands, maps, strict=False):
                if list(argument.uses):
                    here = [self._on_loops(_added(f, ({}, f[0].get(split, 0) * low, {}), 1), own) for f in places]
                    scalars[argument] = self._element(value, here, phase)
            self._branches(block, scalars, own, phase, (split, low))
            node = self._scalar(operations(block)[-1].operands[0], scalars, own)
            form: list[Linear] = [({loop: 1}, low if d == split else 0, {}) for d, loop in enumerate(own)]
            for name in self._targets.get(op.results[0], []):
                self._phase_stores[phase].append(Store(self._access(name, shape, form), node))

    def _branches(
        self, block: Any, scalars: dict[Any, int], loops: list[int], phase: int, piece: tuple[int, int]
    ) -> None:
        """The body of one range, with its branches taken. piece: the loop that is cut, and where the range starts."""
        for op in operations(block)[:-1]:
            if op.name == "linalg.index" and ir.IntegerAttr(op.attributes["dim"]).value == piece[0]:
                start = self._nest.add(Constant(str(piece[1]), "index"))
                index = self._nest.add(Index(loops[piece[0]]))
                made = Apply("arith.addi", (index, start), "", "index")
                scalars[op.results[0]] = self._nest.add(made) if piece[1] else index
            elif op.name == "scf.if":
                _, bound = condition(op)
                taken = op.regions[0 if piece[1] < bound else 1].blocks[0]
                self._branches(taken, scalars, loops, phase, piece)
                for result, value in zip(op.results, operations(taken)[-1].operands, strict=True):
                    scalars[result] = self._scalar(value, scalars, loops)
            else:
                self._body_op(op, scalars, loops, phase)

    def _reduce(
        self, op: Any, block: Any, scalars: dict[Any, int], loops: list[int], kinds: str, dims: list[int], phase: int
    ) -> None:
        inputs = len(op.operands) - len(op.results)
        arguments = list(block.arguments)[inputs:]
        reduced = tuple(loop for loop, kind in zip(loops, kinds, strict=True) if kind == "r")
        first = len(self._nest.reductions)
        out = tuple(loops[d] for d in dims)
        if set(out) != set(loops) - set(reduced):
            raise NotCovered("a reduction whose result leaves out a parallel loop")
        form: list[Linear] = [({loop: 1}, 0, {}) for loop in out]
        starts = [self._halves.wide(self._start(op.operands[inputs + i], form, phase)) for i in range(len(arguments))]
        for number, argument in enumerate(arguments):
            element = "f32" if str(argument.type) in NARROW else str(argument.type)
            self._nest.reductions.append(Reduction(reduced, starts[number], -1, element))
            scalars[argument] = self._nest.add(Carried(first + number, element))
        self._body(block, scalars, loops, phase)
        yielded = list(operations(block)[-1].operands)
        for number, (result, value) in enumerate(zip(op.results, yielded, strict=True)):
            carried = self._nest.nodes[scalars[arguments[number]]]
            assert isinstance(carried, Carried)
            node = self._halves.wide(self._scalar(value, scalars, loops))
            combiner, term = self._split(node, scalars[arguments[number]])
            index = first + number
            self._nest.reductions[index] = replace(
                self._nest.reductions[index], body=node, combiner=combiner, term=term
            )
            self._phase_reductions[phase].append(index)
            total = self._nest.add(Total(index, carried.element))
            if str(value.type) in NARROW:
                total = self._halves.rounded(total, str(value.type))
            inner = [loop for loop in out if loop not in self._nest.rows]
            row_value = bool(self._nest.rows) and not inner
            self._made(result, total, out, -1 if row_value else phase)

    def _start(self, value: Any, form: Sequence[Linear], phase: int) -> int:
        """What a reduction starts from."""
        return self._element(value, form, phase)

    def _any(self, element: str) -> int:
        """What stands where nothing was written: any value may be taken."""
        return self._nest.add(Constant("0.0" if element[0] in "fb" else "0", element))

    def _split(self, body_node: int, carried: int) -> tuple[str, int]:
        """combiner and term of a body that is combiner(carried, term)."""
        node = self._nest.nodes[body_node]
        if not isinstance(node, Apply) or node.name not in _COMBINERS or carried not in node.operands:
            return "", -1
        rest = [o for o in node.operands if o != carried]
        if len(rest) != 1 or carried in self._nest.reach(rest):
            return "", -1
        return node.name, rest[0]

    def _made(self, result: Any, node: int, dims: tuple[int, ...], phase: int) -> None:
        """Note a value of the kernel, and store it where it is an output."""
        here = phase if phase >= 0 else len(self._phase_loops) - 1
        inner = [loop for loop in dims if loop not in self._nest.rows]
        if phase >= 0 and self._nest.rows and not inner:
            phase = -1
        self._values[result] = _Value(node, dims, phase, here)
        for name in self._targets.get(result, []):
            shape = ir.RankedTensorType(result.type).shape
            access = self._access(name, shape, [({loop: 1}, 0, {}) for loop in dims])
            self._phase_stores[here].append(Store(access, node))
            self._stored[result] = name

    def _element(self, value: Any, form: Sequence[Linear], phase: int) -> int:
        """The node of an element of a tensor, at the indices that `form` gives."""
        if value in self._fills:
            return self._fills[value]
        shape = ir.RankedTensorType(value.type).shape
        element = str(ir.RankedTensorType(value.type).element_type)
        made = self._values.get(value)
        if made is None and self._is_storage(value):
            return self._any(element)
        if made is None:
            if value not in self._arrays or self._is_output(self._arrays[value]):
                raise NotCovered("a tensor that nothing wrote")
            return self._nest.add(Load(self._access(self._arrays[value], shape, form), element))
        identity = [f == ({loop: 1}, 0, {}) for f, loop in zip(form, made.dims, strict=True)]
        if all(identity) and made.phase in (phase, -1):
            return made.node
        rows = len(self._nest.rows)
        if made.phase in (phase, -1) or not all(identity[:rows]):
            raise NotCovered("a value of the kernel read at another element")
        return self._nest.add(Load(self._stored_access(value, made, shape, form), element))

    def _is_output(self, name: str) -> bool:
        return any(name in names for names in self._targets.values())

    def _stored_access(self, value: Any, made: _Value, shape: Any, form: Sequence[Linear]) -> Access:
        """Where a value of an earlier phase stands: its output, or a temporary that holds one row."""
        rows = len(self._nest.rows)
        if value not in self._stored:
            name = f"temp{len(self._nest.arrays)}"
            element = str(ir.RankedTensorType(value.type).element_type)
            self._nest.arrays[name] = Array(element, math.prod(shape[rows:]))
            inner: list[Linear] = [({loop: 1}, 0, {}) for loop in made.dims[rows:]]
            self._phase_stores[made.phase].append(Store(self._access(name, shape[rows:], inner), made.node))
            self._stored[value] = name
        name = self._stored[value]
        if name.startswith("temp"):
            return self._access(name, shape[rows:], form[rows:])
        return self._access(name, shape, form)

    def _pad(self, op: Any) -> None:
        low, high = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{side}"])) for side in ("low", "high"))
        inner = operations(op.regions[0].blocks[0])
        if len(op.operands) != 1 or len(inner) != 1 or min(low) < 0 or min(high) < 0:
            raise NotCovered("a pad that is not constant or that crops")
        targets = self._targets.get(op.results[0], [])
        source, shape = op.operands[0], list(ir.RankedTensorType(op.results[0].type).shape)
        nest = self._nest
        fill = [*nest.rows, *(nest.loop(size) for size in shape[len(nest.rows) :])]
        first = self._new_phase(fill[len(nest.rows) :])
        node = self._scalar(inner[0].operands[0], {}, [])
        for name in targets:
            access = self._access(name, shape, [({loop: 1}, 0, {}) for loop in fill])
            self._phase_stores[first].append(Store(access, node))
        self._copy(source, targets, shape, [(offset, 1) for offset in low])

    def _extract_slice(self, op: Any) -> None:
        offsets, sizes, strides = slice_of(op)
        shape = list(ir.RankedTensorType(op.results[0].type).shape)
        targets = self._targets.get(op.results[0], [])
        loops = [self._nest.loop(size) for size in shape]
        phase = self._new_phase(loops)
        places = kept_dimensions(sizes, shape)
        form: list[Linear] = [({}, offset, {}) for offset in offsets]
        for loop, place in zip(loops, places, strict=True):
            form[place] = ({loop: strides[place]}, offsets[place], {})
        node = self._element(op.operands[0], form, phase)
        for name in targets:
            access = self._access(name, shape, [({loop: 1}, 0, {}) for loop in loops])
            self._phase_stores[phase].append(Store(access, node))

    def _insert_slice(self, op: Any) -> None:
        offsets, sizes, strides = slice_of(op)
        shape = list(ir.RankedTensorType(op.results[0].type).shape)
        targets = self._targets.get(op.results[0], [])
        whole = [(0, 1)] * len(shape)
        if not self._is_storage(op.operands[1]):
            self._copy(op.operands[1], targets, shape, whole)
        inner = list(ir.RankedTensorType(op.operands[0].type).shape)
        at = list(zip(offsets, strides, strict=True))
        self._copy(op.operands[0], targets, shape, at, kept_dimensions(sizes, inner))

    def _copy(
        self, source: Any, targets: list[str], shape: list[int], at: list[tuple[int, int]],
        places: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """A phase that stores `source` into the targets at (offset, stride) by dimension; places: the dimension of
        the target that each one of the source is, all in order by default."""
        rows = self._nest.rows
        sizes = list(ir.RankedTensorType(source.type).shape)
        own = [self._nest.loop(size) for size in sizes[len(rows) :]]
        loops = [*rows, *own]
        phase = self._new_phase(own)
        node = self._element(source, [({loop: 1}, 0, {}) for loop in loops], phase)
        form: list[Linear] = [({}, offset, {}) for offset, _ in at]
        for loop, place in zip(loops, range(len(shape)) if places is None else places, strict=True):
            form[place] = ({loop: at[place][1]}, at[place][0], {})
        for name in targets:
            self._phase_stores[phase].append(Store(self._access(name, shape, form), node))

    # scalars

    def _body(self, block: Any, scalars: dict[Any, int], loops: list[int], phase: int) -> None:
        for op in operations(block)[:-1]:
            self._body_op(op, scalars, loops, phase)

    def _body_op(self, op: Any, scalars: dict[Any, int], loops: list[int], phase: int) -> None:
        if op.name == "linalg.index":
            loop = loops[ir.IntegerAttr(op.attributes["dim"]).value]
            scalars[op.results[0]] = self._nest.add(Index(loop))
        elif op.name == "tensor.extract":
            form = [self._linear(self._scalar(i, scalars, loops)) for i in list(op.operands)[1:]]
            scalars[op.results[0]] = self._element(op.operands[0], form, phase)
        elif op.name == "arith.constant":
            scalars[op.results[0]] = self._nest.add(_constant(op.attributes["value"]))
        elif op.name.startswith(("arith.", "math.")) and not op.regions and len(op.results) == 1:
            scalars[op.results[0]] = self._applied(op, [self._scalar(v, scalars, loops) for v in op.operands])
        else:
            raise NotCovered(f"{op.name} in a body")

    def _scalar(self, value: Any, scalars: dict[Any, int], loops: list[int]) -> int:
        if value in scalars:
            return scalars[value]
        if is_block_argument(value):
            raise NotCovered("an element that is not read")
        op: Any = producer(value)
        if op.name == "arith.constant":
            return self._nest.add(_constant(op.attributes["value"]))
        if op.name == "tensor.extract" and op.operands[0] in self._arrays:
            form = [self._linear(self._scalar(i, scalars, loops)) for i in list(op.operands)[1:]]
            return self._element(op.operands[0], form, -2)
        if op.name.startswith(("arith.", "math.")) and not op.regions and len(op.results) == 1:
            return self._applied(op, [self._scalar(v, scalars, loops) for v in op.operands])
        raise NotCovered(f"a scalar from {op.name}")

    def _applied(self, op: Any, operands: Sequence[int]) -> int:
        return self._halves.applied(op, operands, _attributes(op))

    def _linear(self, number: int) -> Linear:
        """An index node as a linear form of loops and of nodes."""
        node = self._nest.nodes[number]
        if isinstance(node, Index):
            return {node.loop: 1}, 0, {}
        if isinstance(node, Constant):
            return {}, int(node.text), {}
        if isinstance(node, Apply) and node.element == "index":
            if node.name in _LINEAR:
                left, right = (self._linear(o) for o in node.operands)
                return _added(left, right, _LINEAR[node.name])
            if node.name == "arith.muli":
                for one, other in (node.operands, node.operands[::-1]):
                    factor = self._nest.nodes[other]
                    if isinstance(factor, Constant):
                        return _added(({}, 0, {}), self._linear(one), int(factor.text))
        return {}, 0, {number: 1}

    def _on_loops(self, form: Linear, loops: list[int]) -> Linear:
        return {loops[d]: c for d, c in form[0].items()}, form[1], form[2]

    def _access(self, name: str, shape: Sequence[int], form: Sequence[Linear]) -> Access:
        loops: dict[int, int] = {}
        nodes: dict[int, int] = {}
        offset, step = 0, 1
        for size, (by_loop, constant, by_node) in reversed(list(zip(shape, form, strict=True))):
            for loop, coefficient in by_loop.items():
                loops[loop] = loops.get(loop, 0) + coefficient * step
            for node, coefficient in by_node.items():
                nodes[node] = nodes.get(node, 0) + coefficient * step
            offset += constant * step
            step *= size
        return Access(
            name,
            tuple(sorted((loop, s) for loop, s in loops.items() if s)),
            offset,
            tuple(sorted((node, s) for node, s in nodes.items() if s)),
        )


def _linear_map(attribute: Any) -> list[Linear]:
    forms = [linear(e) for e in ir.AffineMapAttr(attribute).value.results]
    if any(form is None for form in forms):
        raise NotCovered("an index that is not linear")
    return [(form[0], form[1], {}) for form in forms if form is not None]


def _added(left: Linear, right: Linear, factor: int) -> Linear:
    loops, nodes = dict(left[0]), dict(left[2])
    for loop, coefficient in right[0].items():
        loops[loop] = loops.get(loop, 0) + factor * coefficient
    for node, coefficient in right[2].items():
        nodes[node] = nodes.get(node, 0) + factor * coefficient
    return loops, left[1] + factor * right[1], nodes


def _one_loop(form: Linear) -> int:
    loops, constant, nodes = form
    if constant or nodes or list(loops.values()) != [1]:
        raise NotCovered("a result that is not written at one loop a dimension")
    return next(iter(loops))


def _constant(attribute: Any) -> Constant:
    text, _, element = str(attribute).rpartition(" : ")
    if not text:  # booleans print without a type
        return Constant("1" if element == "true" else "0", "i1")
    return Constant(text, element)


def _attributes(op: Any) -> str:
    return ", ".join(f"{name} = {op.attributes[name]}" for name in attribute_names(op))

"""From a `Nest` and a schedule a phase to MLIR text over flat memrefs: scf loops, vector loads, arith on vectors.

Everything of a tile is unrolled, and every value is made once in the scope that asks for it first; so a window that
overlaps the next one shares its loads, and an operand that does not depend on the vector loop stays a scalar until
it is needed as a vector.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mlir_passes.kernels.code import Code, vector
from mlir_passes.kernels.narrow import NARROW, bf16_bits, narrowed, widened
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
    Store,
    Total,
)
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.vector_math import EXPANSIONS, NATIVE

Offsets = Mapping[int, int]  # iteration within the tile, by loop
NEUTRAL = {
    "arith.addf": "0.0", "arith.mulf": "1.0", "arith.addi": "0", "arith.muli": "1", "arith.ori": "0",
    "arith.xori": "0", "arith.andi": "-1",
}  # fmt: skip
_HORIZONTAL = {
    "arith.addf": "add", "arith.mulf": "mul", "arith.maximumf": "maximumf", "arith.minimumf": "minimumf",
    "arith.maxnumf": "maxnumf", "arith.minnumf": "minnumf", "arith.addi": "add", "arith.muli": "mul",
    "arith.andi": "and", "arith.ori": "or", "arith.xori": "xor", "arith.maxsi": "maxsi", "arith.minsi": "minsi",
    "arith.maxui": "maxui", "arith.minui": "minui",
}  # fmt: skip
_UNSIGNED = {"arith.maxui": "0", "arith.minui": "-1"}
_BLOCK = 128  # terms of a sum that are added up by themselves: rounding errors grow with blocks, not with terms
_MOST_WIDE = 1 << 14  # elements of a narrow operand that a tile widens at a time
_INFINITIES = {"f32": ("0xFF800000", "0x7F800000"), "f64": ("0xFFF0000000000000", "0x7FF0000000000000")}


@dataclass(frozen=True)
class Piece:
    """`active` of `lanes` lanes of the vector loop, from `offset` within the tile; (0, 1, 1) is a scalar."""

    offset: int = 0
    lanes: int = 1
    active: int = 1

    @property
    def partial(self) -> bool:
        return self.active < self.lanes


SCALAR = Piece()


@dataclass(frozen=True)
class _Wide:
    """A narrow operand of the tile at hand as f32. panel: its places by reduction loop; steps: stride by the other
    loops of the tile, whose iterations all stand in it."""

    panel: Access
    steps: Mapping[int, int]

    def shift(self, offsets: Offsets) -> int:
        return sum(step * offsets.get(loop, 0) for loop, step in self.steps.items())


def pieces(width: int, lanes: int, masked: bool) -> list[Piece]:
    """`width` elements in vectors: whole ones, then powers of two, or one that is masked where that is fewer."""
    found = [Piece(at, lanes, lanes) for at in range(0, width - lanes + 1, lanes)]
    at = len(found) * lanes
    rest = width - at
    if rest and (masked or (rest > lanes // 2 and rest.bit_count() > 1)):
        return [*found, Piece(at, lanes, rest)]
    return [*found, *_powers(at, rest)]


def _powers(at: int, width: int) -> list[Piece]:
    """`width` elements from `at` in vectors of falling powers of two."""
    found: list[Piece] = []
    while width:
        part = 1 << (width.bit_length() - 1)
        found.append(Piece(at, part, part))
        at, width = at + part, width - part
    return found


def emit(nest: Nest, schedules: Sequence[Schedule], name: str, aliased: frozenset[int]) -> tuple[str, int]:
    """The module of a kernel, and its number of shards. aliased: arguments that may share memory with another."""
    return _Emitter(nest, schedules, aliased).module(name)


class _Emitter:
    def __init__(self, nest: Nest, schedules: Sequence[Schedule], aliased: frozenset[int]) -> None:
        self._nest = nest
        self._schedules = schedules
        self._aliased = aliased
        self._code = Code()
        self._scopes: list[dict[object, str]] = [{}]
        self._block = ""  # where the block at hand of a long sum starts
        self._row_scope = self._scopes[0]  # what later phases of a row may use
        self._at: dict[int, str | int] = {}  # where each loop is: a name, or a number
        self._arrays = dict(nest.arrays)  # the kernel's, and panels
        self._memory: dict[str, str] = {}
        self._written: set[str] = set()
        self._packed: dict[Access, Access] = {}  # where a panel of a tile stands while its loop runs
        self._enter: dict[int, Callable[[int], None]] = {}  # what to do where a tile of a loop begins
        self._to_widen: dict[int, list[Load]] = {}  # before a reduction loop of the tile at hand begins
        self._wide: dict[Access, _Wide] = {}  # where that stands
        self._lanes_wide = 1
        self._widths: dict[int, int] = {}  # iterations of each loop in the tile at hand
        self._inside_body = False  # of a reduction that is no plain sum: the innermost scope holds its accumulators
        self.shards = 1

    def module(self, name: str) -> tuple[str, int]:
        nest, code = self._nest, self._code
        for key, array in nest.arrays.items():
            self._memory[key] = f"%arg{array.argument}" if array.argument >= 0 else f"%{key}"
        self._invariants()
        if nest.rows:
            self._loops(list(nest.rows), {}, self._row, sharded=True)
        else:
            for phase, schedule in zip(nest.phases, self._schedules, strict=True):
                self._phase(phase, schedule, sharded=len(nest.phases) == 1)
        arguments = [f"%arg{i}: {self._type(a)}{self._promise(i)}" for i, a in enumerate(nest.arguments)]
        head, places = self._storage()
        text = [
            "module {",
            *head,
            f"func.func @{name}({', '.join([*arguments, '%begin: index', '%end: index'])}) {{",
            *places,
            code.text,
            "  return",
            "}",
            "}",
        ]
        return "\n".join(text), self.shards

    def _invariants(self) -> None:
        """Make what depends on no loop once, at the head of the function."""
        nest = self._nest
        for phase in nest.phases:
            self._written |= {s.access.array for s in phase.stores}
        for phase in nest.phases:
            for number in sorted(nest.reach(nest.roots(phase))):
                under = [nest.nodes[n] for n in nest.reach([number])]
                fixed = not nest.loops_of(number) and not any(isinstance(n, (Carried, Total)) for n in under)
                loads = [n.access.array for n in under if isinstance(n, Load)]
                if fixed and isinstance(nest.nodes[number], (Apply, Load)) and not self._written & set(loads):
                    self._value(number, {}, SCALAR, -1)

    def _storage(self) -> tuple[list[str], list[str]]:
        """Globals for constants, and the lines that make them and the temporaries known in the function."""
        head: list[str] = []
        places: list[str] = []
        for key, array in self._arrays.items():
            if array.constant:
                kind = f"memref<{array.size}x{array.element}>"
                head.append(
                    f'memref.global "private" constant @{key} : {kind} = {array.constant} {{alignment = 64 : i64}}'
                )
                places.append(f"  %{key} = memref.get_global @{key} : {kind}")
            elif array.argument < 0:
                places.append(f"  %{key} = memref.alloca() {{alignment = 64 : i64}} : {self._type(key)}")
        return head, places

    def _promise(self, argument: int) -> str:
        return "" if argument in self._aliased else " {llvm.noalias}"

    def _type(self, name: str) -> str:
        array = self._arrays[name]
        return f"memref<{array.size}x{_held(array.element)}>"

    # loops

    def _row(self, _: Offsets) -> None:
        self._row_scope = self._scopes[-1]
        for phase, schedule in zip(self._nest.phases, self._schedules, strict=True):
            self._phase(phase, schedule, sharded=False)

    def _loops(self, order: list[int], tiles: Mapping[int, int], inner: Callable[[dict[int, int]], None],
               sharded: bool, widths: Mapping[int, int] | None = None) -> None:  # fmt: skip
        """Loops in `order`, each in steps of its tile; `inner` gets the width of the tile along each loop."""
        done = dict(widths or {})
        if not order:
            inner(done)
            return
        loop, rest = order[0], order[1:]
        size = self._nest.sizes[loop]
        tile = min(tiles.get(loop, 1), size)
        full, left = divmod(size, tile)

        def deeper(width: int, sharded: bool = False) -> None:
            if loop in self._enter:
                self._enter[loop](width)
            self._loops(rest, tiles, inner, sharded, {**done, loop: width})

        if full == 1 and not left:
            self._at[loop] = 0
            deeper(tile, sharded)
            return
        if sharded:
            self.shards = full + bool(left)
            self._sharded(loop, tile, full, left, deeper)
            return
        if full == 1:
            self._at[loop] = 0
            with self._scope():
                deeper(tile)
        elif full > 1:
            self._for(loop, self._code.index(0), self._code.index(full * tile), tile, deeper)
        if left:
            self._at[loop] = full * tile
            with self._scope():
                deeper(left)

    def _sharded(self, loop: int, tile: int, full: int, left: int, deeper: Callable[[int], None]) -> None:
        code = self._code
        step = code.index(tile)
        low = code.op("arith.muli", ("%begin", step), "index")
        whole = code.op("arith.minsi", ("%end", code.index(full)), "index") if left else "%end"
        high = code.op("arith.muli", (whole, step), "index")
        self._for(loop, low, high, tile, deeper)
        if left:
            last = code.name()
            code.line(f"{last} = arith.cmpi sgt, %end, {code.index(full)} : index")
            with code.block(f"scf.if {last}"), self._scope():
                self._at[loop] = full * tile
                deeper(left)

    def _for(self, loop: int, low: str, high: str, step: int, inner: Callable[[int], None]) -> None:
        name = self._code.name()
        head = f"scf.for {name} = {low} to {high} step {self._code.index(step)}"
        with self._code.block(head), self._scope():
            self._at[loop] = name
            inner(step)

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    # phases

    def _phase(self, phase: Phase, schedule: Schedule, sharded: bool) -> None:
        tiles = {loop: schedule.tile(loop) for loop in phase.loops}
        parallel = self._nest.parallel(phase)
        order = [loop for loop in schedule.order if loop in parallel]
        order += [loop for loop in parallel if loop not in order]
        self._written = {s.access.array for s in phase.stores}
        if schedule.pack:
            panels = self._panels(phase, schedule, order)
            self._enter = {schedule.vector: lambda width: self._pack(panels, phase, schedule, width)}
        with self._scope():
            self._loops(order, tiles, lambda widths: self._tile(phase, schedule, widths), sharded)
        self._enter, self._packed = {}, {}

    # panels

    def _panels(self, phase: Phase, schedule: Schedule, order: Sequence[int]) -> list[Load]:
        """Loads of the sums that move with the vector loop, and with none inside it or its tile but reductions."""
        nest = self._nest
        before = [p for p in order[: order.index(schedule.vector)] if schedule.tile(p) == 1]
        outside = {*nest.rows, *before, schedule.vector, *nest.reduced(phase)}
        found = [n for i in nest.reach(nest.reductions[r].body for r in phase.reductions)
                 if isinstance(n := nest.nodes[i], Load)]  # fmt: skip
        return [n for n in found if n.access.stride(schedule.vector) and not n.access.nodes
                and n.access.array not in self._written and nest.access_loops(n.access) <= outside]  # fmt: skip

    def _pack(self, panels: Sequence[Load], phase: Phase, schedule: Schedule, width: int) -> None:
        """Copy each panel of a tile `width` wide into a buffer of its own: reduction loops, then the tile."""
        nest, loop, tile = self._nest, schedule.vector, schedule.lanes * schedule.columns
        self._packed = {}
        made: dict[Access, Access] = {}
        for number, load in enumerate(panels):
            name = f"panel{number}"
            moving = [k for k in nest.reduced(phase) if load.access.stride(k)]
            strides: dict[int, int] = {}
            size = tile
            for k in reversed(moving):
                strides[k] = size
                size *= nest.sizes[k]
            self._arrays[name] = Array(load.element, max(size, self._arrays.get(name, Array("", 0)).size))
            self._memory[name] = f"%{name}"
            made[load.access] = Access(name, tuple(sorted(strides.items())))
            across = next((k for k in moving if load.access.stride(k) == 1 != load.access.stride(loop)), -1)

            def copy(widths: Mapping[int, int], load: Load = load) -> None:
                self._widths = {**widths, loop: width}
                for at in itertools.product(*(range(w) for w in widths.values())):
                    offsets = dict(zip(widths, at, strict=True))
                    if load.access.stride(loop) == 1:
                        self._fetch(load.access, offsets, tile)
                    for piece in pieces(width, schedule.lanes, False):
                        value = self._load(load, offsets, piece, loop)
                        whole = Piece(piece.offset, piece.lanes, piece.lanes)
                        self._write_panel(made[load.access], value, load.element, offsets, whole)

            with self._scope():
                self._loops(moving, {across: schedule.lanes}, copy, False)
        self._packed = made

    def _fetch(self, access: Access, offsets: Offsets, ahead: int) -> None:
        """Ask for what the next tile will copy: its lines are far apart, and no prefetcher foresees them."""
        place = self._place(access, offsets, ahead)
        memory, kind = self._memory[access.array], self._type(access.array)
        self._code.line(f"memref.prefetch {memory}[{place}], read, locality<2>, data : {kind}")

    def _write_panel(self, access: Access, value: str, element: str, offsets: Offsets, piece: Piece,
                     shift: int = 0) -> None:  # fmt: skip
        place = self._place(access, offsets, piece.offset + shift)
        memory, kind = self._memory[access.array], self._type(access.array)
        if piece.lanes == 1:
            self._code.line(f"memref.store {value}, {memory}[{place}] : {kind}")
            return
        self._code.line(f"vector.store {value}, {memory}[{place}] : {kind}, {vector(element, piece.lanes)}")

    # narrow operands

    def _find_to_widen(self, phase: Phase, schedule: Schedule) -> None:
        """Note what a tile reads one narrow element at a time: widened so, it would take longer than the products."""
        nest, reduced = self._nest, list(self._nest.reduced(phase))
        self._to_widen, self._wide, self._lanes_wide = {}, {}, schedule.lanes
        if schedule.vector < 0:
            return
        for number in nest.reach(nest.reductions[r].body for r in phase.reductions):
            load = nest.nodes[number]
            if not isinstance(load, Load) or load.element != "f32" or load.access.nodes:
                continue
            access = load.access
            narrow = self._arrays[access.array].element in NARROW and access.array not in self._written
            if not narrow or access.stride(schedule.vector) or access in self._packed:
                continue
            size = math.prod(w for p, w in self._widths.items() if access.stride(p))
            for at, loop in enumerate(reduced):
                inner = [k for k in reduced[at:] if access.stride(k)]
                if inner and size * math.prod(nest.sizes[k] for k in inner) <= _MOST_WIDE:
                    self._to_widen.setdefault(loop, []).append(load)
                    break
                size *= schedule.tile(loop) if access.stride(loop) else 1

    def _widen(self, load: Load, inner: Sequence[int], outer: Mapping[int, int]) -> None:
        """Copy what a tile reads of a narrow operand while the loops `inner` run to a buffer of f32, in vectors."""
        nest, access = self._nest, load.access
        self._wide.pop(access, None)
        moving = [k for k in inner if access.stride(k)]
        widths = {p: w for p, w in {**self._widths, **outer}.items() if access.stride(p) and p not in moving}
        along = next((k for k in (*moving, *widths) if access.stride(k) == 1), -1)
        sizes = {**widths, **{k: nest.sizes[k] for k in moving}}
        strides: dict[int, int] = {}
        size = 1
        for k in sorted(sizes, key=lambda k: k != along):
            strides[k] = size
            size *= sizes[k]
        name = f"wide_{access.array}_{len(access.strides)}_{access.offset}"
        self._arrays[name] = Array("f32", max(size, self._arrays.get(name, Array("", 0)).size))
        self._memory[name] = f"%{name}"
        panel = Access(name, tuple(sorted((k, strides[k]) for k in moving)))
        made = _Wide(panel, {p: strides[p] for p in widths})
        kept, others = self._widths, [p for p in widths if p != along]

        def copy(taken: Mapping[int, int]) -> None:
            width = taken.get(along, widths.get(along, 1))
            for at in itertools.product(*(range(widths[p]) for p in others)):
                offsets = dict(zip(others, at, strict=True))
                whole = width // self._lanes_wide * self._lanes_wide
                full = pieces(whole, self._lanes_wide, False)
                for piece in [*full, *_powers(whole, width - whole)]:
                    value = self._load(load, offsets, piece, along)
                    self._write_panel(panel, value, "f32", offsets, piece, made.shift(offsets))

        with self._scope():
            self._loops(moving, {along: self._lanes_wide}, copy, False)
        self._widths = kept
        self._wide[access] = made

    def _tile(self, phase: Phase, schedule: Schedule, widths: Mapping[int, int]) -> None:
        """Reductions and stores of one tile of the parallel loops, `widths` wide."""
        self._widths = dict(widths)
        loops = [loop for loop in widths if loop != schedule.vector]
        lanes = pieces(widths[schedule.vector], schedule.lanes, False) if schedule.vector in widths else [SCALAR]
        spots = [(dict(zip(loops, at, strict=True)), piece)
                 for at in itertools.product(*(range(widths[loop]) for loop in loops)) for piece in lanes]  # fmt: skip
        with self._scope():
            if phase.reductions:
                self._reduce(phase, schedule, spots)
            for offsets, piece in spots:
                self._store(phase.stores, offsets, piece, schedule.vector)

    def _store(self, stores: Sequence[Store], offsets: Offsets, piece: Piece, loop: int) -> None:
        """All values first, then all stores: an argument may share memory with a result, element by element."""
        values = [self._lanes(s.node, offsets, piece, loop) for s in stores]
        for store, value in zip(stores, values, strict=True):
            if store.condition < 0:
                self._write(store.access, value, offsets, piece, loop)
                continue
            condition = self._value(store.condition, offsets, SCALAR, -1)
            with self._code.block(f"scf.if {condition}"), self._scope():
                self._write(store.access, value, offsets, piece, loop)

    def _reduce(self, phase: Phase, schedule: Schedule, spots: Sequence[tuple[Offsets, Piece]]) -> None:
        nest = self._nest
        reduced = nest.reduced(phase)
        if schedule.vector in reduced:
            self._reduce_along(phase, schedule, spots)
            return
        carried = [(r, offsets, piece) for r in phase.reductions for offsets, piece in spots]
        starts = [self._lanes(nest.reductions[r].start, offsets, piece, schedule.vector)
                  for r, offsets, piece in carried]  # fmt: skip
        types = [vector(nest.reductions[r].element, piece.lanes) for r, _, piece in carried]

        def step(values: list[str], widths: Mapping[int, int]) -> list[str]:
            self._widths.update(widths)
            for at in itertools.product(*(range(widths[loop]) for loop in widths)):
                inner = dict(zip(widths, at, strict=True))
                values = self._advance(carried, values, inner, schedule.vector)
            return values

        tiles = {loop: schedule.tile(loop) for loop in reduced}
        sums = all((found.combiner, found.element) == ("arith.addf", "f32")
                   for found in (nest.reductions[r] for r in phase.reductions))  # fmt: skip
        self._find_to_widen(phase, schedule)
        totals = self._carry(list(reduced), tiles, starts, types, step, {}, sums)
        self._to_widen, self._wide = {}, {}
        for (r, offsets, piece), value in zip(carried, totals, strict=True):
            self._remember_total(r, offsets, piece, value, schedule.vector)

    def _reduce_along(self, phase: Phase, schedule: Schedule, spots: Sequence[tuple[Offsets, Piece]]) -> None:
        """Reductions whose vector loop is itself reduced: partial results in lanes, put together at the end."""
        nest, code, loop = self._nest, self._code, schedule.vector
        reduced = nest.reduced(phase)
        columns = pieces(min(schedule.tile(loop), nest.sizes[loop]), schedule.lanes, True)
        carried = [(r, offsets, number) for r in phase.reductions for offsets, _ in spots
                   for number in range(len(columns))]  # fmt: skip
        types = [vector(nest.reductions[r].element, schedule.lanes) for r, _, _ in carried]
        starts = [code.constant(_neutral(nest.reductions[r].combiner, nest.reductions[r].element), type_)
                  for (r, _, _), type_ in zip(carried, types, strict=True)]  # fmt: skip

        def step(values: list[str], widths: Mapping[int, int]) -> list[str]:
            self._widths.update(widths)
            others = [other for other in widths if other != loop]
            parts = pieces(widths[loop], schedule.lanes, True)
            for at in itertools.product(*(range(widths[other]) for other in others)):
                inner = dict(zip(others, at, strict=True))
                values = [
                    self._combine(r, {**offsets, **inner}, parts[number], loop, value)
                    if number < len(parts) else value
                    for (r, offsets, number), value in zip(carried, values, strict=True)
                ]  # fmt: skip
            return values

        tiles = {other: schedule.tile(other) for other in reduced}
        order = [*(other for other in reduced if other != loop), loop]
        partial = self._carry(order, tiles, starts, types, step, {})
        count = len(columns)
        for number, (r, offsets, _) in enumerate(carried[::count]):
            found = nest.reductions[r]
            values = partial[number * count : (number + 1) * count]
            while len(values) > 1:
                pairs = [self._join(found.combiner, a, b, types[0], found.element)
                         for a, b in zip(values[::2], values[1::2], strict=False)]  # fmt: skip
                values = pairs + values[len(pairs) * 2 :]
            total = values[0]
            if schedule.lanes > 1:
                total = code.name()
                kind = _HORIZONTAL[found.combiner]
                code.line(f"{total} = vector.reduction <{kind}>, {values[0]} : {types[0]} into {found.element}")
            start = self._lanes(found.start, offsets, SCALAR, -1)
            total = self._join(found.combiner, start, total, found.element, found.element)
            self._remember_total(r, offsets, SCALAR, total, -1)

    def _carry(
        self, order: list[int], tiles: Mapping[int, int], values: list[str], types: list[str],
        step: Callable[[list[str], Mapping[int, int]], list[str]], widths: Mapping[int, int], sums: bool = False,
    ) -> list[str]:  # fmt: skip
        """Reduction loops in `order` around `step`, which turns accumulators into new ones. sums: they all are
        sums of floats along one lane each, which a long innermost loop adds up block by block."""
        if not order:
            return step(values, widths)
        loop, rest = order[0], order[1:]
        size = self._nest.sizes[loop]
        tile = min(tiles.get(loop, 1), size)
        full, left = divmod(size, tile)
        for load in self._to_widen.get(loop, ()):
            self._widen(load, order, widths)

        def deeper(values: list[str], width: int) -> list[str]:
            return self._carry(rest, tiles, values, types, step, {**widths, loop: width})

        if full == 1:
            self._at[loop] = 0
            with self._scope():
                values = deeper(values, tile)
        elif full > 1:
            done = 0
            block = _BLOCK // tile * tile
            if sums and not rest and full * tile >= 4 * block > 0:
                done = full * tile // block * block
                values = self._sum_blocks(loop, done, block, tile, values, types, lambda v: deeper(v, tile))
            if done < full * tile:
                ends = self._code.index(done), self._code.index(full * tile)
                values = self._sum(loop, ends, tile, values, types, lambda v: deeper(v, tile))
        if left:
            self._at[loop] = full * tile
            with self._scope():
                values = deeper(values, left)
        return values

    def _sum(
        self, loop: int | None, ends: tuple[str, str], step: int, values: list[str], types: list[str],
        inner: Callable[[list[str]], list[str]],
    ) -> list[str]:  # fmt: skip
        """A loop that carries accumulators; `loop` None: its variable is `self._block`."""
        code = self._code
        name = code.name()
        made, inside = [code.name() for _ in values], [code.name() for _ in values]
        given = ", ".join(f"{i} = {v}" for i, v in zip(inside, values, strict=True))
        bounds = f"{ends[0]} to {ends[1]} step {code.index(step)}"
        head = f"{', '.join(made)} = scf.for {name} = {bounds} iter_args({given}) -> ({', '.join(types)})"
        with code.block(head), self._scope():
            if loop is None:
                self._block = name
            else:
                self._at[loop] = name
            code.line(f"scf.yield {', '.join(inner(inside))} : {', '.join(types)}")
        return made

    def _sum_blocks(
        self, loop: int, end: int, block: int, tile: int, values: list[str], types: list[str],
        inner: Callable[[list[str]], list[str]],
    ) -> list[str]:  # fmt: skip
        """Sums over blocks of a loop, each from 0, added up."""
        code = self._code

        def one(totals: list[str]) -> list[str]:
            start = self._block
            stop = code.op("arith.addi", (start, code.index(block)), "index")
            zeros = [code.constant("0.0", type_) for type_ in types]
            parts = self._sum(loop, (start, stop), tile, zeros, types, inner)
            return [code.op("arith.addf", pair, type_) for *pair, type_ in zip(totals, parts, types, strict=True)]

        return self._sum(None, (code.index(0), code.index(end)), block, values, types, one)

    def _advance(
        self, carried: Sequence[tuple[int, Offsets, Piece]], values: Sequence[str], inner: Offsets, loop: int
    ) -> list[str]:
        """The accumulators after one more iteration."""
        reductions = self._nest.reductions
        if all(reductions[r].combiner for r, _, _ in carried):
            return [self._combine(r, {**offsets, **inner}, piece, loop, value)
                    for (r, offsets, piece), value in zip(carried, values, strict=True)]  # fmt: skip
        made: list[str] = []
        for r, offsets, piece in carried:
            with self._scope():
                for (other, at, part), value in zip(carried, values, strict=True):
                    if (at, part) == (offsets, piece):
                        self._scopes[-1][("carried", other)] = value
                self._inside_body = True
                made.append(self._lanes(reductions[r].body, {**offsets, **inner}, piece, loop))
                self._inside_body = False
        return made

    def _combine(self, reduction: int, offsets: Offsets, piece: Piece, loop: int, value: str) -> str:
        nest, code = self._nest, self._code
        found = nest.reductions[reduction]
        type_ = vector(found.element, piece.lanes)
        term = nest.nodes[found.term]
        along = loop in found.loops
        if found.combiner == "arith.addf" and isinstance(term, Apply) and term.name == "arith.mulf" and not (
            along and piece.partial and len(set(term.operands)) == 0
        ):  # fmt: skip
            left, right = (self._lanes(o, offsets, piece, loop) for o in term.operands)
            if along and piece.partial:
                left = self._masked(left, piece, type_, code.constant("0.0", type_))
                right = self._masked(right, piece, type_, code.constant("0.0", type_))
            return code.op("math.fma", (left, right, value), type_)
        made = self._lanes(found.term, offsets, piece, loop)
        if along and piece.partial:
            neutral = code.constant(_neutral(found.combiner, found.element), type_)
            made = self._masked(made, piece, type_, neutral)
        return self._join(found.combiner, value, made, type_, found.element)

    def _masked(self, value: str, piece: Piece, type_: str, other: str) -> str:
        return self._code.op("arith.select", (self._mask(piece), value, other), f"vector<{piece.lanes}xi1>, {type_}")

    def _join(self, combiner: str, left: str, right: str, type_: str, element: str) -> str:
        attributes = "fastmath<contract>" if element.startswith("f") else ""
        return self._code.op(combiner, (left, right), type_, attributes)

    def _remember_total(self, reduction: int, offsets: Offsets, piece: Piece, value: str, loop: int) -> None:
        node = self._nest.add(Total(reduction, self._nest.reductions[reduction].element))
        for_row = self._nest.loops_of(node) == frozenset(self._nest.rows)
        scope = self._row_scope if for_row else self._scopes[-1]
        scope[self._key(node, offsets, piece, loop)] = value

    # values

    def _key(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> tuple[object, ...]:
        loops = self._nest.loops_of(node)
        own = tuple(sorted((k, v) for k, v in offsets.items() if k in loops and v))
        return (node, own, piece if loop in loops else SCALAR)

    def _known(self, key: object) -> str | None:
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    def _lanes(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> str:
        """A node with one element a lane of `piece`: broadcast where it does not depend on the vector loop."""
        found = self._nest.nodes[node]
        type_ = vector(_computed(found.element), piece.lanes)
        if isinstance(found, Constant):
            return self._code.constant(_text(found), type_)
        if isinstance(found, Carried):
            carried = self._known(("carried", found.reduction))
            assert carried is not None, "an accumulator outside its reduction"
            return carried
        value = self._value(node, offsets, piece, loop)
        if piece.lanes == 1 or loop in self._nest.loops_of(node):
            return value
        key = ("broadcast", value, piece.lanes)
        known = self._known(key)
        if known is None:
            known = self._broadcast(value, found.element, type_)
            self._home(node)[key] = known
        return known

    def _broadcast(self, value: str, element: str, type_: str) -> str:
        return self._code.convert("vector.broadcast", value, _computed(element), type_)

    def _once(self, key: object, make: Callable[[], str]) -> str:
        known = self._known(key)
        if known is None:
            known = make()
            self._scopes[-2 if self._inside_body else -1][key] = known
        return known

    def _value(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> str:
        """A node as a scalar where it does not depend on the vector loop, as a vector where it does."""
        piece = piece if loop in self._nest.loops_of(node) else SCALAR
        loop = loop if piece.lanes > 1 or loop in self._nest.loops_of(node) else -1
        key = self._key(node, offsets, piece, loop)
        known = self._known(key)
        if known is not None:
            return known
        made = self._make(node, offsets, piece, loop)
        found = self._nest.nodes[node]
        if not (isinstance(found, Load) and found.access.array in self._written):
            self._home(node)[key] = made
        return made

    def _home(self, node: int) -> dict[object, str]:
        """The scope that keeps a node's value: not the one of accumulators where it does not depend on them."""
        inner = not self._inside_body or any(isinstance(self._nest.nodes[n], Carried) for n in self._nest.reach([node]))
        return self._scopes[-1 if inner else -2]

    def _make(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> str:
        found = self._nest.nodes[node]
        if isinstance(found, Load):
            return self._load(found, offsets, piece, loop)
        if isinstance(found, Constant):
            return self._code.constant(_text(found), _computed(found.element))
        if isinstance(found, Index):
            return self._index(found.loop, offsets, piece, loop)
        if isinstance(found, Apply):
            return self._apply(found, offsets, piece, loop)
        if isinstance(found, Carried):
            return self._lanes(node, offsets, piece, loop)
        raise AssertionError(f"total {found} before its reduction")

    def _apply(self, found: Apply, offsets: Offsets, piece: Piece, loop: int) -> str:
        nodes, code = self._nest.nodes, self._code
        element = found.element
        type_ = vector(_computed(element), piece.lanes)
        if found.name == "arith.addf" and element == "f32":
            for one, other in (found.operands, found.operands[::-1]):
                product = nodes[one]
                if isinstance(product, Apply) and product.name == "arith.mulf":
                    factors = [self._lanes(o, offsets, piece, loop) for o in (*product.operands, other)]
                    return code.op("math.fma", factors, type_)
        operands = [self._lanes(o, offsets, piece, loop) for o in found.operands]
        if found.name.startswith("math.") and found.name not in NATIVE:
            if element != "f32" or found.name not in EXPANSIONS:
                raise NotCovered(f"{found.name} on {element}")
            return EXPANSIONS[found.name](code, operands, type_)
        types = [vector(_computed(nodes[o].element), piece.lanes) for o in found.operands]
        if found.name == "arith.truncf" and element in NARROW and nodes[found.operands[0]].element == "f32":
            return narrowed(code, operands[0], types[0], type_)
        if found.name == "arith.extf" and nodes[found.operands[0]].element in NARROW and element == "f32":
            return widened(code, operands[0], types[0], type_)
        made = code.name()
        attributes = f" {{{found.attributes}}}" if found.attributes else ""
        code.line(f'{made} = "{found.name}"({", ".join(operands)}){attributes} : ({", ".join(types)}) -> {type_}')
        return made

    def _index(self, loop: int, offsets: Offsets, piece: Piece, vector_loop: int) -> str:
        """The value of a loop, one a lane along the vector loop."""
        code = self._code
        shift = offsets.get(loop, 0) + (piece.offset if loop == vector_loop else 0)
        base = self._shifted(((loop, 1),), shift)
        if loop != vector_loop or piece.lanes == 1:
            return base
        type_ = vector("index", piece.lanes)
        steps = code.constant(f"[{', '.join(map(str, range(piece.lanes)))}]", type_)
        return code.op("arith.addi", (code.convert("vector.broadcast", base, "index", type_), steps), type_)

    # memory

    def _shifted(self, strides: tuple[tuple[int, int], ...], shift: int) -> str:
        """shift + sum of stride * loop, as an index."""
        code, moving = self._code, []
        for loop, stride in strides:
            at = self._at[loop]
            if isinstance(at, int):
                shift += at * stride
            else:
                moving.append((at, stride))
        base = ""
        for at, stride in moving:
            term = at if stride == 1 else self._once(("scaled", at, stride), lambda a=at, s=stride: code.op(
                "arith.muli", (a, code.index(s)), "index"))  # fmt: skip
            base = term if not base else self._once(("sum", base, term), lambda b=base, t=term: code.op(
                "arith.addi", (b, t), "index"))  # fmt: skip
        if not base:
            return code.index(shift)
        if not shift:
            return base
        return self._once(("sum", base, shift), lambda: code.op("arith.addi", (base, code.index(shift)), "index"))

    def _place(self, access: Access, offsets: Offsets, extra: int) -> str:
        """The position of an access in its array."""
        shift = access.offset + extra + sum(s * offsets.get(loop, 0) for loop, s in access.strides)
        place = self._shifted(access.strides, shift)
        for node, stride in access.nodes:
            value = self._value(node, offsets, SCALAR, -1)
            if stride != 1:
                value = self._once(("scaled", value, stride), lambda v=value, s=stride: self._code.op(
                    "arith.muli", (v, self._code.index(s)), "index"))  # fmt: skip
            place = self._once(("sum", place, value), lambda p=place, v=value: self._code.op(
                "arith.addi", (p, v), "index"))  # fmt: skip
        return place

    def _load(self, load: Load, offsets: Offsets, piece: Piece, loop: int) -> str:
        access = load.access
        panel = self._packed.get(access)
        if panel is not None:
            place, whole = self._place(panel, offsets, piece.offset), Piece(piece.offset, piece.lanes, piece.lanes)
            return self._once(("load", panel.array, place, piece.lanes), lambda: self._read(
                Load(panel, load.element), place, whole, 1))  # fmt: skip
        wide = self._wide.get(access)
        if wide is not None:
            place = self._place(wide.panel, offsets, wide.shift(offsets))
            return self._once(("load", wide.panel.array, place, 1), lambda: self._read(
                Load(wide.panel, load.element), place, SCALAR, 1))  # fmt: skip
        stride = access.stride(loop) if loop >= 0 else 0
        by_lane = piece.lanes > 1 and any(loop in self._nest.loops_of(n) for n, _ in access.nodes)
        if by_lane:
            return self._gather(load, offsets, piece, loop)
        place = self._place(access, offsets, stride * piece.offset)
        key = ("load", access.array, place, piece.lanes, piece.active, stride)
        if access.array in self._written:
            return self._read(load, place, piece, stride)
        if stride not in (0, 1) and key not in self._scopes[-1]:
            self._load_block(load, offsets, piece, loop)
        return self._once(key, lambda: self._read(load, place, piece, stride))

    def _load_block(self, load: Load, offsets: Offsets, piece: Piece, loop: int) -> None:
        """Where another loop of the tile is contiguous for a whole vector, load a square block and transpose it in
        registers; its vectors are then known. Does nothing elsewhere."""
        access, lanes = load.access, piece.lanes
        across = next((u for u, s in access.strides if s == 1 and self._widths.get(u, 1) >= lanes), -1)
        if across < 0 or piece.partial or load.element not in ("f32", "i32") or lanes not in (4, 8):
            return
        first = offsets.get(across, 0) // lanes * lanes
        if first + lanes > self._widths[across]:
            return
        stride = access.stride(loop)
        corner = {**offsets, across: first}
        rows = []
        for lane in range(lanes):
            place = self._place(access, corner, stride * (piece.offset + lane))
            rows.append(self._once(("load", access.array, place, lanes, lanes, 1), lambda p=place: self._read(
                load, p, Piece(0, lanes, lanes), 1)))  # fmt: skip
        for step, column in enumerate(transposed(self._code, rows, vector(load.element, lanes))):
            place = self._place(access, {**offsets, across: first + step}, stride * piece.offset)
            self._scopes[-2 if self._inside_body else -1][("load", access.array, place, lanes, lanes, stride)] = column

    def _read(self, load: Load, place: str, piece: Piece, stride: int) -> str:
        code, array = self._code, load.access.array
        memory, kind, held = self._memory[array], self._type(array), _held(self._arrays[array].element)
        made = code.name()
        if piece.lanes == 1:
            code.line(f"{made} = memref.load {memory}[{place}] : {kind}")
        elif stride == 1:
            type_ = vector(held, piece.lanes)
            if piece.partial and self._arrays[array].element in NARROW:
                made = self._read_parts(load.access.array, place, piece)
            elif piece.partial:
                zero = code.constant("0.0" if held[0] in "fb" else "0", type_)
                mask = f"vector<{piece.lanes}xi1>"
                code.line(
                    f"{made} = vector.maskedload {memory}[{place}], {self._mask(piece)}, {zero}"
                    f" : {kind}, {mask}, {type_} into {type_}"
                )
            else:
                code.line(f"{made} = vector.load {memory}[{place}] : {kind}, {type_}")
        else:
            return self._by_lane(load, piece, lambda lane: code.op(
                "arith.addi", (place, code.index(stride * lane)), "index") if lane else place)  # fmt: skip
        return self._unpacked(made, load, piece.lanes)

    def _read_parts(self, array: str, place: str, piece: Piece) -> str:
        """A partial vector in powers of two: no x86 before AVX-512 has masked loads of 16 bits."""
        code, memory, kind = self._code, self._memory[array], self._type(array)
        held = _held(self._arrays[array].element)
        whole = vector(held, piece.lanes)
        made = code.constant("0.0" if held == "f16" else "0", whole)
        for part in _powers(0, piece.active):
            at = code.op("arith.addi", (place, code.index(part.offset)), "index") if part.offset else place
            value, joined = code.name(), code.name()
            if part.lanes == 1:
                code.line(f"{value} = memref.load {memory}[{at}] : {kind}")
                code.line(f"{joined} = vector.insert {value}, {made} [{part.offset}] : {held} into {whole}")
            else:
                type_ = vector(held, part.lanes)
                code.line(f"{value} = vector.load {memory}[{at}] : {kind}, {type_}")
                code.line(
                    f"{joined} = vector.insert_strided_slice {value}, {made}"
                    f" {{offsets = [{part.offset}], strides = [1]}} : {type_} into {whole}"
                )
            made = joined
        return made

    def _gather(self, load: Load, offsets: Offsets, piece: Piece, loop: int) -> str:
        """A load whose place is another in every lane."""

        def place(lane: int) -> str:
            return self._place(load.access, {**offsets, loop: piece.offset + lane}, 0)

        return self._by_lane(load, piece, place)

    def _by_lane(self, load: Load, piece: Piece, place: Callable[[int], str]) -> str:
        code, array = self._code, load.access.array
        held = _held(self._arrays[array].element)
        found: list[str] = []
        for lane in range(piece.active):
            found.append(code.name())
            code.line(f"{found[-1]} = memref.load {self._memory[array]}[{place(lane)}] : {self._type(array)}")
        found += [found[0]] * (piece.lanes - piece.active)
        made = code.name()
        code.line(f"{made} = vector.from_elements {', '.join(found)} : {vector(held, piece.lanes)}")
        return self._unpacked(made, load, piece.lanes)

    def _unpacked(self, value: str, load: Load, lanes: int) -> str:
        """What a load gives, from what stands in memory."""
        stored, element = self._arrays[load.access.array].element, load.element
        if element == "i1":
            return self._code.convert("arith.trunci", value, vector("i8", lanes), vector("i1", lanes))
        if stored in NARROW and element == "f32":
            return widened(self._code, value, vector(_held(stored), lanes), vector(element, lanes))
        return value

    def _write(self, access: Access, value: str, offsets: Offsets, piece: Piece, loop: int) -> None:
        code, memory, kind = self._code, self._memory[access.array], self._type(access.array)
        element = self._nest.arrays[access.array].element
        held = _held(element)
        if element == "i1":
            value = code.convert("arith.extui", value, vector("i1", piece.lanes), vector("i8", piece.lanes))
        stride = access.stride(loop) if loop >= 0 else 0
        if piece.lanes == 1:
            place = self._place(access, offsets, stride * piece.offset)
            code.line(f"memref.store {value}, {memory}[{place}] : {kind}")
            return
        if stride == 1 and not any(loop in self._nest.loops_of(n) for n, _ in access.nodes):
            whole = vector(held, piece.lanes)
            for part in _powers(0, piece.active) if piece.partial else [piece]:
                self._write_part(access, value, whole, held, offsets, piece, part)
            return
        for lane in range(piece.active):
            place = self._place(access, {**offsets, loop: piece.offset + lane}, 0)
            scalar = code.name()
            code.line(f"{scalar} = vector.extract {value}[{lane}] : {held} from {vector(held, piece.lanes)}")
            code.line(f"memref.store {scalar}, {memory}[{place}] : {kind}")

    def _write_part(self, access: Access, value: str, whole: str, held: str, offsets: Offsets, piece: Piece,
                    part: Piece) -> None:  # fmt: skip
        code, memory, kind = self._code, self._memory[access.array], self._type(access.array)
        start = 0 if part is piece else part.offset
        place = self._place(access, offsets, piece.offset + start)
        if part.lanes == 1:
            scalar = code.name()
            code.line(f"{scalar} = vector.extract {value}[{start}] : {held} from {whole}")
            code.line(f"memref.store {scalar}, {memory}[{place}] : {kind}")
            return
        type_ = vector(held, part.lanes)
        if part is not piece:
            cut = code.name()
            code.line(
                f"{cut} = vector.extract_strided_slice {value}"
                f" {{offsets = [{start}], sizes = [{part.lanes}], strides = [1]}} : {whole} to {type_}"
            )
            value = cut
        code.line(f"vector.store {value}, {memory}[{place}] : {kind}, {type_}")

    def _mask(self, piece: Piece) -> str:
        bits = ", ".join("true" if lane < piece.active else "false" for lane in range(piece.lanes))
        return self._code.constant(f"[{bits}]", f"vector<{piece.lanes}xi1>")


def transposed(code: Code, rows: Sequence[str], type_: str) -> list[str]:
    """The columns of a square of 4 or 8 vectors, by shuffles that are one instruction each on x86.

    The network of Intel's optimisation manual: unpack, shuffle pairs, then swap the 128-bit halves.
    """

    def shuffle(left: str, right: str, lanes: Sequence[int]) -> str:
        made = code.name()
        code.line(f"{made} = vector.shuffle {left}, {right} [{', '.join(map(str, lanes))}] : {type_}, {type_}")
        return made

    count = len(rows)
    halves = range(0, count, 4)
    low = [h + lane for h in halves for lane in (0, count, 1, count + 1)]
    high = [h + lane for h in halves for lane in (2, count + 2, 3, count + 3)]
    front = [h + lane for h in halves for lane in (0, 1, count, count + 1)]
    back = [h + lane for h in halves for lane in (2, 3, count + 2, count + 3)]
    quads: list[list[str]] = []
    for at in halves:
        a, b, c, d = rows[at : at + 4]
        ab, cd = (shuffle(a, b, low), shuffle(a, b, high)), (shuffle(c, d, low), shuffle(c, d, high))
        quads.append([shuffle(ab[i], cd[i], lanes) for i in (0, 1) for lanes in (front, back)])
    if count == 4:
        return quads[0]
    lower, upper = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
    pairs = list(zip(*quads, strict=True))
    return [shuffle(x, y, lanes) for lanes in (lower, upper) for x, y in pairs]


def _held(element: str) -> str:
    """The element type in memory."""
    return "i8" if element == "i1" else _computed(element)


def _text(constant: Constant) -> str:
    """The literal of a constant as it is computed with."""
    return bf16_bits(constant.text) if constant.element == "bf16" else constant.text


def _computed(element: str) -> str:
    """The element type of values; bf16 goes as its bits, for LLVM takes vectors of bf16 apart."""
    return "i16" if element == "bf16" else element


def _neutral(combiner: str, element: str) -> str:
    """The literal that leaves `combiner` as it is; raises NotCovered where it has none."""
    if combiner in NEUTRAL:
        return NEUTRAL[combiner]
    if combiner in ("arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf") and element in _INFINITIES:
        return _INFINITIES[element]["min" in combiner]
    if combiner in _UNSIGNED:
        return _UNSIGNED[combiner]
    if combiner in ("arith.maxsi", "arith.minsi"):
        most = 1 << (int(element[1:]) - 1)
        return str(-most if combiner == "arith.maxsi" else most - 1)
    raise NotCovered(f"{combiner} of {element} in lanes")

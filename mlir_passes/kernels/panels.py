"""Loops in tiles, and what a tile reads copied to where it reads it well: packed, or widened."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from mlir_passes.kernels.code import vector
from mlir_passes.kernels.memory import Wide
from mlir_passes.kernels.narrow import NARROW
from mlir_passes.kernels.nest import (
    Access,
    Array,
    Load,
    Nest,
    Phase,
)
from mlir_passes.kernels.pieces import Offsets, Piece, pieces, powers
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.values import Values

_MOST_WIDE = 1 << 14  # elements of a narrow operand that a tile widens at a time


class Panels(Values):
    """Parallel loops, and the buffers that their tiles read instead of an operand."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self._enter: dict[int, Callable[[int], None]] = {}  # what to do where a tile of a loop begins
        self._to_widen: dict[int, list[Load]] = {}  # before a reduction loop of the tile at hand begins
        self._lanes_wide = 1
        self.shards = 1

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
            self._make_room(name, load.element, size)
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

    def _make_room(self, name: str, element: str, size: int) -> None:
        """A buffer on the stack, as large as the largest tile that asks for it."""
        self._arrays[name] = Array(element, max(size, self._arrays.get(name, Array("", 0)).size))
        self._memory[name] = f"%{name}"

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
        self._make_room(name, "f32", size)
        panel = Access(name, tuple(sorted((k, strides[k]) for k in moving)))
        made = Wide(panel, {p: strides[p] for p in widths})
        kept, others = self._widths, [p for p in widths if p != along]

        def copy(taken: Mapping[int, int]) -> None:
            width = taken.get(along, widths.get(along, 1))
            for at in itertools.product(*(range(widths[p]) for p in others)):
                offsets = dict(zip(others, at, strict=True))
                whole = width // self._lanes_wide * self._lanes_wide
                full = pieces(whole, self._lanes_wide, False)
                for piece in [*full, *powers(whole, width - whole)]:
                    value = self._load(load, offsets, piece, along)
                    self._write_panel(panel, value, "f32", offsets, piece, made.shift(offsets))

        with self._scope():
            self._loops(moving, {along: self._lanes_wide}, copy, False)
        self._widths = kept
        self._wide[access] = made

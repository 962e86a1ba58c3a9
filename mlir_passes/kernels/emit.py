"""From a `Nest` and a schedule a phase to MLIR text over flat memrefs: scf loops, vector loads, arith on vectors.

Everything of a tile is unrolled, and every value is made once in the scope that asks for it first; so a window that
overlaps the next one shares its loads, and an operand that does not depend on the vector loop stays a scalar until
it is needed as a vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from mlir_passes.kernels.nest import (
    Apply,
    Carried,
    Load,
    Nest,
    Phase,
    Store,
    Total,
)
from mlir_passes.kernels.pieces import SCALAR, Offsets, Piece, pieces
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.kernels.sums import Sums


def emit(nest: Nest, schedules: Sequence[Schedule], name: str, aliased: frozenset[int]) -> tuple[str, int]:
    """The module of a kernel, and its number of shards. aliased: arguments that may share memory with another."""
    return _Emitter(nest, schedules, aliased).module(name)


class _Emitter(Sums):
    """The function: its arguments and storage, rows, phases, tiles, stores."""

    def __init__(self, nest: Nest, schedules: Sequence[Schedule], aliased: frozenset[int]) -> None:
        super().__init__(nest)
        self._schedules = schedules
        self._aliased = aliased

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
            *(f"func.func private @{f}{kind} attributes {{llvm.readnone}}" for f, kind in self._functions.items()),
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

    def _row(self, _: Offsets) -> None:
        self._row_scope = self._scopes[-1]
        for phase, schedule in zip(self._nest.phases, self._schedules, strict=True):
            self._phase(phase, schedule, sharded=False)

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

"""Reductions of a tile: accumulators that loops carry, one a result or one a lane."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from mlir_passes.kernels.code import vector
from mlir_passes.kernels.nest import (
    Apply,
    Nest,
    NotCovered,
    Phase,
    Total,
)
from mlir_passes.kernels.panels import Panels
from mlir_passes.kernels.pieces import SCALAR, Offsets, Piece, pieces
from mlir_passes.kernels.schedule import Schedule

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
_INFINITIES = {"f32": ("0xFF800000", "0x7F800000"), "f64": ("0xFFF0000000000000", "0x7FF0000000000000")}

Spot = tuple[Offsets, Piece]  # one result of a tile, or a vector of them


class Sums(Panels):
    """Reductions along the results' vectors, or along their own."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self._block = ""  # where the block at hand of a long sum starts
        self._row_scope = self._scopes[0]  # what later phases of a row may use

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
            found, type_ = nest.reductions[r], types[number * count]
            values = partial[number * count : (number + 1) * count]
            while len(values) > 1:
                pairs = [self._join(found.combiner, a, b, type_, found.element)
                         for a, b in zip(values[::2], values[1::2], strict=False)]  # fmt: skip
                values = pairs + values[len(pairs) * 2 :]
            total = values[0]
            if schedule.lanes > 1:
                total = code.name()
                kind = _HORIZONTAL[found.combiner]
                code.line(f"{total} = vector.reduction <{kind}>, {values[0]} : {type_} into {found.element}")
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

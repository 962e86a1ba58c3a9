"""Loads and stores of elements and vectors, in whatever order an access asks for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlir_passes.kernels.code import Code, vector
from mlir_passes.kernels.narrow import NARROW, in_memory, widened
from mlir_passes.kernels.nest import (
    Access,
    Load,
    Nest,
)
from mlir_passes.kernels.pieces import SCALAR, Offsets, Piece, moved, powers
from mlir_passes.kernels.scopes import Scopes


@dataclass(frozen=True)
class Wide:
    """A narrow operand of the tile at hand as f32. panel: its places by reduction loop; steps: stride by the other
    loops of the tile, whose iterations all stand in it."""

    panel: Access
    steps: Mapping[int, int]

    def shift(self, offsets: Offsets) -> int:
        return sum(step * offsets.get(loop, 0) for loop, step in self.steps.items())


class Memory(Scopes):
    """Arrays as flat memrefs, and what is read from them and written to them."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self._arrays = dict(nest.arrays)  # the kernel's, and panels
        self._memory: dict[str, str] = {}
        self._written: set[str] = set()
        self._widths: dict[int, int] = {}  # iterations of each loop in the tile at hand
        self._packed: dict[Access, Access] = {}  # where a panel of a tile stands while its loop runs
        self._wide: dict[Access, Wide] = {}  # where a narrow operand of a tile stands as f32

    @abstractmethod
    def _value(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> str:
        """A node as a scalar where it does not depend on the vector loop, as a vector where it does."""

    def _type(self, name: str) -> str:
        array = self._arrays[name]
        return f"memref<{array.size}x{in_memory(array.element)}>"

    def _place(self, access: Access, offsets: Offsets, extra: int = 0) -> str:
        """The position of an access in its array, `extra` elements on."""
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
            return self._once(("load", panel.array, load.element, place, piece.lanes), lambda: self._read(
                Load(panel, load.element), place, whole, 1))  # fmt: skip
        wide = self._wide.get(access)
        if wide is not None:
            place = self._place(wide.panel, offsets, wide.shift(offsets))
            return self._once(("load", wide.panel.array, load.element, place, 1), lambda: self._read(
                Load(wide.panel, load.element), place, SCALAR, 1))  # fmt: skip
        stride = access.stride(loop) if loop >= 0 else 0
        by_lane = piece.lanes > 1 and any(loop in self._nest.loops_of(n) for n, _ in access.nodes)
        if by_lane:
            return self._gather(load, offsets, piece, loop)
        place = self._place(access, moved(offsets, loop, piece.offset))
        key = ("load", access.array, load.element, place, piece.lanes, piece.active, stride)
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
        corner, what = {**offsets, across: first}, ("load", access.array, load.element)
        rows = []
        for lane in range(lanes):
            place = self._place(access, moved(corner, loop, piece.offset + lane))
            rows.append(self._once((*what, place, lanes, lanes, 1), lambda p=place: self._read(
                load, p, Piece(0, lanes, lanes), 1)))  # fmt: skip
        for step, column in enumerate(transposed(self._code, rows, vector(load.element, lanes))):
            place = self._place(access, moved({**offsets, across: first + step}, loop, piece.offset))
            self._scopes[-2 if self._inside_body else -1][(*what, place, lanes, lanes, stride)] = column

    def _read(self, load: Load, place: str, piece: Piece, stride: int) -> str:
        code, array = self._code, load.access.array
        memory, kind, held = self._memory[array], self._type(array), in_memory(self._arrays[array].element)
        made = code.name()
        if piece.lanes == 1:
            code.line(f"{made} = memref.load {memory}[{place}] : {kind}")
        elif stride == 1:
            type_ = vector(held, piece.lanes)
            if piece.partial and held in ("i8", "i16", "f16"):
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
        """A partial vector in powers of two: no x86 before AVX-512 has masked loads of 8 or 16 bits."""
        code, memory, kind = self._code, self._memory[array], self._type(array)
        held = in_memory(self._arrays[array].element)
        whole = vector(held, piece.lanes)
        made = code.constant("0.0" if held == "f16" else "0", whole)
        for part in powers(0, piece.active):
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
            return self._place(load.access, moved(offsets, loop, piece.offset + lane))

        return self._by_lane(load, piece, place)

    def _by_lane(self, load: Load, piece: Piece, place: Callable[[int], str]) -> str:
        code, array = self._code, load.access.array
        held = in_memory(self._arrays[array].element)
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
            return widened(self._code, value, vector(in_memory(stored), lanes), vector(element, lanes))
        return value

    def _write(self, access: Access, value: str, offsets: Offsets, piece: Piece, loop: int) -> None:
        code, memory, kind = self._code, self._memory[access.array], self._type(access.array)
        element = self._nest.arrays[access.array].element
        held = in_memory(element)
        if element == "i1":
            value = code.convert("arith.extui", value, vector("i1", piece.lanes), vector("i8", piece.lanes))
        stride = access.stride(loop) if loop >= 0 else 0
        if piece.lanes == 1:
            place = self._place(access, moved(offsets, loop, piece.offset))
            code.line(f"memref.store {value}, {memory}[{place}] : {kind}")
            return
        if stride == 1 and not any(loop in self._nest.loops_of(n) for n, _ in access.nodes):
            whole = vector(held, piece.lanes)
            for part in powers(0, piece.active) if piece.partial else [piece]:
                self._write_part(access, value, whole, held, offsets, piece, part)
            return
        for lane in range(piece.active):
            place = self._place(access, moved(offsets, loop, piece.offset + lane))
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

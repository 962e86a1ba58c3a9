"""Scalar expressions on the lanes of a piece."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_passes.kernels.code import vector
from mlir_passes.kernels.memory import Memory
from mlir_passes.kernels.narrow import NARROW, bf16_bits, computed, narrowed, widened
from mlir_passes.kernels.nest import (
    Apply,
    Carried,
    Constant,
    Index,
    Load,
    Nest,
    NotCovered,
)
from mlir_passes.kernels.pieces import SCALAR, Offsets, Piece
from mlir_passes.kernels.vector_math import EXPANSIONS, FUNCTIONS, NATIVE

_DIVISIONS = frozenset(  # a lane that counts for nothing must not hold a zero there: the CPU would trap
    f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi")
)


class Values(Memory):
    """Nodes as scalars where they do not depend on the vector loop, as vectors where they do."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self._functions: dict[str, str] = {}  # types of the C library's functions that are called, by name

    def _lanes(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> str:
        """A node with one element a lane of `piece`: broadcast where it does not depend on the vector loop."""
        found = self._nest.nodes[node]
        type_ = vector(computed(found.element), piece.lanes)
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
            known = self._code.convert("vector.broadcast", value, computed(found.element), type_)
            self._home(node)[key] = known
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

    def _make(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> str:
        found = self._nest.nodes[node]
        if isinstance(found, Load):
            return self._load(found, offsets, piece, loop)
        if isinstance(found, Constant):
            return self._code.constant(_text(found), computed(found.element))
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
        type_ = vector(computed(element), piece.lanes)
        if found.name == "arith.addf" and element == "f32":
            for one, other in (found.operands, found.operands[::-1]):
                product = nodes[one]
                if isinstance(product, Apply) and product.name == "arith.mulf":
                    factors = [self._lanes(o, offsets, piece, loop) for o in (*product.operands, other)]
                    return code.op("math.fma", factors, type_)
        operands = [self._lanes(o, offsets, piece, loop) for o in found.operands]
        types = [vector(computed(nodes[o].element), piece.lanes) for o in found.operands]
        native = found.name in NATIVE or (found.name, element) == ("math.rsqrt", "f64")  # LLVM has 1 / sqrt for it
        if found.name.startswith("math.") and not native:
            if element == "f32" and found.name in EXPANSIONS:
                return EXPANSIONS[found.name](code, operands, type_)
            if found.name not in FUNCTIONS or element not in ("f32", "f64"):
                raise NotCovered(f"{found.name} on {element}")
            return self._called(FUNCTIONS[found.name] + "f" * (element == "f32"), operands, element, piece.lanes)
        if found.name == "arith.truncf" and element in NARROW and nodes[found.operands[0]].element == "f32":
            return narrowed(code, operands[0], types[0], type_)
        if found.name == "arith.extf" and nodes[found.operands[0]].element in NARROW and element == "f32":
            return widened(code, operands[0], types[0], type_)
        if found.name in _DIVISIONS and piece.partial:
            mask, one = f"vector<{piece.lanes}xi1>", code.constant(1, types[1])
            operands[1] = code.op("arith.select", (self._mask(piece), operands[1], one), f"{mask}, {types[1]}")
        made = code.name()
        attributes = f" {{{found.attributes}}}" if found.attributes else ""
        code.line(f'{made} = "{found.name}"({", ".join(operands)}){attributes} : ({", ".join(types)}) -> {type_}')
        return made

    def _called(self, function: str, operands: Sequence[str], element: str, lanes: int) -> str:
        """A function of the C library, called once a lane."""
        code, whole = self._code, vector(element, lanes)
        type_ = f"({', '.join([element] * len(operands))}) -> {element}"
        self._functions[function] = type_
        made: list[str] = []
        for lane in range(lanes):
            given = list(operands)
            if lanes > 1:
                given = [code.name() for _ in operands]
                for name, operand in zip(given, operands, strict=True):
                    code.line(f"{name} = vector.extract {operand}[{lane}] : {element} from {whole}")
            made.append(code.name())
            code.line(f"{made[-1]} = func.call @{function}({', '.join(given)}) : {type_}")
        if lanes == 1:
            return made[0]
        joined = code.name()
        code.line(f"{joined} = vector.from_elements {', '.join(made)} : {whole}")
        return joined

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


def _text(constant: Constant) -> str:
    """The literal of a constant as it is computed with."""
    return bf16_bits(constant.text) if constant.element == "bf16" else constant.text

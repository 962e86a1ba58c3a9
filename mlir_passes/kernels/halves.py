"""Arithmetic on f16 and bf16 as nodes: done in f32, rounded where a value is stored or converted.

What one such op hands to the next within a kernel keeps its f32 value, as XLA keeps it within a fusion; sums are f32
from first to last. A conversion that the step itself writes always rounds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlir_passes.kernels.narrow import NARROW, bf16_bits
from mlir_passes.kernels.nest import Apply, Constant, Load, Nest, NotCovered


class Halves:
    """Nodes of a nest whose values are narrow, and the f32 nodes that they are roundings of."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        self._exact: dict[int, int] = {}

    def wide(self, node: int) -> int:
        """A narrow node as f32, before its rounding where this kernel computes it; any other node as it is."""
        return self._exact[node] if node in self._exact else self._extended(node)

    def rounded(self, node: int, element: str) -> int:
        """An f32 node as a narrow one, the rounding of which `wide` takes back."""
        made = self._nest.add(Apply("arith.truncf", (node,), "", element))
        self._exact[made] = node
        return made

    def applied(self, op: Any, operands: Sequence[int], attributes: str) -> int:
        """An op on nodes, in f32 where it computes with narrow floats."""
        element, name = str(op.results[0].type), op.name
        narrow = [str(value.type) in NARROW for value in op.operands]
        if not any(narrow) and element not in NARROW:
            return self._nest.add(Apply(name, tuple(operands), attributes, element))
        if name == "arith.extf":
            wide = self._extended(operands[0])
            return wide if element == "f32" else self._nest.add(Apply(name, (wide,), attributes, element))
        if name == "arith.truncf":
            return self._nest.add(Apply(name, (self._single(operands[0]),), attributes, element))
        if name == "arith.bitcast":
            raise NotCovered("the bits of a narrow float")
        if name == "arith.select" and all(self._is_plain(o) for o in operands[1:]):
            return self._nest.add(Apply(name, tuple(operands), attributes, element))
        widen = self.wide if element in NARROW else self._extended  # what is compared has been rounded
        given = tuple(widen(o) if short else o for o, short in zip(operands, narrow, strict=True))
        made = self._nest.add(Apply(name, given, attributes, "f32" if element in NARROW else element))
        return self.rounded(made, element) if element in NARROW else made

    def _extended(self, node: int) -> int:
        found = self._nest.nodes[node]
        if found.element not in NARROW:
            return node
        if isinstance(found, Load):
            return self._nest.add(replace(found, element="f32"))
        if isinstance(found, Constant):
            return self._nest.add(Constant(_single_bits(found), "f32"))
        return self._nest.add(Apply("arith.extf", (node,), "", "f32"))

    def _single(self, node: int) -> int:
        """A float node as f32; from f64 by a rounding of its own."""
        if self._nest.nodes[node].element != "f64":
            return node
        return self._nest.add(Apply("arith.truncf", (node,), "", "f32"))

    def _is_plain(self, node: int) -> bool:
        """Whether a node holds the bits of a narrow float, and not the rounding of what is computed here."""
        return self._nest.nodes[node].element in NARROW and node not in self._exact


def _single_bits(constant: Constant) -> str:
    """The literal of a narrow constant as f32: its bits, for they are exact."""
    if constant.element == "bf16":
        return f"0x{(int(bf16_bits(constant.text)) & 0xFFFF) << 16:08X}"
    text = constant.text
    half = struct.pack("<H", int(text, 16)) if text.startswith("0x") else struct.pack("<e", float(text))
    (value,) = struct.unpack("<e", half)
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    return f"0x{word:08X}"

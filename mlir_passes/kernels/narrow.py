"""Between f32 and what values are stored in: as LLVM does it for f16, by integer ops for bf16.

A CPU has instructions for f16 (F16C), and LLVM uses them. For bf16 without AVX512_BF16 it calls a library, which
is not there, and the instructions of AVX512_BF16 lose denormals. So bf16 is done by hand, equal on every CPU.
"""

from __future__ import annotations

import struct

from mlir_passes.kernels.code import Code, element_of, like

NARROW = ("f16", "bf16")


def computed(element: str) -> str:
    """The element type of values in code; bf16 goes as its bits, for LLVM takes vectors of bf16 apart."""
    return "i16" if element == "bf16" else element


def in_memory(element: str) -> str:
    """The element type in memory."""
    return "i8" if element == "i1" else computed(element)


def widened(code: Code, value: str, from_: str, to: str) -> str:
    """A narrow value, or vector of type `from_` (i16 for bf16), as f32 (type `to`); exact."""
    if element_of(from_) == "f16":
        return code.convert("arith.extf", value, from_, to)
    word = like(from_, "i32")
    bits = code.convert("arith.extui", value, from_, word)
    return code.convert("arith.bitcast", code.op("arith.shli", (bits, code.constant(16, word)), word), word, to)


def narrowed(code: Code, value: str, from_: str, to: str) -> str:
    """An f32 value, or vector of type `from_`, rounded to type `to` (i16 for bf16): to nearest, ties to even, a NaN
    stays one."""
    if element_of(to) == "f16":
        return code.convert("arith.truncf", value, from_, to)
    word, flag = like(to, "i32"), like(to, "i1")
    bits = code.convert("arith.bitcast", value, from_, word)
    half = code.constant(16, word)
    high = code.op("arith.shrui", (bits, half), word)
    odd = code.op("arith.andi", (high, code.constant(1, word)), word)
    up = code.op("arith.addi", (odd, code.constant(0x7FFF, word)), word)
    rounded = code.op("arith.shrui", (code.op("arith.addi", (bits, up), word), half), word)
    quiet = code.op("arith.ori", (high, code.constant(0x40, word)), word)  # the carry could make a NaN an infinity
    is_nan = code.name()
    code.line(f"{is_nan} = arith.cmpf uno, {value}, {value} : {from_}")
    kept = code.op("arith.select", (is_nan, quiet, rounded), f"{flag}, {word}" if flag != "i1" else word)
    return code.convert("arith.trunci", kept, word, to)


def bf16_bits(literal: str) -> str:
    """The bits of a bf16 constant, given as MLIR writes it, as a number of 16 bits."""
    if literal.startswith("0x"):
        bits = int(literal, 16)
    else:
        (word,) = struct.unpack("<I", struct.pack("<f", float(literal)))
        bits = (word + 0x7FFF + (word >> 16 & 1)) >> 16
    return str(bits - (bits >> 15 << 16))

"""Maps from loops to dimensions of an operand, in plain form, and what an operand keeps if a loop runs over a part.

A map is spelled as one sum of loops a dimension: "d0 2*d1+d4 d3" reads [d0, 2 d1 + d4, d3]; "?" is what is no such sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Linear = tuple[dict[int, int], int]  # coefficient by loop, constant


@dataclass(frozen=True)
class Part:
    """What is kept of an operand, a number a dimension, and the map that reads it: sizes[i] indices from offsets[i] on,
    strides[i] apart."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    map: tuple[Linear, ...]


@dataclass(frozen=True)
class Run:
    """Which values of a loop are run: `count` of them from `offset` on, every `stride`-th."""

    loop: int
    offset: int
    count: int
    stride: int


def spelled(forms: Sequence[Linear | None]) -> str:
    """A map as text."""
    return " ".join(map(_spelled, forms))


def read_map(text: str) -> tuple[Linear, ...] | None:
    """The map that `spelled` wrote; None where a dimension is no sum of loops."""
    if "?" in text:
        return None
    return tuple(map(_read, text.split()))


def part_of(map_: Sequence[Linear], shape: Sequence[int], sizes: Sequence[int], run: Run) -> Part | None:
    """What an operand of `shape` read through `map_` keeps if one loop runs as `run` says; None where it would have to
    leave gaps in a dimension that other loops share. sizes: of all loops before.

    >>> part_of(read_map("2*d0+d1"), (9,), (4, 3), Run(1, 1, 2, 1)).offsets
    (1,)
    """
    found = [_dimension(form, size, sizes, run) for form, size in zip(map_, shape, strict=True)]
    known = [f for f in found if f is not None]
    if len(known) < len(found):
        return None
    return Part(
        tuple(f[0] for f in known), tuple(f[1] for f in known), tuple(f[2] for f in known), tuple(f[3] for f in known)
    )


def _dimension(form: Linear, size: int, sizes: Sequence[int], run: Run) -> tuple[int, int, int, Linear] | None:
    coefficients, constant = form
    if run.loop not in coefficients:
        return 0, size, 1, form
    if form == ({run.loop: 1}, 0):
        return run.offset, run.count, run.stride, form
    if run.stride != 1:
        return None
    start = constant + coefficients[run.loop] * run.offset
    trips = [run.count if loop == run.loop else sizes[loop] for loop in range(len(sizes))]
    ends = [c * (trips[loop] - 1) for loop, c in coefficients.items()]
    least, most = start + sum(min(0, e) for e in ends), start + sum(max(0, e) for e in ends)
    return least, most - least + 1, 1, (coefficients, start - least)


def _spelled(form: Linear | None) -> str:
    if form is None:
        return "?"
    terms = [f"d{loop}" if c == 1 else f"{c}*d{loop}" for loop, c in sorted(form[0].items())]
    return "+".join([*terms, str(form[1])] if form[1] or not terms else terms)


def _read(text: str) -> Linear:
    coefficients: dict[int, int] = {}
    constant = 0
    for term in text.split("+"):
        factor, _, loop = term.rpartition("d")
        if "d" in term:
            coefficients[int(loop)] = int(factor[:-1]) if factor else 1
        else:
            constant += int(term)
    return coefficients, constant

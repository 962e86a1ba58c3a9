"""The genes of a schedule: how long each tensor is held in memory, and which ops change places.

A tensor without a gene is kept from its maker to its last reader, state for the whole step; so no genes at all is the
schedule that keeps everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.errors import PassError

ORDER = "before"  # the first word of an order gene's plain form; a number follows it where it is a tensor's name
OTHER, LEAVES = 2, 3  # what follows is `Hold.other`, `Hold.leaves`


@dataclass(frozen=True)
class Hold:
    """Tensor `value` is in memory from the stage of the first op of each pair through the stage of the second.

    It is there when the first op is computed for the first time, and until right after the second was. No pair: it is
    given back after each use. paged: where it is missed later, it comes back from the store, to which it was written
    when it left memory for the first time; else it is computed again. Of state, paged says that its home is the store.
    other: ops in whose stages it comes back the other way. leaves: in the stage of the first op of a pair it is given
    back right after its use by the second, held or not; what needs it after that brings it back.
    """

    value: str
    paged: bool
    stages: tuple[tuple[str, str], ...]
    other: tuple[str, ...] = ()
    leaves: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Before:
    """`op` is moved directly before `other`, and nothing else moves."""

    op: str
    other: str


Gene = Hold | Before
Plain = list[str | int]


def to_plain(genes: Sequence[Gene]) -> list[Plain]:
    """Lists that JSON can hold: ["op17#0", 1, "op17", "op20", "op88", "op90"] or ["before", "op44", "op20"].

    In a hold, the ops of `other` follow a 2 and the pairs of `leaves` a 3, where there are any.
    """
    return [_plain(gene) for gene in genes]


def from_plain(rows: Sequence[Sequence[object]]) -> tuple[Gene, ...]:
    """What `to_plain` was given; raises PassError where a row is no gene."""
    return tuple(_gene(row) for row in rows)


def _plain(gene: Gene) -> Plain:
    if isinstance(gene, Before):
        return [ORDER, gene.op, gene.other]
    row: Plain = [gene.value, int(gene.paged), *(name for pair in gene.stages for name in pair)]
    row += [OTHER, *gene.other] if gene.other else []
    return row + ([LEAVES, *(name for pair in gene.leaves for name in pair)] if gene.leaves else [])


def _gene(row: Sequence[object]) -> Gene:
    first, second, *rest = row if len(row) >= 2 else (None, None)
    if isinstance(first, str) and isinstance(second, str) and first == ORDER and len(rest) == 1:
        if isinstance(rest[0], str):
            return Before(second, rest[0])
    elif isinstance(first, str) and not isinstance(second, str) and second in (0, 1):
        rest, leaves = _split(rest, LEAVES)
        rest, other = _split(rest, OTHER)
        stages, pairs = _pairs(rest), _pairs(leaves)
        if stages is not None and pairs is not None:
            hold = Hold(first, bool(second), stages, tuple(map(str, other)), pairs)
            if _plain(hold) == list(row):  # no mark without what it marks
                return hold
    expected = 'Expected [tensor, 0 or 1, op, op, ...] or ["before", op, op]'
    raise PassError("schedule", f"{list(row)} is no gene", expected)


def _split(names: list[object], mark: int) -> tuple[list[object], list[object]]:
    """What is before the mark and what is after it."""
    at = next((place for place, name in enumerate(names) if type(name) is int and name == mark), len(names))
    return names[:at], names[at + 1 :]


def _pairs(names: Sequence[object]) -> tuple[tuple[str, str], ...] | None:
    """None where they are no pairs of names."""
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) < len(names) or len(texts) % 2:
        return None
    return tuple(zip(texts[::2], texts[1::2], strict=True))

"""The genes of a schedule: how long each tensor is held in memory, and which ops change places.

A tensor without a gene is kept from its maker to its last reader, state for the whole step; so no genes at all is the
schedule that keeps everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.errors import PassError

ORDER = "before"  # the first word of an order gene's plain form; a number follows it where it is a tensor's name


@dataclass(frozen=True)
class Hold:
    """Tensor `value` is in memory from the stage of the first op of each pair through the stage of the second.

    It is there when the first op is computed for the first time, and until right after the second was. No pair: it is
    given back after each use. paged: where it is missed later, it comes back from the store, to which it was written
    when it left memory for the first time; else it is computed again. Of state, paged says that its home is the store.
    """

    value: str
    paged: bool
    stages: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Before:
    """`op` is moved directly before `other`, and nothing else moves."""

    op: str
    other: str


Gene = Hold | Before
Plain = list[str | int]


def to_plain(genes: Sequence[Gene]) -> list[Plain]:
    """Lists that JSON can hold: ["op17#0", 1, "op17", "op20", "op88", "op90"] or ["before", "op44", "op20"]."""
    return [_plain(gene) for gene in genes]


def from_plain(rows: Sequence[Sequence[object]]) -> tuple[Gene, ...]:
    """What `to_plain` was given; raises PassError where a row is no gene."""
    return tuple(_gene(row) for row in rows)


def _plain(gene: Gene) -> Plain:
    if isinstance(gene, Before):
        return [ORDER, gene.op, gene.other]
    return [gene.value, int(gene.paged), *(name for pair in gene.stages for name in pair)]


def _gene(row: Sequence[object]) -> Gene:
    first, second, *names = row if len(row) >= 2 else (None, None)
    texts = [name for name in names if isinstance(name, str)]
    if not isinstance(first, str) or len(texts) < len(names):
        raise PassError("schedule", f"{list(row)} is no gene", "Expected [tensor, 0 or 1, op, op, ...]")
    if isinstance(second, str) and first == ORDER and len(texts) == 1:
        return Before(second, texts[0])
    if isinstance(second, str) or second not in (0, 1) or len(texts) % 2:
        raise PassError(
            "schedule", f"{list(row)} is no gene", 'Expected [tensor, 0 or 1, op, op, ...] or ["before", ...]'
        )
    return Hold(first, bool(second), tuple(zip(texts[::2], texts[1::2], strict=True)))

"""The scheduling problem as plain data: ops in order, the tensors between them, and what all that costs.

A step is a line of mandatory ops; stage t is the time in which op t is computed for the first time. Ops may be computed
again in later stages (rematerialisation), tensors may be written to a slower store and read back (paging). POET
(Patil et al., ICML 2022, arXiv 2207.07697) states it so for ops of one tensor; here an op may make several, state
lives before and after the step, and an op that overwrites state ends the life of the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

START = -1  # the maker of what is there before the first op: state and batch


@dataclass(frozen=True)
class Tensor:
    """Something that takes memory. Costs are of one transfer of all of it.

    maker: the op that makes it, or START. readers: ops that read it, ascending; `updater`, if any, is the last one.
    updater: the op that overwrites it with its next content, in place; -1 for none. Nobody reads the old one after.
    final: whether it is needed when the step ends: state and metrics.
    pageable: whether it may be on the store. State that is paged has its home there: it is read in before its first
    use, and written back if it was updated; activations are written once and read any number of times.
    source: what it stands for, such as a value of a kernel graph.
    """

    name: str
    bytes: int
    maker: int
    readers: tuple[int, ...]
    updater: int = -1
    final: bool = False
    pageable: bool = True
    out_s: float = 0.0
    out_j: float = 0.0
    in_s: float = 0.0
    in_j: float = 0.0
    source: str = ""


@dataclass(frozen=True)
class Op:
    """What makes tensors from tensors. reads, makes: indices of tensors, each once; what it updates is in `reads`.

    workspace: bytes that it needs while it runs. source: the number of a kernel call, for one.
    """

    name: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    time_s: float
    energy_j: float
    workspace: int = 0
    source: int = -1


@dataclass(frozen=True)
class Problem:
    """Ops in the order of their first computation, and all tensors."""

    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]

    @cached_property
    def updates(self) -> tuple[tuple[int, ...], ...]:
        """For each op, the tensors that it updates in place."""
        return tuple(tuple(t for t in op.reads if self.tensors[t].updater == i) for i, op in enumerate(self.ops))

    @cached_property
    def until(self) -> tuple[int, ...]:
        """For each op, the last stage in which it may be computed again; -1 for never.

        An op that updates must not run twice; one that reads what is updated must run before that.
        """
        last = len(self.ops) - 1
        limits: list[int] = []
        for number, op in enumerate(self.ops):
            updaters = [self.tensors[t].updater for t in op.reads if self.tensors[t].updater >= 0]
            limits.append(-1 if self.updates[number] else min(updaters, default=last))
        return tuple(limits)

    @cached_property
    def last(self) -> tuple[int, ...]:
        """For each tensor, the last op that must find it in memory, its maker if nobody reads it; the last op of all
        if it is final."""
        end = len(self.ops) - 1
        return tuple(end if t.final else max(t.readers, default=max(t.maker, 0)) for t in self.tensors)

    @cached_property
    def energy_j(self) -> float:
        """Joules of computing each op once."""
        return sum(op.energy_j for op in self.ops)

    @cached_property
    def time_s(self) -> float:
        """Seconds of computing each op once."""
        return sum(op.time_s for op in self.ops)

    def reordered(self, order: Sequence[int]) -> Problem:
        """The same with its ops in another order, given as old indices; raises ValueError if it is no valid order."""
        place = {old: new for new, old in enumerate(order)}
        if sorted(order) != list(range(len(self.ops))):
            raise ValueError("an order names each op once")
        tensors: list[Tensor] = []
        for t in self.tensors:
            readers = tuple(sorted(place[r] for r in t.readers))
            maker = place[t.maker] if t.maker != START else START
            updater = place[t.updater] if t.updater >= 0 else -1
            if readers and (readers[0] < maker or (updater >= 0 and readers[-1] != updater)):
                raise ValueError(f"{t.name} would be read before it is made, or after it is overwritten")
            tensors.append(replace(t, readers=readers, maker=maker, updater=updater))
        return Problem(tuple(self.ops[old] for old in order), tuple(tensors))

"""A kernel as plain data: loops, phases, and one graph of scalar expressions; what emitters and schedules work on.

A kernel runs its row loops; inside, one phase after the other. A phase runs its own loops, the parallel ones
outside the reductions, and stores what its expressions give. Arrays are flat and row-major: an access is a
linear form of the loops, so that a reshape, a slice, a window, a transposition and a broadcast are one thing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class NotCovered(Exception):
    """The kernel holds something that no emitter knows; plain loops lower it."""


@dataclass(frozen=True)
class Access:
    """An element of an array: offset + sum of stride * loop + sum of stride * node, in elements.

    strides: (loop, stride) by rising loop, no stride 0. nodes: (node, stride) for indices read from memory.
    """

    array: str
    strides: tuple[tuple[int, int], ...]
    offset: int = 0
    nodes: tuple[tuple[int, int], ...] = ()

    def stride(self, loop: int) -> int:
        return dict(self.strides).get(loop, 0)


@dataclass(frozen=True)
class Load:
    """element: of the value; where the array holds a narrower float, the load widens it."""

    access: Access
    element: str


@dataclass(frozen=True)
class Constant:
    """A scalar: `text` is an MLIR literal."""

    text: str
    element: str


@dataclass(frozen=True)
class Index:
    """The value of a loop."""

    loop: int
    element: str = "index"


@dataclass(frozen=True)
class Apply:
    """An arith or math op on nodes; attributes as MLIR text."""

    name: str
    operands: tuple[int, ...]
    attributes: str
    element: str


@dataclass(frozen=True)
class Carried:
    """A reduction's accumulator before this iteration."""

    reduction: int
    element: str


@dataclass(frozen=True)
class Total:
    """A reduction's result."""

    reduction: int
    element: str


Node = Load | Constant | Index | Apply | Carried | Total


@dataclass(frozen=True)
class Reduction:
    """acc := body(acc), from `start`, over `loops`. combiner and term where body is combiner(acc, term), else ""."""

    loops: tuple[int, ...]
    start: int
    body: int
    element: str
    combiner: str = ""
    term: int = -1


@dataclass(frozen=True)
class Store:
    """array[access] := node, where `condition` (a node, -1 for none) holds."""

    access: Access
    node: int
    condition: int = -1


@dataclass(frozen=True)
class Phase:
    """Loops of its own (not the rows), reductions that share their loops, and stores."""

    loops: tuple[int, ...]
    reductions: tuple[int, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Array:
    """Memory: an argument by position, or (argument -1) a temporary of the kernel; a constant has its text."""

    element: str
    size: int
    argument: int = -1
    constant: str = ""


@dataclass
class Nest:
    """A kernel. sizes: trip count by loop. arguments: array names in order."""

    sizes: list[int] = field(default_factory=list[int])
    rows: tuple[int, ...] = ()
    phases: list[Phase] = field(default_factory=list[Phase])
    nodes: list[Node] = field(default_factory=list[Node])
    reductions: list[Reduction] = field(default_factory=list[Reduction])
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    arguments: list[str] = field(default_factory=list[str])
    _known: dict[Node, int] = field(default_factory=dict[Node, int])
    _loops_of: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])

    def add(self, node: Node) -> int:
        """The number of a node; equal nodes are one."""
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def index_nodes(self) -> None:
        """Make `add` find the nodes that are there."""
        self._known = {node: number for number, node in reversed(list(enumerate(self.nodes)))}

    def loop(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def parallel(self, phase: Phase) -> tuple[int, ...]:
        """The phase's own parallel loops."""
        reduced = self.reduced(phase)
        return tuple(loop for loop in phase.loops if loop not in reduced)

    def reduced(self, phase: Phase) -> tuple[int, ...]:
        """The phase's reduction loops."""
        return self.reductions[phase.reductions[0]].loops if phase.reductions else ()

    def loops_of(self, node: int) -> frozenset[int]:
        """The loops that a node's value depends on."""
        if node not in self._loops_of:
            self._loops_of[node] = self._find_loops(self.nodes[node])
        return self._loops_of[node]

    def _find_loops(self, node: Node) -> frozenset[int]:
        if isinstance(node, Load):
            return self.access_loops(node.access)
        if isinstance(node, Index):
            return frozenset((node.loop,))
        if isinstance(node, Apply):
            return frozenset[int]().union(*(self.loops_of(o) for o in node.operands))
        if isinstance(node, (Carried, Total)):
            phase = next(p for p in self.phases if node.reduction in p.reductions)
            return frozenset((*self.rows, *self.parallel(phase)))
        return frozenset()

    def access_loops(self, access: Access) -> frozenset[int]:
        own = frozenset(loop for loop, _ in access.strides)
        return own.union(*(self.loops_of(node) for node, _ in access.nodes))

    def roots(self, phase: Phase) -> list[int]:
        """Nodes that the phase evaluates."""
        found = [s.node for s in phase.stores] + [s.condition for s in phase.stores if s.condition >= 0]
        return found + [self.reductions[r].body for r in phase.reductions]

    def reach(self, roots: Iterable[int]) -> list[int]:
        """Every node under `roots`, themselves too, not through totals."""
        found: dict[int, None] = {}
        pending = list(roots)
        while pending:
            number = pending.pop()
            if number in found:
                continue
            found[number] = None
            node = self.nodes[number]
            if isinstance(node, Apply):
                pending += node.operands
            if isinstance(node, Load):
                pending += [n for n, _ in node.access.nodes]
        return list(found)

    def loads(self, phase: Phase) -> list[Load]:
        """The different loads of a phase."""
        return [n for i in self.reach(self.roots(phase)) if isinstance(n := self.nodes[i], Load)]

    def accesses(self, phase: Phase) -> list[Access]:
        return [load.access for load in self.loads(phase)] + [s.access for s in phase.stores]

"""Which ops of a step become one kernel.

A group is one of three forms, which the kernels' emitter runs without a temporary larger than a row:
elementwise ops over the same elements; reductions over the same loops, then elementwise ops on their results; rows:
reductions and elementwise ops that share their leading loops (softmax, layer norm and their gradients).
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlir_passes.ir_tools import captured, iterators, operations, producer, tensor_type
from mlir_passes.linalg_ops import is_contraction, loop_sizes

_MAP = re.compile(r"affine_map<\((.*?)\) -> \((.*?)\)>")
_ROW_ELEMENTS = 2048  # of a row that a kernel may keep on its stack
_ROW_BYTES = 1 << 16
_MOST_VALUES = 24  # that a kernel reads and writes
_MOST_SUMS = 4  # accumulated side by side
_PLAIN = ("arith.", "math.", "linalg.index", "linalg.yield", "tensor.extract")


@dataclass(frozen=True)
class Facts:
    """What grouping asks of an op: its loops, and through which indices it reads and writes.

    kind: "elementwise", "reduction", "contraction", or "" for what stays alone.
    """

    op: Any
    position: int
    kind: str
    sizes: tuple[int, ...] = ()
    kinds: str = ""
    maps: tuple[tuple[str, ...], ...] = ()
    captures: tuple[Any, ...] = ()

    @property
    def inputs(self) -> int:
        return len(self.op.operands) - len(self.op.results)

    @property
    def reduces(self) -> bool:
        return self.kind in ("reduction", "contraction")

    @property
    def out(self) -> tuple[str, ...]:
        """The loops that are the result's dimensions."""
        return self.maps[self.inputs]

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return tuple(self.sizes[int(d[1:])] for d in self.out)


@dataclass
class Group:
    """Ops that become one kernel, in the order in which it does them."""

    facts: list[Facts] = field(default_factory=list[Facts])
    before: int = 0  # a bit for each group that it depends on

    @property
    def ops(self) -> list[Any]:
        return [f.op for f in self.facts]

    @property
    def kind(self) -> str:
        """What the kernel mainly does: "contraction", "reduction", "rows", "elementwise", "move", "scf"."""
        if len(self.facts) == 1 and not self.facts[0].kind:
            name = self.facts[0].op.name
            if name == "linalg.generic":
                return "reduction" if "r" in iterators(self.facts[0].op) else "elementwise"
            return "scf" if name.startswith("scf.") else "move"
        found = {f.kind for f in self.facts}
        if "contraction" in found:
            return "contraction"
        if "reduction" not in found:
            return "elementwise"
        return "reduction" if _one_phase(self.facts) else "rows"


def groups(ops: Sequence[Any], is_free: Callable[[Any], bool], storage_of: Callable[[Any], Any]) -> list[Group]:
    """Groups of a block's ops in an order that respects every use. is_free: ops that are no work of a kernel;
    storage_of: the value whose memory a value is a view of."""
    return _Grouping(storage_of).run(ops, is_free)


class _Grouping:
    def __init__(self, storage_of: Callable[[Any], Any]) -> None:
        self._storage_of = storage_of
        self._groups: list[Group | None] = []
        self._home: dict[Any, int] = {}

    def run(self, ops: Sequence[Any], is_free: Callable[[Any], bool]) -> list[Group]:
        for position, op in enumerate(ops):
            if not is_free(op):
                self._place(_facts(op, position))
        return self._ordered()

    def _place(self, facts: Facts) -> None:
        sources = self._sources(facts)
        candidates = sorted({s for s in sources if facts.kind}, reverse=True)
        candidates += [s for s in self._siblings(facts) if s not in candidates]
        number = next((c for c in candidates if self._may_join(facts, c, sources)), -1)
        if number < 0:
            number = len(self._groups)
            self._groups.append(Group())
        self._home[facts.op] = number
        group = self._at(number)
        group.facts = _in_order([*group.facts, facts])
        self._depend(number, sources)
        for other in candidates:
            if other != number and self._groups[other] is not None:
                self._merge(number, other)

    def _sources(self, facts: Facts) -> list[int]:
        """Groups that make what the op reads."""
        found: list[int] = []
        for value in (*facts.op.operands, *facts.captures):
            op = producer(self._storage_of(value))
            if op in self._home:
                found.append(self._home[op])
        return found

    def _siblings(self, facts: Facts) -> list[int]:
        """Groups of reductions over the same loops that read a value that this one reads."""
        if facts.kind != "reduction":
            return []
        found: list[int] = []
        for value in list(facts.op.operands)[: facts.inputs]:
            for use in value.uses:
                number = self._home.get(use.owner.operation)
                if number is not None and number not in found:
                    found.append(number)
        return found

    def _at(self, number: int) -> Group:
        group = self._groups[number]
        assert group is not None
        return group

    def _may_join(self, facts: Facts, number: int, sources: Sequence[int]) -> bool:
        if any(s != number and self._at(s).before >> number & 1 for s in sources):
            return False
        return _fits(_in_order([*self._at(number).facts, facts]))

    def _depend(self, number: int, sources: Sequence[int]) -> None:
        """Note that a group reads from `sources`, and what follows from that."""
        group = self._at(number)
        for source in sources:
            if source != number:
                group.before |= 1 << source | self._at(source).before
        for other in self._groups:
            if other is not None and other.before >> number & 1:
                other.before |= group.before

    def _merge(self, number: int, other: int) -> None:
        """Make two groups one, where they fit and no third stands between them."""
        one, two = self._at(number), self._at(other)
        between = [g for k, g in enumerate(self._groups) if g is not None and k not in (number, other)
                   and ((g.before >> other & 1 and one.before >> k & 1)
                        or (g.before >> number & 1 and two.before >> k & 1))]  # fmt: skip
        facts = _in_order([*one.facts, *two.facts])
        if between or not _fits(facts):
            return
        one.facts = facts
        one.before = (one.before | two.before) & ~(1 << other | 1 << number)
        self._groups[other] = None
        for op in two.ops:
            self._home[op] = number
        for group in self._groups:
            if group is not None and group.before >> other & 1:
                group.before &= ~(1 << other)
                group.before |= 1 << number
            if group is not None and group.before >> number & 1:
                group.before |= one.before

    def _ordered(self) -> list[Group]:
        """As near the order of the ops as dependences allow."""
        waiting = {k: g for k, g in enumerate(self._groups) if g is not None}
        before = {k: g.before for k, g in waiting.items()}
        position = {k: max(f.position for f in g.facts) for k, g in waiting.items()}
        following: dict[int, list[int]] = {k: [] for k in waiting}
        left = dict.fromkeys(waiting, 0)
        for k, mask in before.items():
            for other in waiting:
                if mask >> other & 1:
                    following[other].append(k)
                    left[k] += 1
        ready = [(position[k], k) for k, count in left.items() if not count]
        heapq.heapify(ready)
        found: list[Group] = []
        while ready:
            _, k = heapq.heappop(ready)
            found.append(waiting[k])
            for later in following[k]:
                left[later] -= 1
                if not left[later]:
                    heapq.heappush(ready, (position[later], later))
        assert len(found) == len(waiting), "cyclic groups"
        return found


def _facts(op: Any, position: int) -> Facts:
    if op.name != "linalg.generic":
        return Facts(op, position, "", captures=tuple(captured(op)) if op.regions else ())
    body = operations(op.regions[0].blocks[0])
    captures = tuple(captured(op))
    kinds = iterators(op)
    maps = tuple(
        tuple(results.split(", ")) if results else ()
        for _, results in _MAP.findall(str(op.attributes["indexing_maps"]))
    )
    identity = tuple(f"d{i}" for i in range(len(kinds)))
    inputs = len(op.operands) - len(op.results)
    plain = all(o.name.startswith(_PLAIN) and not o.regions for o in body)
    written = maps[inputs:]
    if not plain or any(w != written[0] for w in written) or any(not re.fullmatch(r"d\d+", d) for d in written[0]):
        kind = ""
    elif "r" not in kinds:
        kind = "elementwise" if written[0] == identity and not _reads_start(op, inputs) else ""
    else:
        kind = "contraction" if is_contraction(op) else "reduction"
    return Facts(op, position, kind, tuple(loop_sizes(op)), kinds, maps, captures)


def _reads_start(op: Any, inputs: int) -> bool:
    """Whether an elementwise op reads what stood in its result before."""
    return any(list(a.uses) for a in list(op.regions[0].blocks[0].arguments)[inputs:])


def _in_order(facts: Sequence[Facts]) -> list[Facts]:
    """The step's order; where reductions are the first phase, they come first."""
    found = sorted(facts, key=lambda f: f.position)
    first = sorted(found, key=lambda f: not f.reduces)
    return first if _one_phase(first) else found


def _fits(facts: Sequence[Facts]) -> bool:
    """Whether ops in this order are one of the forms of a kernel."""
    if any(not f.kind for f in facts):
        return False
    made = {r for f in facts for r in f.op.results}
    values = {v for f in facts for v in f.op.operands} | made
    if len(values) > _MOST_VALUES or any(value in made for f in facts for value in f.captures):
        return False
    sums = [f.kind for f in facts if f.reduces]
    if len(sums) > (1 if "contraction" in sums else _MOST_SUMS) and _one_phase(facts):
        return False
    if not any(f.reduces for f in facts):
        return all(f.sizes == facts[0].sizes and _reads_identity(f, made) for f in facts)
    return _one_phase(facts) or _rows(facts, made)


def _one_phase(facts: Sequence[Facts]) -> bool:
    reductions = [f for f in facts if f.reduces]
    if not reductions or list(facts[: len(reductions)]) != reductions:
        return False
    first = reductions[0]
    if any((f.sizes, f.kinds, f.out) != (first.sizes, first.kinds, first.out) for f in reductions):
        return False
    made = {r for f in facts for r in f.op.results}
    if any(v in made for f in reductions for v in f.op.operands):
        return False
    return all(f.sizes == first.shape and _reads_identity(f, made) for f in facts[len(reductions) :])


def _reads_identity(facts: Facts, made: set[Any]) -> bool:
    """Whether an elementwise op reads the group's own values only at the element that it writes."""
    identity = tuple(f"d{i}" for i in range(len(facts.kinds)))
    return all(facts.maps[i] == identity for i, v in enumerate(facts.op.operands) if v in made)


def _rows(facts: Sequence[Facts], made: set[Any]) -> bool:
    reductions = [f for f in facts if f.reduces]
    rows = reductions[0].kinds.find("r")
    leading = tuple(f"d{i}" for i in range(rows))
    if rows < 1 or any(f.kind == "contraction" for f in facts):
        return False
    if any(set(f.kinds[rows:]) != {"r"} or f.kinds[:rows] != "p" * rows or f.out != leading for f in reductions):
        return False
    if any(f.sizes[:rows] != reductions[0].sizes[:rows] or len(f.sizes) < rows for f in facts):
        return False
    inner = [math.prod(f.sizes[rows:]) for f in facts]
    kept = sum(n for f, n in zip(facts, inner, strict=True) if not f.reduces and n > 1)
    if max(inner) > _ROW_ELEMENTS or 4 * kept > _ROW_BYTES:
        return False
    for f in facts:
        identity = tuple(f"d{i}" for i in range(len(f.kinds)))
        for index, value in enumerate(f.op.operands):
            if value not in made:
                continue
            found = tensor_type(value.type)
            assert found is not None
            if f.maps[index] != identity[: len(found.shape)] or len(found.shape) not in (rows, len(identity)):
                return False
    return True

"""Which ops of a step become one kernel.

A group is one of three forms, which the kernels' emitter runs without a temporary larger than a row:
elementwise ops over the same elements; reductions over the same loops, then elementwise ops on their results; rows:
reductions and elementwise ops that share their leading loops (softmax, layer norm and their gradients).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlir_passes.space import TensorType
from mlir_passes.step_text import VIEWS, OpText, StepText, tensor_of

_ROW_ELEMENTS = 2048  # of a row that a kernel may keep on its stack
_ROW_BYTES = 1 << 16
_MOST_VALUES = 24  # that a kernel reads and writes
_MOST_SUMS = 4  # accumulated side by side


@dataclass
class Group:
    """Ops that become one kernel, in the order in which it does them."""

    ops: list[OpText] = field(default_factory=list[OpText])
    before: int = 0  # a bit for each group that it depends on

    @property
    def kind(self) -> str:
        """What the kernel mainly does: "contraction", "reduction", "rows", "elementwise", "move", "scf"."""
        if len(self.ops) == 1 and not self.ops[0].kind:
            op = self.ops[0]
            if op.name == "linalg.generic":
                return "reduction" if "r" in op.kinds else "elementwise"
            return "scf" if op.name.startswith("scf.") else "move"
        found = {op.kind for op in self.ops}
        if "contraction" in found:
            return "contraction"
        if "reduction" not in found:
            return "elementwise"
        return "reduction" if _one_phase(self.ops) else "rows"


def groups(step: StepText) -> list[Group]:
    """Groups of a step's ops in an order that respects every use."""
    return _Grouping(step).run()


class _Grouping:
    def __init__(self, step: StepText) -> None:
        self._step = step
        self._groups: list[Group | None] = []
        self._home: dict[str, int] = {}  # by the values that a group makes
        self._readers: dict[str, list[int]] = {}  # groups by the values that they read

    def run(self) -> list[Group]:
        for op in self._step.ops:
            if op.name not in VIEWS and not self._step.is_helper(op):
                self._place(op)
        return self._ordered()

    def _place(self, op: OpText) -> None:
        sources = self._sources(op)
        candidates = sorted(set(sources), reverse=True) if op.kind else []
        candidates += [s for s in self._siblings(op) if s not in candidates]
        number = next((c for c in candidates if self._may_join(op, c, sources)), -1)
        if number < 0:
            number = len(self._groups)
            self._groups.append(Group())
        group = self._at(number)
        group.ops = _in_order([*group.ops, op])
        self._home.update(dict.fromkeys(op.results, number))
        for value in op.operands:
            self._readers.setdefault(value, []).append(number)
        self._depend(number, sources)
        for other in candidates:
            if other != number and self._groups[other] is not None:
                self._merge(number, other)

    def _sources(self, op: OpText) -> list[int]:
        """Groups that make what the op reads."""
        made = (source for value in (*op.operands, *op.captures) for source in self._step.reads_of(value))
        return [self._home[value] for value in made if value in self._home]

    def _siblings(self, op: OpText) -> list[int]:
        """Groups of reductions over the same loops that read a value that this one reads."""
        if op.kind != "reduction":
            return []
        found = [n for value in op.operands[: op.inputs] for n in self._readers.get(value, [])]
        return [n for n in dict.fromkeys(found) if self._groups[n] is not None]

    def _at(self, number: int) -> Group:
        group = self._groups[number]
        assert group is not None
        return group

    def _may_join(self, op: OpText, number: int, sources: Sequence[int]) -> bool:
        if any(s != number and self._at(s).before >> number & 1 for s in sources):
            return False
        return self._fits(_in_order([*self._at(number).ops, op]))

    def _fits(self, ops: Sequence[OpText]) -> bool:
        """Whether ops are a form of a kernel, and none reads what another makes in another shape or as a scalar."""
        made = {r for op in ops for r in op.results}
        views = (v for op in ops for v in (*op.operands, *op.captures) if v not in made)
        return _fits(ops) and made.isdisjoint(source for v in views for source in self._step.reads_of(v))

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
        ops = _in_order([*one.ops, *two.ops])
        if between or not self._fits(ops):
            return
        one.ops = ops
        one.before = (one.before | two.before) & ~(1 << other | 1 << number)
        self._groups[other] = None
        self._home.update(dict.fromkeys((r for op in two.ops for r in op.results), number))
        for readers in self._readers.values():
            readers[:] = [number if n == other else n for n in readers]
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
        position = {k: max(op.position for op in g.ops) for k, g in waiting.items()}
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


def _reduces(op: OpText) -> bool:
    return "r" in op.kinds


def _shape(op: OpText) -> tuple[int, ...]:
    """The shape of an op's results."""
    return tuple(op.sizes[int(d[1:])] for d in op.maps[op.inputs])


def _in_order(ops: Sequence[OpText]) -> list[OpText]:
    """The step's order; where reductions are the first phase, they come first."""
    found = sorted(ops, key=lambda op: op.position)
    first = sorted(found, key=lambda op: not _reduces(op))
    return first if _one_phase(first) else found


def _fits(ops: Sequence[OpText]) -> bool:
    """Whether ops in this order are one of the forms of a kernel."""
    kinds = [op.kind for op in ops]
    if not all(kinds):
        return False
    made = {r for op in ops for r in op.results}
    values = {v for op in ops for v in op.operands} | made
    if len(values) > _MOST_VALUES or any(value in made for op in ops for value in op.captures):
        return False
    sums = [kind for kind in kinds if kind != "elementwise"]
    if len(sums) > (1 if "contraction" in sums else _MOST_SUMS) and _one_phase(ops):
        return False
    if not sums:
        return all(op.sizes == ops[0].sizes and _reads_identity(op, made) for op in ops)
    return _one_phase(ops) or ("contraction" not in sums and _rows(ops, made))


def _one_phase(ops: Sequence[OpText]) -> bool:
    reductions = [op for op in ops if _reduces(op)]
    if not reductions or list(ops[: len(reductions)]) != reductions:
        return False
    first = reductions[0]
    loops = (first.sizes, first.kinds, first.maps[first.inputs])
    if any((op.sizes, op.kinds, op.maps[op.inputs]) != loops for op in reductions):
        return False
    made = {r for op in ops for r in op.results}
    if any(v in made for op in reductions for v in op.operands):
        return False
    return all(op.sizes == _shape(first) and _reads_identity(op, made) for op in ops[len(reductions) :])


def _reads_identity(op: OpText, made: set[str]) -> bool:
    """Whether an elementwise op reads the group's own values only at the element that it writes."""
    return all(op.maps[i] == op.identity for i, v in enumerate(op.operands) if v in made)


def _width(op: OpText) -> int:
    """Bytes of an element of what an op makes."""
    made = tensor_of(op.result_types[0])
    assert made is not None, "an op of a group makes tensors"
    return TensorType((), made.element).bytes


def _rows(ops: Sequence[OpText], made: set[str]) -> bool:
    reductions = [op for op in ops if _reduces(op)]
    rows = reductions[0].kinds.find("r")
    leading = tuple(f"d{i}" for i in range(rows))
    if rows < 1:
        return False
    for op in reductions:
        if set(op.kinds[rows:]) != {"r"} or op.kinds[:rows] != "p" * rows or op.maps[op.inputs] != leading:
            return False
    if any(op.sizes[:rows] != reductions[0].sizes[:rows] or len(op.sizes) < rows for op in ops):
        return False
    inner = [math.prod(op.sizes[rows:]) for op in ops]
    kept = sum(n * _width(op) for op, n in zip(ops, inner, strict=True) if not _reduces(op) and n > 1)
    if max(inner) > _ROW_ELEMENTS or kept > _ROW_BYTES:
        return False
    for op in ops:
        for value, places in zip(op.operands, op.maps, strict=True):
            whole = places == op.identity[: len(places)] and len(places) in (rows, len(op.identity))
            if value in made and not whole:
                return False
    return True

"""The plan of a kernel graph that is run along a line of steps, with calls run again and memory moved out and in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlir_passes.arena import Life, place
from mlir_passes.errors import PassError
from mlir_passes.graph import KernelGraph
from mlir_passes.program import KernelCall, Plan, Transfer
from mlir_passes.schedule.problem import START, Problem
from mlir_passes.schedule.steps import Kind, Step, replay, stored_state
from mlir_passes.space import TensorType


@dataclass(frozen=True)
class Line:
    """Steps of a problem whose ops are calls of a kernel graph (`Op.source`: the number of the call) and whose tensors
    are its storages (`Tensor.source`: the storage's name; "" for what takes no memory)."""

    problem: Problem
    steps: tuple[Step, ...]


def plan_line(
    graph: KernelGraph,
    stores: Mapping[str, str],
    keys: Sequence[str],
    workspaces: Mapping[str, int],
    n_state: int,
    n_batch: int,
    line: Line,
) -> Plan:
    """The plan of a line. stores: the storage that each value of the graph stands in; new
    state stands in that of the old.

    Each time that a tensor comes into memory it gets a buffer of its own ("x", "x'2"), from the step that makes it or
    begins to read it in up to the one that frees it. State and batch that stand in memory between steps come back to
    the buffer that they left. Raises ScheduleError where the steps break a rule, PassError where they are not of this
    graph.
    """
    replay(line.problem, line.steps)
    walk = _Walk(graph, stores, keys, workspaces, n_state, n_batch, line)
    walk.run()
    metrics = {stores[m]: graph.types[m] for m in graph.returns if stores[m] not in graph.args[:n_state]}
    end = len(line.steps)
    lives = [walk.life(number, metrics, end) for number in range(len(walk.stays))]
    pages = [Life(f"{store}'page", "page", graph.types[store], (span,)) for store, span in walk.pages.items()]
    arena, file = place(lives), place(pages)
    page_of = {store: len(lives) + number for number, store in enumerate(walk.pages)}
    return Plan(
        buffers=(*arena.buffers, *file.buffers),
        calls=tuple(walk.calls),
        state=tuple(page_of[a] if a in walk.homes else walk.now[a] for a in graph.args[:n_state]),
        batch=tuple(walk.now[a] for a in graph.args[n_state : n_state + n_batch]),
        metrics=tuple(walk.now[m] for m in metrics),
        peak_bytes=arena.end,
        transfers=tuple(Transfer(m.kind, m.stay, page_of[m.store], m.start, m.end) for m in walk.moves),
        paged_bytes=file.end,
    )


@dataclass
class _Stay:
    """A buffer, and the rows during which it holds content; the last span of what still does ends with -1."""

    name: str
    store: str
    role: str
    found: TensorType
    spans: list[tuple[int, int]]


@dataclass
class _Move:
    """A transfer to be; see `Transfer`. stay: index of the buffer."""

    kind: str
    store: str
    stay: int
    start: int
    end: int


class _Walk:
    """Goes through the steps of a line. Rows, the indices of its steps, are the time in which buffers live."""

    def __init__(
        self,
        graph: KernelGraph,
        stores: Mapping[str, str],
        keys: Sequence[str],
        workspaces: Mapping[str, int],
        n_state: int,
        n_batch: int,
        line: Line,
    ) -> None:
        self._graph, self._stores, self._keys, self._workspaces, self._line = graph, stores, keys, workspaces, line
        self._roles = {a: "state" if i < n_state else "batch" for i, a in enumerate(graph.args[: n_state + n_batch])}
        self._blocking = not any(step.kind in (Kind.OUT_DONE, Kind.IN_DONE) for step in line.steps)
        self._tensors = [tensor.source for tensor in line.problem.tensors]
        self.homes = {self._tensors[t] for t in stored_state(line.problem, line.steps)}
        self.stays: list[_Stay] = []
        self.now: dict[str, int] = {}  # the buffer that a storage has, or had last
        self.pages: dict[str, tuple[int, int]] = {}  # first and last row of a storage's content in the page file
        self.moves: list[_Move] = []
        self.calls: list[KernelCall] = []
        self._inside: set[str] = set()
        self._times = Counter[str]()  # how many buffers a storage has had
        self._going: dict[str, _Move] = {}
        self._content = {a: a for a in self._roles}  # the storage whose value an argument's buffer holds

    def run(self) -> None:
        """Fill what this object shows; raises PassError where the line is not one of the graph."""
        self._check()
        for argument in self._roles:
            if argument in self.homes:
                self.pages[argument] = -1, len(self._line.steps)
            else:
                self._enter(argument, -1)
        acts = {
            Kind.FREE: self._leave, Kind.OUT: self._out, Kind.IN: self._in,
            Kind.OUT_DONE: self._done, Kind.IN_DONE: self._done,
        }  # fmt: skip
        for row, step in enumerate(self._line.steps):
            if step.kind == Kind.COMPUTE:
                self._compute(row, self._line.problem.ops[step.index].source)
            elif store := self._tensors[step.index]:
                acts[step.kind](store, row)

    def life(self, number: int, metrics: Mapping[str, TensorType], end: int) -> Life:
        """A buffer as it is to be placed."""
        stay = self.stays[number]
        spans = tuple((first, end if last < 0 else last) for first, last in stay.spans)
        if stay.store in metrics and self.now[stay.store] == number:
            return Life(stay.name, "metric", metrics[stay.store], spans)
        return Life(stay.name, stay.role, stay.found, spans)

    def _check(self) -> None:
        problem = self._line.problem
        named = [source for source in self._tensors if source]
        starts = {t.source for t in problem.tensors if t.maker == START}
        if len(set(named)) != len(named) or starts != set(self._roles):
            raise _foreign("its tensors are not the storages of this step")
        if sorted(op.source for op in problem.ops) != list(range(len(self._graph.calls))):
            raise _foreign("its ops are not the calls of this step")
        always = {t.source for t in problem.tensors if t.maker == START and not t.pageable}
        for op in problem.ops:
            call = self._graph.calls[op.source]
            used = {self._stores[v] for v in (*call.inputs, *call.outputs)} - always
            if not used <= {self._tensors[t] for t in (*op.reads, *op.makes)}:
                raise _foreign(f"{op.name} uses other tensors than call {op.source}")

    def _compute(self, row: int, number: int) -> None:
        call = self._graph.calls[number]
        for value in call.inputs:
            store = self._stores[value]
            if self._content.get(store, "") not in ("", self._graph.storage[value]):
                raise _foreign(f"call {number} reads {store} too late or too early")
        for value in call.outputs:
            store = self._stores[value]
            if store in self._going:
                self._end(self._going[store])  # who writes the same again still disturbs a transfer
            if store not in self._inside:
                self._enter(store, row)
            if store in self._content:
                self._content[store] = self._graph.storage[value] if self._graph.storage[value] != store else "new"
        args = [self.now[self._stores[v]] for v in (*call.inputs, *call.outputs)]
        if size := self._workspaces[self._keys[call.kernel]]:
            args.append(len(self.stays))
            name = f"workspace{len(self.calls)}"
            self.stays.append(_Stay(name, "", "workspace", TensorType((size,), "i8"), [(row, row)]))
        self.calls.append(KernelCall(self._keys[call.kernel], tuple(args)))

    def _enter(self, store: str, row: int) -> None:
        self._inside.add(store)
        if store in self._roles and store not in self.homes and store in self.now:
            self.stays[self.now[store]].spans.append((row, -1))
            return
        self.now[store] = len(self.stays)
        self._times[store] += 1
        name = f"{store}'{self._times[store]}" if self._times[store] > 1 else store
        role = self._roles.get(store, "activation")
        self.stays.append(_Stay(name, store, role, self._graph.types[store], [(row, -1)]))

    def _leave(self, store: str, row: int) -> None:
        self._inside.discard(store)
        spans = self.stays[self.now[store]].spans
        spans[-1] = spans[-1][0], row

    def _out(self, store: str, row: int) -> None:
        self._move("out", store, row)

    def _in(self, store: str, row: int) -> None:
        self._enter(store, row)
        self._move("in", store, row)

    def _move(self, kind: str, store: str, row: int) -> None:
        first, last = self.pages.get(store, (row, row))
        self.pages[store] = first, max(last, row)
        start = len(self.calls)
        move = _Move(kind, store, self.now[store], start, start if self._blocking else -1)
        self.moves.append(move)
        if not self._blocking:
            self._going[store] = move

    def _done(self, store: str, row: int) -> None:
        self._end(self._going.pop(store))

    def _end(self, move: _Move) -> None:
        """The next call waits for it, unless an earlier one does."""
        if move.end < 0:
            move.end = len(self.calls)


def _foreign(what: str) -> PassError:
    return PassError(
        "schedule", f"the line of steps does not fit the step: {what}", "Make the problem of this very step"
    )

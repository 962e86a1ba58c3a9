"""Plans of random schedules, run on memory that shows every overlap and every early or late transfer, against the
graph run without an arena."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from equal_costs import Equal
from passes.toy_graphs import PlanMachine, random_graph, run_graph
from random_lines import random_steps

from mlir_passes.errors import PassError
from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.plan import Settled, make_plan, settle_state
from mlir_passes.plan_line import Line
from mlir_passes.program import Plan
from mlir_passes.schedule.from_graph import problem_of
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import Kind, ScheduleError, Step, keep_all, replay, stored_state
from mlir_passes.space import TensorType

SEEDS = range(160)
F4 = TensorType((4,), "f32")


@dataclass(frozen=True)
class Toy:
    graph: KernelGraph
    settled: Settled
    keys: list[str]
    workspaces: dict[str, int]
    n_state: int
    n_batch: int

    @property
    def problem(self) -> Problem:
        return problem_of(self.settled, self.keys, self.workspaces, self.n_state, self.n_batch, Equal())

    def plan(self, line: Line | None) -> Plan:
        return make_plan(self.settled, self.keys, self.workspaces, self.n_state, self.n_batch, line)


def toy(graph: KernelGraph, n_state: int, n_batch: int, rng: random.Random) -> Toy:
    settled = settle_state(graph, n_state)
    keys = [k.text for k in settled.graph.kernels]
    return Toy(graph, settled, keys, {key: rng.choice((0, 0, 0, 64, 300)) for key in keys}, n_state, n_batch)


def random_toy(rng: random.Random) -> Toy:
    return toy(*random_graph(rng), rng)


class LineMachine(PlanMachine):
    """A plan machine with a page file, whose transfers begin and end at any moment that the plan permits.

    What is being read in holds junk until it ends; of what is being written out one half is seen at the beginning, the
    other at the end.
    """

    def __init__(self, plan: Plan, kernels: dict[str, KernelText], rng: random.Random) -> None:
        super().__init__(plan, kernels)
        self.file = np.full(plan.paged_bytes, 0xCC, np.uint8)
        self._rng = rng

    def run(self) -> None:
        calls, transfers = self.plan.calls, self.plan.transfers
        done, begun = 0, False
        for position in range(len(calls) + 1):
            due = max((n + 1 for n, t in enumerate(transfers) if t.end <= position), default=0)
            while done < len(transfers) and transfers[done].start <= position:
                if not begun:
                    if done >= due and self._rng.random() < 0.3:
                        break
                    self._begin(done)
                    begun = True
                if done >= due and self._rng.random() < 0.5:
                    break
                self._finish(done)
                done, begun = done + 1, False
            assert done >= due, "a call waits for what cannot have begun"
            if position < len(calls):
                one = replace(self.plan, calls=(calls[position],))
                self.plan, whole = one, self.plan
                super().run()
                self.plan = whole
        assert done == len(transfers)

    def _begin(self, number: int) -> None:
        transfer = self.plan.transfers[number]
        here, there = self._view(transfer.buffer), self._view(transfer.page)
        if transfer.kind == "in":
            here[:] = 0x77
        else:
            there[: len(there) // 2] = here[: len(here) // 2]
            there[len(there) // 2 :] = 0x77

    def _finish(self, number: int) -> None:
        transfer = self.plan.transfers[number]
        here, there = self._view(transfer.buffer), self._view(transfer.page)
        if transfer.kind == "in":
            here[:] = there
        else:
            there[len(there) // 2 :] = here[len(here) // 2 :]

    def _view(self, index: int) -> np.ndarray:
        buffer = self.plan.buffers[index]
        if buffer.role == "page":
            return self.file[buffer.offset : buffer.offset + buffer.bytes]
        return super()._view(index)


def run_three_steps(made: Toy, plan: Plan, rng: random.Random) -> None:
    """Assert that the plan does what the graph says, step after step."""
    machine = LineMachine(plan, dict(zip(made.keys, made.settled.graph.kernels, strict=True)), rng)
    types, args = made.graph.types, made.graph.args
    state = [rng.randbytes(types[a].bytes) for a in args[: made.n_state]]
    machine.write(plan.state, state)
    for _ in range(3):
        batch = [rng.randbytes(types[a].bytes) for a in args[made.n_state :]]
        machine.write(plan.batch, batch)
        machine.run()
        results = run_graph(made.graph, [*state, *batch])
        state = results[: made.n_state]
        assert machine.read(plan.state) == state
        assert machine.read(plan.metrics) == results[made.n_state :]
        assert machine.read(plan.batch) == batch


@pytest.mark.parametrize("part", range(4))
def test_random_lines_compute_what_the_graph_says(part: int):
    seen = {kind: 0 for kind in Kind}
    again = stored = 0
    for seed in SEEDS[part::4]:
        rng = random.Random(seed)
        made = random_toy(rng)
        problem = made.problem
        steps = random_steps(problem, rng)
        for step in steps:
            seen[step.kind] += 1
        again += replay(problem, steps).remats
        stored += len(stored_state(problem, steps))
        run_three_steps(made, made.plan(Line(problem, steps)), rng)
    assert min(*seen.values(), again, stored) > 10, "the lines exercise too little"


def test_keeping_all_runs_the_same_calls_in_the_same_order():
    for seed in SEEDS[:60]:
        rng = random.Random(seed)
        made = random_toy(rng)
        plan, line = made.plan(None), made.plan(Line(made.problem, keep_all(made.problem)))
        assert [c.kernel for c in line.calls] == [c.kernel for c in plan.calls]
        assert line.transfers == () and line.paged_bytes == 0
        run_three_steps(made, line, rng)


def test_peak_and_page_file_end_with_their_highest_buffer():
    for seed in SEEDS[:60]:
        rng = random.Random(seed)
        made = random_toy(rng)
        problem = made.problem
        steps = random_steps(problem, rng)
        plan, usage = made.plan(Line(problem, steps)), replay(problem, steps)
        ends: dict[bool, list[int]] = {True: [0], False: [0]}
        for b in plan.buffers:
            ends[b.role == "page"].append(b.offset + b.bytes)
        assert (plan.peak_bytes, plan.paged_bytes) == (max(ends[False]), max(ends[True]))
        assert plan.peak_bytes >= usage.peak_bytes
        kinds = [t.kind for t in plan.transfers]
        assert (kinds.count("out"), kinds.count("in")) == (usage.pages_out, usage.pages_in)
        assert len(plan.calls) == len(problem.ops) + usage.remats


def chain() -> KernelGraph:
    """a = f(x); b = f(a); c = f(b); loss = g(c, a); w' = w - loss in place."""
    kernels = tuple(
        KernelText("toy", f"k{i}", n, 1, 0, 0, 0, ((0, n),) if i == 4 else ()) for i, n in enumerate((1, 1, 1, 2, 2))
    )
    calls = (
        Call(0, ("arg1",), ("a",)),
        Call(1, ("a",), ("b",)),
        Call(2, ("b",), ("c",)),
        Call(3, ("c", "a"), ("m",)),
        Call(4, ("arg0", "m"), ("w",)),
    )
    names = ("arg0", "arg1", "a", "b", "c", "m", "w")
    return KernelGraph(kernels, calls, dict.fromkeys(names, F4), {n: n for n in names}, ("arg0", "arg1"), ("w", "m"))


def line_of(problem: Problem, text: str) -> Line:
    """A line from words such as "k0 out:a a_done free:a"; calls by number."""
    tensors = {t.source: i for i, t in enumerate(problem.tensors)}
    steps: list[Step] = []
    for word in text.split():
        kind, _, name = word.partition(":")
        steps.append(Step(Kind(kind), tensors[name]) if name else Step(Kind.COMPUTE, int(word)))
    return Line(problem, tuple(steps))


def small() -> Toy:
    return replace(toy(chain(), 1, 1, random.Random(0)), workspaces=dict.fromkeys(("k0", "k1", "k2", "k3", "k4"), 0))


def test_a_tensor_paged_out_and_in_has_a_buffer_for_each_stay_and_one_page():
    made = small()
    plan = made.plan(line_of(made.problem, "0 out:a 1 out_done:a free:a 2 free:b in:a in_done:a 3 free:a free:c 4"))
    by_name = {b.name: i for i, b in enumerate(plan.buffers)}
    assert {"a", "a'2", "a'page"} <= set(by_name)
    out, back = plan.transfers
    assert (out.kind, out.buffer, out.start, out.end) == ("out", by_name["a"], 1, 2)
    assert (back.kind, back.buffer, back.start, back.end) == ("in", by_name["a'2"], 3, 3)
    assert out.page == back.page == by_name["a'page"]
    assert plan.calls[3].args[1] == by_name["a'2"]
    assert plan.paged_bytes == 16


def test_a_tensor_computed_again_runs_its_call_twice():
    made = small()
    plan = made.plan(line_of(made.problem, "0 1 free:a 2 free:b 0 3 free:a free:c 4"))
    assert [c.kernel for c in plan.calls] == ["k0", "k1", "k2", "k0", "k3", "k4"]
    first, second = plan.calls[0].args[1], plan.calls[3].args[1]
    assert first != second and plan.buffers[second].name == "a'2"


def test_state_whose_home_is_the_store_stands_in_the_page_file():
    made = small()
    plan = made.plan(
        line_of(
            made.problem,
            "0 1 free:a 2 free:b 0 3 free:a free:c in:arg0 in_done:arg0 4 out:arg0 out_done:arg0 free:arg0",
        )
    )
    home = plan.buffers[plan.state[0]]
    assert (home.role, home.offset, plan.paged_bytes) == ("page", 0, 16)
    assert [t.kind for t in plan.transfers] == ["in", "out"]
    assert plan.transfers[0].page == plan.transfers[1].page == plan.state[0]


def test_state_that_leaves_memory_for_a_while_comes_back_to_its_buffer():
    made = small()
    plan = made.plan(
        line_of(made.problem, "out:arg0 out_done:arg0 free:arg0 0 1 2 free:b 3 free:a free:c in:arg0 in_done:arg0 4")
    )
    assert plan.buffers[plan.state[0]].role == "state"
    assert {t.buffer for t in plan.transfers} == {plan.state[0]}
    assert plan.peak_bytes < made.plan(line_of(made.problem, "0 1 2 free:b 3 free:a free:c 4")).peak_bytes


def test_a_call_that_makes_again_what_is_being_written_out_waits_for_that():
    made = small()
    plan = made.plan(line_of(made.problem, "0 out:a 0 1 out_done:a 2 free:b 3 free:a free:c 4"))
    assert (plan.transfers[0].start, plan.transfers[0].end) == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [("0 1 free:a 2 3 4", "not in memory"), ("0 1 2 3", "did not run"), ("0 1 2 3 4 4", "cannot run twice")],
)
def test_steps_that_are_no_schedule_make_no_plan(text: str, said: str):
    made = small()
    with pytest.raises(ScheduleError, match=said):
        made.plan(line_of(made.problem, text))


def test_a_line_of_another_step_is_refused():
    made = small()
    other = random_toy(random.Random(3))
    with pytest.raises(PassError, match="does not fit the step"):
        made.plan(Line(other.problem, keep_all(other.problem)))


def test_a_reader_of_old_state_after_its_update_is_refused():
    """The problem says nothing of the update, so its order may be wrong."""
    kernels = tuple(
        KernelText("toy", f"k{i}", n, 1, 0, 0, 0, ((0, n),) if i == 1 else ()) for i, n in enumerate((1, 2))
    )
    calls = (Call(0, ("arg0",), ("m",)), Call(1, ("arg0", "arg1"), ("w",)))
    names = ("arg0", "arg1", "m", "w")
    graph = KernelGraph(kernels, calls, dict.fromkeys(names, F4), {n: n for n in names}, names[:2], ("w", "m"))
    made = toy(graph, 1, 1, random.Random(0))
    problem = made.problem
    careless = replace(problem, tensors=tuple(replace(t, updater=-1) for t in problem.tensors))
    assert len(made.plan(Line(careless, keep_all(careless))).calls) == 2
    wrong = careless.reordered((1, 0))
    with pytest.raises(PassError, match="reads arg0 too late or too early"):
        made.plan(Line(wrong, keep_all(wrong)))

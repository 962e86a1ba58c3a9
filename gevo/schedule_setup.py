"""A workload's step as a scheduling problem for a target, and the program of a schedule of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fitness.costs import measured_costs, modelled_costs
from fitness.measure_device import page_tier
from fitness.profile import HOST, MODEL, known_profiles, load_profile
from gevo.errors import CampaignError
from gevo.tune import Bench, open_bench
from gevo.tuning_store import TuningStore
from mlir_passes.arena import up_to_aligned
from mlir_passes.graph import KernelText
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_program
from mlir_passes.plan import Settled, make_plan
from mlir_passes.plan_line import Line
from mlir_passes.program import Plan, Program
from mlir_passes.schedule.from_graph import Cost, Costs, problem_of
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import Step
from workloads.cache import cache_folder

CPU = "cpu"
_BATCHES = 8
OnStage = Callable[[str], None]
Check = Callable[[Problem, int], None]


@dataclass(frozen=True)
class Ready:
    """base: the program that keeps everything. settled, keys, workspaces: what a plan is made of."""

    bench: Bench
    target: str
    base: Program
    settled: Settled
    keys: tuple[str, ...]
    workspaces: Mapping[str, int]
    problem: Problem
    energy_method: str
    time_method: str

    def program(self, steps: Sequence[Step]) -> Program:
        """The program of a line of steps of the problem: the same kernels, along another plan."""
        return replace(self.base, plan=_plan(self, Line(self.problem, tuple(steps))))


def check_target(target: str) -> None:
    """Raise CampaignError that lists the known targets; FitnessError where its profile is incomplete."""
    if target == CPU:
        return
    known = [CPU, *(f"{MODEL}{name}" for name in known_profiles())]
    if target not in known:
        raise CampaignError(f"unknown target {target!r}; known: {', '.join(known)}", "--target")
    load_profile(target.removeprefix(MODEL))


def prepare_step(
    workload: str,
    target: str,
    page_dir: Path | None,
    on_stage: OnStage,
    check: Check = lambda problem, keep_bytes: None,
    paging: bool = True,
) -> Ready:
    """The problem of a workload's step, made as a search would make it. For `cpu` calls are measured here, and so is
    the store where something may be paged; joules are those of the model of a server core.

    check: told of the problem without its costs, and of what everything kept needs, before anything is measured.
    """
    on_stage("preparing the step")
    bench = open_bench(workload)
    on_stage("compiling its kernels")
    choices = TuningStore().choices()
    bench.program(choices)  # in a process of its own; what follows finds every object in the cache
    met: list[tuple[Settled, tuple[str, ...], Mapping[str, int]]] = []

    def note(settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int]) -> None:
        met.append((settled, tuple(keys), dict(workspaces)))

    signature = bench.prepared.signature
    sizes = len(signature.state), len(signature.batch)
    cache = ObjectCache(cache_folder() / "objects")
    base = compile_program(bench.text, signature.entry, *sizes, cache, choices=choices, line_of=note)
    check(aligned(problem_of(*met[0], *sizes, _Free())), base.plan.peak_bytes)
    costs, method, time_method = _costs(bench, base, target, page_dir, paging, on_stage)
    problem = aligned(problem_of(*met[0], *sizes, costs))
    return Ready(bench, target, base, *met[0], problem, method, time_method)


def aligned(problem: Problem) -> Problem:
    """The same with the bytes that buffers take where each begins at an aligned offset, as in a plan."""
    tensors = tuple(replace(tensor, bytes=up_to_aligned(tensor.bytes)) for tensor in problem.tensors)
    ops = tuple(replace(op, workspace=up_to_aligned(op.workspace)) for op in problem.ops)
    return Problem(ops, tensors)


def _plan(ready: Ready, line: Line) -> Plan:
    signature = ready.bench.prepared.signature
    sizes = len(signature.state), len(signature.batch)
    return make_plan(ready.settled, ready.keys, ready.workspaces, *sizes, line)


class _Free:
    """Nothing costs anything."""

    def call(self, row: int, kernel: KernelText) -> Cost:
        return Cost(0.0, 0.0)

    def page_out(self, bytes_: int) -> Cost:
        return Cost(0.0, 0.0)

    def page_in(self, bytes_: int) -> Cost:
        return Cost(0.0, 0.0)


def _costs(
    bench: Bench, base: Program, target: str, page_dir: Path | None, paging: bool, on_stage: OnStage
) -> tuple[Costs, str, str]:
    """Costs with the methods of joules and of seconds."""
    if target != CPU:
        costs = modelled_costs(load_profile(target.removeprefix(MODEL)), base.plan.peak_bytes)
        return costs, costs.method, costs.method
    host = load_profile(HOST)
    tier = modelled_costs(host).page
    if paging:
        on_stage("measuring the store")
        tier = page_tier(page_dir)
    on_stage("measuring the calls of the step")
    seed = bench.prepared.signature.quality.seeds[0]
    state, batches = bench.prepared.initial_state(seed), list(bench.prepared.batches(seed, _BATCHES))
    costs = measured_costs(base, state, batches, host, tier)
    return costs, costs.method, "calls measured one by one"

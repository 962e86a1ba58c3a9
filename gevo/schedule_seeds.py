"""The schedules of a base step that a search starts from: for a process of its own (`gevo.ir_child`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fitness.calls import StepCalls
from fitness.choices import load_choices
from fitness.costs import MeasuredCosts, modelled_costs
from fitness.measure_device import page_tier
from fitness.profile import load_profile
from gevo.scheduling import Schedules
from mlir_passes.errors import PassError
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from mlir_passes.plan import Settled
from mlir_passes.schedule.decode import decode, encode
from mlir_passes.schedule.from_graph import problem_of
from mlir_passes.schedule.genes import Before, Gene
from mlir_passes.schedule.order import ordered
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request, Solution
from mlir_passes.schedule.solve import Infeasible, solve
from mlir_passes.schedule.steps import keep_all, replay
from workloads.workload import PreparedWorkload

SHARES = (0.9, 0.75, 0.6, 0.5, 0.4)  # budgets, of what keeping everything needs
SECONDS = 3.0  # of a solve
CALLS_S = 0.5  # of timing the calls of the base
BATCHES = 8


def write_schedules(
    prepared: str, base: str, cache: str, tuning: str, threads: int, profile: str, paging: bool, page_dir: str, to: str
) -> None:
    """The base as a scheduling problem, and schedules of least time for smaller budgets, into the file `to`."""
    workload = PreparedWorkload.load(Path(prepared))
    signature, seed = workload.signature, workload.signature.quality.seeds[0]
    sizes = len(signature.state), len(signature.batch)
    met: list[tuple[Settled, Sequence[str], Mapping[str, int]]] = []

    def note(settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int]) -> None:
        met.append((settled, keys, workspaces))

    choices, text = load_choices(tuning, threads), Path(base).read_text()
    program = compile_text(text, signature.entry, *sizes, ObjectCache(Path(cache)), choices, line_of=note)
    model = modelled_costs(load_profile(profile), program.plan.peak_bytes)
    calls = StepCalls(program, workload.initial_state(seed), list(workload.batches(seed, BATCHES)))
    tier = page_tier(Path(page_dir) if page_dir else None) if paging else model.page
    problem = problem_of(*met[0], *sizes, MeasuredCosts(model, tuple(calls.times(CALLS_S)), tier))
    Schedules(problem, found(problem, paging), paging).save(Path(to))


def found(problem: Problem, paging: bool) -> tuple[tuple[Gene, ...], ...]:
    """Schedules for ever smaller budgets, down to the least that has one; none where no solver is installed."""
    most = replay(problem, keep_all(problem)).peak_bytes
    schedules: dict[tuple[Gene, ...], None] = {}
    for share in SHARES:
        request = Request(int(share * most), minimise="time", paging=paging, time_limit_s=SECONDS)
        better, moves = ordered(problem, request.budget_bytes)
        try:
            solution = solve(better, request)
        except Infeasible as error:
            if error.needed_bytes < most:
                least = Request(error.needed_bytes, minimise="time", paging=paging, time_limit_s=SECONDS)
                schedules[_least(better, moves, least)] = None
            break
        except PassError:
            return ()
        schedules[_told(better, moves, solution)] = None
    return tuple(genes for genes in schedules if genes)


def _least(problem: Problem, moves: tuple[Before, ...], request: Request) -> tuple[Gene, ...]:
    try:
        return _told(problem, moves, solve(problem, request))
    except PassError:
        return ()


def _told(problem: Problem, moves: tuple[Before, ...], solution: Solution) -> tuple[Gene, ...]:
    """The genes of a solution, as what they decode to says them: none of them is dropped again."""
    return (*moves, *encode(problem, decode(problem, solution.holds).steps))

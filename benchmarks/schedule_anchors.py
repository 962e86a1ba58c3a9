"""What the scheduler must show: optima on POET's graphs, against other solvers and brute force.

    python benchmarks/schedule_anchors.py [--only NAME ...] [--for 350] [--milp] [--brute 200] [--ratio] [--workers 1]

The table (default) has one line a budget: joules beside the least known, gap to the proven bound, seconds, who proved.
--milp: the same optima as POET's integer program in HiGHS, on graphs of at most 81 ops at three budgets each.
--brute N: the same optima as exhaustive search, by the whole chain, on N made-up problems. --ratio: how much faster
than the integer program.
Results go to build/bench/schedule_*.jsonl. Needs an otherwise idle core; the whole table takes about half an hour.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import OUT, line, machine, parsed
from mlir_passes.schedule.solve import Infeasible, Request, Solution, solve
from mlir_passes.schedule.steps import replay
from schedule_graphs import graph, keep_all_bytes
from schedule_milp import solve_milp


@dataclass(frozen=True)
class Anchor:
    """A network at a budget, and the least joules known for it: POET's costs of the Cortex-M4F."""

    network: str
    budget_bytes: int
    known_j: float
    deadline: float = 2.0  # as a multiple of computing each op once


# From CP-SAT and HiGHS on these graphs, by hand, with the deadline on computing alone: proven optimal for up to three
# computations of an op, but resnet18_cifar from 490,752 bytes down, bert12, resnet50 and bert31, which are open.
ANCHORS = (
    Anchor("bert3", 60_397_977, 24.495833),
    Anchor("vgg16_cifar", 1_109_624, 3.452840),
    Anchor("bert6", 58_510_540, 50.8371),
    Anchor("resnet18_cifar", 1_717_632, 0.545987),
    Anchor("resnet18_cifar", 1_226_880, 0.546347),
    Anchor("resnet18_cifar", 737_719, 0.550850, 1.5),
    Anchor("resnet18_cifar", 736_128, 0.553225),
    Anchor("resnet18_cifar", 490_752, 0.588098),
    Anchor("resnet18_cifar", 262_144, 0.738387),
    Anchor("bert12", 76_755_763, 95.26312467 * 1.09166),
    Anchor("resnet50", 25_551_820, 42.20962435 * 1.01965),
    Anchor("bert31", 98_146_713, 245.54681714 * 1.1287),
)
RATIOS = (("bert3", 60_397_977), ("vgg16_cifar", 1_109_624), ("resnet18_cifar", 736_128))
SAME = 1e-4
SMOKE = "--only linear vgg16_cifar:1109624 --for 1 --milp-for 2 --table --milp --brute 2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="networks, or network:bytes")
    parser.add_argument("--for", dest="seconds", type=float, default=350.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--milp-for", type=float, default=400.0, help="seconds for each run of HiGHS")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--milp", action="store_true")
    parser.add_argument("--brute", type=int, default=0)
    parser.add_argument("--ratio", action="store_true")
    arguments = parsed(parser, SMOKE)
    OUT.mkdir(parents=True, exist_ok=True)
    print(machine())
    if arguments.milp:
        report("milp", compare_milp(arguments))
    if arguments.brute:
        report("brute", compare_brute(arguments.brute))
    if arguments.ratio:
        report("ratio", compare_speed(arguments))
    if arguments.table or not (arguments.milp or arguments.brute or arguments.ratio):
        report("anchors", table(arguments))


def report(name: str, rows: Iterator[dict[str, Any]]) -> None:
    """Print each row when it is there, and append it to a file."""
    with (OUT / f"schedule_{name}.jsonl").open("w") as file:
        for number, row in enumerate(rows):
            shown = {key: _text(value) for key, value in row.items()}
            widths = [max(len(key), 15) for key in shown]
            if not number:
                print(line(shown.keys(), widths))
            print(line(shown.values(), widths), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()


def _text(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def timed(network: str, budget_bytes: int, deadline: float, arguments: argparse.Namespace) -> tuple[Solution, float]:
    """The scheduler's answer, and the seconds that it took."""
    problem = graph(network)
    request = Request(
        budget_bytes, deadline * problem.time_s, time_limit_s=arguments.seconds, workers=arguments.workers
    )
    begun = time.perf_counter()
    solution = solve(problem, request)
    return solution, time.perf_counter() - begun


def table(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row an anchor; `ratio` is our joules by those known, `over` and `gap` are parts of computing each op once."""
    for anchor in ANCHORS:
        names = (anchor.network, f"{anchor.network}:{anchor.budget_bytes}")
        if arguments.only and not set(names) & set(arguments.only):
            continue
        solution, seconds = timed(anchor.network, anchor.budget_bytes, anchor.deadline, arguments)
        once = graph(anchor.network).energy_j
        energy = solution.usage.energy_j
        yield {
            "network": anchor.network, "bytes": anchor.budget_bytes, "energy_j": energy, "known_j": anchor.known_j,
            "ratio": energy / anchor.known_j, "over_percent": 100 * (energy / once - 1),
            "gap_percent": 100 * solution.gap, "seconds": seconds, "proven": solution.proven,
            "found_by": solution.found_by, "stages_s": {k: round(v, 2) for k, v in solution.seconds.items()},
        }  # fmt: skip


def compare_milp(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Overheads in joules, and whether they are the same."""
    networks = ("transformer", "linear", "bert3", "vgg16_cifar")
    for network in [name for name in networks if not arguments.only or name in arguments.only]:
        problem = graph(network)
        for part in (0.85, 0.7, 0.55):
            budget = int(part * keep_all_bytes(problem))
            row: dict[str, Any] = {"network": network, "bytes": budget}
            begun = time.perf_counter()
            verdict = solve_milp(problem, budget, 2 * problem.time_s, arguments.milp_for, arguments.workers)
            row |= {"milp_j": verdict.overhead_j, "milp_s": time.perf_counter() - begun, "milp": verdict.status}
            try:
                solution, seconds = timed(network, budget, 2.0, arguments)
            except Infeasible as error:
                yield row | {"ours_j": None, "ours_s": None, "same": verdict.status == "Infeasible", "why": str(error)}
                continue
            ours = solution.usage.energy_j - problem.energy_j
            same = abs(ours - verdict.overhead_j) <= SAME * max(verdict.overhead_j, 1e-9 * problem.energy_j)
            yield row | {"ours_j": ours, "ours_s": seconds, "same": same, "proven": solution.proven}


def compare_brute(count: int) -> Iterator[dict[str, Any]]:
    """What the whole chain answers on made-up problems, half of them DAGs without state and half with state and several
    outputs, at a budget at which something must leave memory. `same`: the least joules, or the gap tells that less may
    do; where there is no schedule, none is found."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit" / "schedule"))
    from brute import optimum
    from random_problems import random_dag, random_problem

    from mlir_passes.schedule.infeasible import floor
    from mlir_passes.schedule.steps import keep_all

    for seed in range(count):
        rng = random.Random(seed)
        problem = random_dag(rng) if seed % 2 else random_problem(rng, rng.randint(3, 8), 1)
        low, high = floor(problem).bytes, replay(problem, keep_all(problem)).peak_bytes
        budget = rng.randint(low, max(low, high - 1))
        best = optimum(problem, budget)
        row: dict[str, Any] = {"seed": seed, "brute_j": best.cost if best else None}
        try:
            found = solve(problem, Request(budget, time_limit_s=60.0, workers=1))
        except Infeasible as error:
            yield row | {
                "ours_j": None,
                "bound_j": None,
                "equal": best is None,
                "same": best is None,
                "why": str(error),
            }
            continue
        replay(problem, found.steps, budget)
        tolerance = SAME * problem.energy_j
        least = best.cost if best else float("inf")
        equal = abs(found.usage.energy_j - least) <= tolerance
        same = equal or found.bound <= least + tolerance < found.usage.energy_j
        yield row | {
            "ours_j": found.usage.energy_j, "bound_j": found.bound, "equal": equal, "same": same, "why": found.proven,
        }  # fmt: skip


def compare_speed(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of both, one after the other; the program's are its limit where it did not end."""
    for network, budget in RATIOS:
        problem = graph(network)
        solution, seconds = timed(network, budget, 2.0, arguments)
        begun = time.perf_counter()
        verdict = solve_milp(problem, budget, 2 * problem.time_s, arguments.milp_for, arguments.workers)
        taken = time.perf_counter() - begun
        yield {
            "network": network, "bytes": budget, "ours_s": seconds, "milp_s": taken, "ratio": taken / seconds,
            "ours_j": solution.usage.energy_j - problem.energy_j, "milp_j": verdict.overhead_j,
            "milp_bound_j": verdict.bound_j, "milp": verdict.status, "proven": solution.proven,
        }  # fmt: skip


if __name__ == "__main__":
    main()

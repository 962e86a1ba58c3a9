"""What a better order of the calls saves: training steps scheduled in the order of the step, and in one for the budget.

    python benchmarks/schedule_order.py [WORKLOAD ...] [--fractions 0.75 0.5 0.35] [--seconds 15] [--target model:a72]

A line a step and budget: energy over computing each call once, with the proven bound, in either order; calls moved.
"""

from __future__ import annotations

import argparse

from common import line, machine, parsed
from gevo.schedule_setup import prepare_step
from mlir_passes.schedule.infeasible import Infeasible
from mlir_passes.schedule.order import ordered
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request
from mlir_passes.schedule.solve import solve
from mlir_passes.schedule.steps import keep_all, replay

WORKLOADS = ("lenet", "mobilenet", "bert", "llama", "resnet18")
WIDTHS = (10, 8, 12, 24, 24, 6)
SMOKE = "digits --fractions 0.8 --seconds 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--fractions", nargs="*", type=float, default=(0.75, 0.5, 0.35))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--target", default="model:a72")
    arguments = parsed(parser, SMOKE)
    print(f"{machine()}; {arguments.target}, {arguments.seconds:.0f} s a schedule")
    print(line(("step", "budget", "bytes", "in its order (bound)", "in a better one (bound)", "moved"), WIDTHS))
    for name in arguments.workloads:
        problem = prepare_step(name, arguments.target, None, lambda stage: None).problem
        keep = replay(problem, keep_all(problem)).peak_bytes
        for fraction in arguments.fractions:
            budget = int(fraction * keep)
            better, moves = ordered(problem, budget)
            request = Request(budget, time_limit_s=arguments.seconds)
            found = [scheduled(p, request) for p in (problem, better)]
            print(line((name, f"{fraction:.0%}", budget, *found, len(moves)), WIDTHS), flush=True)


def scheduled(problem: Problem, request: Request) -> str:
    try:
        found = solve(problem, request)
    except Infeasible as error:
        return f"at least {error.needed_bytes}"
    energy, bound = (100 * (joules / problem.energy_j - 1) for joules in (found.usage.energy_j, found.bound))
    return f"+{energy:.3f} % (+{bound:.3f})"


if __name__ == "__main__":
    main()

"""POET's comparisons: energy over keeping everything against the memory budget, by ways to schedule.

    python benchmarks/schedule_compare.py [NETWORK ...] [--devices m4 a72] [--fractions 0.9 0.5 0.3]
        [--seconds 30] [--ways NAME ...] [--out build/bench]

Networks and device costs are POET's (data/schedule/README.md). A budget is a fraction of the peak of keeping all; its
bytes are printed, since sizes come in steps, and those under the working set of an op are left out. Each line is
replayed within its budget before it counts. Energy is that of the line over computing each op once; time is that of the
same line with its transfers beside the computing. "-": none found. The ways are those of schedule_baselines.py; what is
simplified in each is said in its module.

Writes schedule_compare.json, schedule_compare.md, and a picture for each network and device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from common import OUT, machine, parsed
from gevo.schedule_curve import Curve, Series, plot
from mlir_passes.schedule.infeasible import floor
from mlir_passes.schedule.overlap import overlapped
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.steps import replay
from schedule_baselines import WAYS, Effort
from schedule_graphs import DEVICES, graph, keep_all_bytes

NETWORKS = ("linear", "vgg16_cifar", "resnet18_cifar", "bert3")
FRACTIONS = (1.0, 0.9, 0.7, 0.5, 0.45, 0.3, 0.2)
SEARCHES = ("ours", "paging only", "remat only")  # too slow to look for their smallest budget by trials
TRIALS = 12
PUBLISHED = """\
Published beside this (POET, arXiv 2207.07697): Capuchin +73 to +141 % for ResNet-18 on the A72 as memory shrinks, POET
under +1 %; integrated 25 to 35 % less energy than paging alone; for ResNet-18 on the TX2 8.3 % less memory and 13 %
more throughput than POFO. POET's code has no constants of the TX2, and no Capuchin; ours follows the ASPLOS paper."""
SMOKE = "linear --devices m4 --fractions 0.7 --seconds 1"


@dataclass(frozen=True)
class Row:
    """What a way found within a budget. None for each figure where it found nothing. energy, time: over keeping all,
    0.02 for 2 %."""

    network: str
    device: str
    ops: int
    way: str
    fraction: float
    budget_bytes: int
    energy: float | None
    time: float | None
    peak_bytes: int | None
    remats: int | None
    pages_out: int | None
    pages_in: int | None
    found_in_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--devices", nargs="+", default=DEVICES, choices=DEVICES)
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--ways", nargs="+", default=tuple(WAYS), choices=tuple(WAYS))
    parser.add_argument("--seconds", type=float, default=30.0, help="for each solve")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parsed(parser, SMOKE)
    arguments.out.mkdir(parents=True, exist_ok=True)
    effort = Effort(arguments.seconds, arguments.seed, arguments.workers)
    rows: list[Row] = []
    parts: list[str] = [f"{machine()}, {arguments.seconds:g} s a solve\n"]
    for network in arguments.networks:
        for device in arguments.devices:
            problem = graph(network, device)
            peak, least = keep_all_bytes(problem), floor(problem).bytes
            fractions = [fraction for fraction in arguments.fractions if int(peak * fraction) >= least]
            new = [row for f in fractions for row in compared(problem, network, device, f, arguments.ways, effort)]
            rows += new
            parts.append(section(problem, new, arguments.ways))
            print(parts[-1], flush=True)
            path = arguments.out / f"schedule_compare_{network}_{device}.png"
            plot(curve(problem, new, arguments.ways), path)
            save(arguments.out, rows, [*parts, PUBLISHED])
    print(PUBLISHED)
    print(f"wrote {arguments.out / 'schedule_compare.md'} and .json")


def compared(
    problem: Problem, network: str, device: str, fraction: float, ways: Iterable[str], effort: Effort
) -> list[Row]:
    """A row for each way at one budget."""
    budget = int(keep_all_bytes(problem) * fraction)
    rows: list[Row] = []
    for way in ways:
        start = time.perf_counter()
        steps = WAYS[way](problem, budget, effort)
        took = time.perf_counter() - start
        head = (network, device, len(problem.ops), way, fraction, budget)
        if steps is None:
            rows.append(Row(*head, None, None, None, None, None, None, took))
            continue
        usage = replay(problem, steps, budget)
        makespan_s = overlapped(problem, steps, budget).makespan_s
        rows.append(
            Row(
                *head,
                usage.energy_j / problem.energy_j - 1,
                makespan_s / problem.time_s - 1,
                usage.peak_bytes,
                usage.remats,
                usage.pages_out,
                usage.pages_in,
                took,
            )
        )
    return rows


def section(problem: Problem, rows: Sequence[Row], ways: Sequence[str]) -> str:
    """The tables of a network and device, in markdown."""
    peak = keep_all_bytes(problem)
    head = rows[0]
    lines = [
        f"## {head.network}, {head.device}: {head.ops} ops, all kept {peak:,} bytes, "
        f"{problem.energy_j:.6g} J, {problem.time_s:.4g} s\n",
        "Energy over keeping all:\n",
        *table(rows, ways, "energy"),
        "\nTime over keeping all, transfers beside the computing:\n",
        *table(rows, ways, "time"),
        *(f"\n{line}" for line in beside(rows)),
        f"\n{smallest(problem, [way for way in ways if way not in SEARCHES])}\n",
    ]
    return "\n".join(lines)


def beside(rows: Sequence[Row]) -> list[str]:
    """How much less energy, of the whole, ours takes than the ways that the paper compares with."""
    found = {(row.way, row.fraction): row.energy for row in rows}
    lines: list[str] = []
    for other in ("paging only", "Capuchin-like", "chain (POFO-like)"):
        pairs = [
            (f, found.get(("ours", f)), found.get((other, f))) for f in dict.fromkeys(row.fraction for row in rows)
        ]
        less = [
            f"{1 - (1 + a) / (1 + b):.2%} at {f:g}" for f, a, b in pairs if a is not None and b is not None and f < 1
        ]
        lines += [f"Less energy by ours than {other}: {', '.join(less)}."] if less else []
    return lines


def table(rows: Sequence[Row], ways: Sequence[str], figure: str) -> list[str]:
    """A line a budget, a column a way."""
    lines = [f"| budget | bytes | {' | '.join(ways)} |", "| --- | ---: |" + " ---: |" * len(ways)]
    for fraction in dict.fromkeys(row.fraction for row in rows):
        here = {row.way: row for row in rows if row.fraction == fraction}
        cells = [percent(getattr(here[way], figure)) for way in ways]
        lines.append(f"| {fraction:g} | {here[ways[0]].budget_bytes:,} | {' | '.join(cells)} |")
    return lines


def percent(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) < 5e-7:
        return "0"
    return f"{100 * value:+.4f} %" if abs(value) < 0.001 else f"{100 * value:+.2f} %"


def smallest(problem: Problem, ways: Iterable[str]) -> str:
    """The least budget that each quick way keeps, by halving, beside the floor under which nothing can."""
    peak, least = keep_all_bytes(problem), floor(problem)
    found: list[str] = []
    for way in ways:
        low, high = least.bytes - 1, peak
        for _ in range(TRIALS):
            middle = (low + high) // 2
            low, high = (low, middle) if WAYS[way](problem, middle, Effort()) is not None else (middle, high)
        found.append(f"{way} {high / peak:.3f}")
    text = f"Smallest budget kept, of all kept: {', '.join(found)}. " if found else ""
    return text + f"No schedule takes less than {least.bytes / peak:.3f} ({least.bytes:,} bytes, {least.op})."


def curve(problem: Problem, rows: Sequence[Row], ways: Sequence[str]) -> Curve:
    drawn = [way for way in ways if way != "keep all"]
    points = {way: tuple((row.budget_bytes, row.energy) for row in rows if row.way == way) for way in drawn}
    title = f"{rows[0].network} on {rows[0].device}: what less memory costs, by ways to schedule"
    series = tuple(Series(way, points[way]) for way in drawn)
    return Curve(title, keep_all_bytes(problem), series, method="costs as POET defines them")


def save(folder: Path, rows: Sequence[Row], parts: Sequence[str]) -> None:
    (folder / "schedule_compare.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    (folder / "schedule_compare.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()

"""What the benchmarks share: `--smoke`, settings of a fair run, interleaved windows, tables, files, pictures."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path("build/bench")
WINDOW_S = 0.002
REST_S = 0.003  # with several threads: until the pools of the system before have stopped spinning
COLOURS = {
    "gevo": "#1b7837",
    "jax": "#2166ac",
    "jax scan": "#67a9cf",
    "blas": "#999999",
    "torch": "#d6604d",
    "torch compile": "#f4a582",
    "iree": "#762a83",
}


def parsed(parser: argparse.ArgumentParser, smoke: str | Sequence[str]) -> argparse.Namespace:
    """The arguments of the command. `--smoke` stands for `smoke`: so little that all of the way is gone in seconds.

    It shows that the benchmark works, and its figures say nothing.
    """
    small, words = smoke.split() if isinstance(smoke, str) else smoke, sys.argv[1:]
    parser.add_argument("--smoke", action="store_true", help=f"see that it works, in seconds: {' '.join(small)}")
    return parser.parse_args([*small, *words] if "--smoke" in words else words)


def settle(threads: int) -> None:
    """This process on the first `threads` cores, and XLA's pools of that size. Before the first use of JAX."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = (
        one if threads == 1 else f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={threads}"
    )


@dataclass(frozen=True)
class System:
    """A contender. run(n) does n calls of `steps` steps each; reset comes before each window and is not timed."""

    run: Callable[[int], object]
    steps: int = 1
    reset: Callable[[], object] = lambda: None

    def seconds(self, count: int) -> float:
        """Seconds a step over `count` calls."""
        start = time.perf_counter()
        self.run(count)
        return (time.perf_counter() - start) / (count * self.steps)


def calls(function: Callable[[], object]) -> Callable[[int], None]:
    """`function` as `System.run`: called again and again from Python."""

    def run(count: int) -> None:
        for _ in range(count):
            function()

    return run


def started(
    makers: Mapping[str, Callable[[], System]], smoke: bool = False
) -> tuple[dict[str, System], dict[str, str]]:
    """The systems that start and do one call, and why the others do not. smoke: only for want of a library."""
    systems: dict[str, System] = {}
    reasons: dict[str, str] = {}
    for name, make in makers.items():
        try:
            system = make()
            system.run(1)
        except Exception as error:  # a library that is missing or fails is a line of the table, not its end
            if smoke and not isinstance(error, ModuleNotFoundError):
                raise
            reasons[name] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        else:
            systems[name] = system
    return systems, reasons


def interleaved(
    systems: Mapping[str, System], runs: int = 5, windows: int = 20, seconds: float = 10.0, rest_s: float = 0.0
) -> dict[str, np.ndarray]:
    """Seconds a step of each system, shape (runs, windows).

    Every system has one window in a round, and who begins changes from round to round. Fewer windows, but three
    at least, where `runs * windows` rounds would take more than `seconds`.
    """
    counts: dict[str, int] = {}
    round_s = 0.0
    for name, system in systems.items():
        call_s = min(system.seconds(1) for _ in range(2)) * system.steps
        counts[name] = max(1, round(WINDOW_S / call_s))
        round_s += rest_s + call_s * (counts[name] + 1)
    windows = max(3, min(windows, round(seconds / (runs * round_s))))
    names = list(systems)
    times = {name: np.empty(runs * windows) for name in names}
    for turn in range(runs * windows):
        for name in (names[turn % len(names) :] + names)[: len(names)]:
            time.sleep(rest_s)
            systems[name].reset()
            if counts[name] > 1:
                systems[name].run(1)  # its data back into the caches
            times[name][turn] = systems[name].seconds(counts[name])
    return {name: found.reshape(runs, windows) for name, found in times.items()}


def fastest(times: np.ndarray) -> float:
    """Seconds: the median over runs of the fastest window."""
    return float(np.median(times.min(axis=1)))


def ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Median, least and greatest over runs of the median ratio of neighbouring windows."""
    found = np.median(above / below, axis=1)
    return float(np.median(found)), float(found.min()), float(found.max())


def machine() -> str:
    """The CPU and the load, for the head of a table."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [text.partition(": ")[2] for text in lines if text.startswith("model name")]
    return f"{names[0].strip()}, {len(names)} cores, load {os.getloadavg()[0]:.1f}"


def line(cells: Iterable[object], widths: Sequence[int]) -> str:
    """One line of a table: the first cell to the left, the others to the right; None is "-"."""
    texts = ["-" if cell is None else str(cell) for cell in cells]
    first, rest = texts[0].ljust(widths[0]), zip(texts[1:], widths[1:], strict=True)
    return " ".join([first, *(text.rjust(width) for text, width in rest)])


def save(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the rows as CSV, with the columns of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {path}")


def picture(path: Path, draw: Callable[[Any], None], size: tuple[float, float] = (8, 5)) -> None:
    """Save what `draw` draws on a pair of axes as PNG; without matplotlib, say so."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print(f"no {path}: matplotlib is not installed (pip install 'gevo[report]')")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    draw(axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    print(f"wrote {path}")

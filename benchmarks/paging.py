"""What a transfer to and from the page file takes: done by the loop over the kernels itself, and by the thread.

    python benchmarks/paging.py [--page-dir DIR]

Each figure is of one of the eight transfers of a step, median and least of seven windows. "thread" holds the waits that
join the two; with one core they are two changes of the running thread. What was just written is in the page cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import parsed
from fitness.cpu import CpuRunner
from mlir_passes.program import Buffer, KernelCall, Plan, Transfer

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from fitness_toys import kernel, program  # after the path is set

COUNT, WINDOWS, BYTES = 8, 7, 64 << 20
NOTHING = "define void @nothing() {\n  ret void\n}"
SMOKE = "--sizes 64 4096"
SIZES = (64, 4096, 1 << 16, 1 << 20, 16 << 20)


def runner(size: int, kind: str, overlapping: bool, folder: Path) -> CpuRunner:
    """A step of nothing but transfers, each between two calls that do nothing."""
    buffers = (Buffer("a", "activation", 0, size, (size,), "uint8"), Buffer("p", "page", 0, size, (size,), "uint8"))
    calls = tuple(KernelCall("k", ()) for _ in range(COUNT + 1))
    transfers = tuple(Transfer(kind, 0, 1, i, i + overlapping) for i in range(COUNT))
    plan = Plan(buffers, calls, (), (), (), size, transfers, size)
    return CpuRunner(program(plan, [kernel("k", "nothing", NOTHING, 0, 0, 0)]), page_dir=folder)


def transfer_s(runner: CpuRunner, size: int) -> tuple[float, float]:
    """Seconds of a transfer, median and least."""
    times = max(1, min(200, BYTES // size // COUNT))
    runner.run()
    found: list[float] = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        runner.run(times)
        found.append((time.perf_counter() - start) / times / COUNT)
    return statistics.median(found), min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page-dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a transfer")
    arguments = parsed(parser, SMOKE)
    folder: Path = arguments.page_dir
    print(f"{folder}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print("|   bytes | kind | itself us (least) | GB/s | thread us (least) |\n| --- | --- | --- | --- | --- |")
    for size in arguments.sizes:
        for kind in ("out", "in"):
            direct, thread = (transfer_s(runner(size, kind, which, folder), size) for which in (False, True))
            both = [f"{middle * 1e6:.2f} ({least * 1e6:.2f})" for middle, least in (direct, thread)]
            print(f"| {size} | {kind} | {both[0]} | {size / direct[0] / 1e9:.2f} | {both[1]} |", flush=True)


if __name__ == "__main__":
    main()

"""How long it takes to compile a workload's whole step: cold (no kernel known), warm (all known), and one kernel.

    python benchmarks/compile_time.py [WORKLOAD ...] [--jobs N]

Cold starts from an empty object cache; warm is the same call again in a new cache object on the same folder.
The kernels' own times are taken one after the other in this process, after one that is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from common import parsed
from mlir_passes.ir_tools import new_context
from mlir_passes.lower_cpu import compile_kernel
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text, kernel_text
from mlir_passes.program import Program
from workloads.catalog import SHIPPED
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

SMOKE = "digits --jobs 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(SHIPPED))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parsed(parser, SMOKE)
    print(f"seconds, {arguments.jobs} processes; kernels in milliseconds: median and most, one process")
    print(f"{'workload':10s} {'calls':>6s} {'kernels':>8s} {'cold':>7s} {'warm':>7s} {'a kernel':>14s} {'most':>6s}")
    for name in arguments.workloads:
        prepared = prepare(name)
        with tempfile.TemporaryDirectory() as folder:
            cold_s, program = timed(prepared, Path(folder), arguments.jobs)
            warm_s, _ = timed(prepared, Path(folder), arguments.jobs)
        kernels_ms = alone(program)
        print(
            f"{name:10s} {len(program.plan.calls):6d} {len(program.kernels):8d} {cold_s:7.2f} {warm_s:7.2f}"
            f" {statistics.median(kernels_ms):14.0f} {max(kernels_ms):6.0f}",
            flush=True,
        )


def timed(prepared: PreparedWorkload, folder: Path, jobs: int) -> tuple[float, Program]:
    """Seconds from the frontend's text to a program, and the program."""
    signature = prepared.signature
    start = time.perf_counter()
    cache = ObjectCache(folder)
    text = prepared.step_text
    program = compile_text(text, "step", len(signature.state), len(signature.batch), cache, jobs=jobs)
    return time.perf_counter() - start, program


def alone(program: Program) -> list[float]:
    """Milliseconds of each kernel's compilation."""
    context, found = new_context(), []
    texts = [kernel_text(kernel) for kernel in program.kernels.values()]
    for text in (texts[0], *texts):
        start = time.perf_counter()
        compile_kernel(text, "timed", context)
        found.append((time.perf_counter() - start) * 1e3)
    return found[1:]


if __name__ == "__main__":
    main()

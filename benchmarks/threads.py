"""Steps a second with one thread and with two, in turn in one run: on free cores, and with a process that is always
busy, left to the system or held on one core.

    python benchmarks/threads.py [workload ...] [--threads 2] [--windows 30]

"mill" is a hand-made step whose kernels all split: what threads can give at best. A ratio is the median over pairs of
neighbouring windows, with the interquartile range. Bits are compared first. The line under a workload says how its
calls are split. The first line says how far apart the cores are: within one core complex of a CPU a cache line takes
some 50 ns, between two of them 200 to 300, and then steps that move much data between calls gain little.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from common import parsed
from fitness.cpu import CpuRunner
from fitness.loader import Loader
from fitness.spmd import cost, schedule
from mlir_passes import llvm
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program
from mlir_passes.program import Program
from workloads.cache import cache_folder
from workloads.prepare import prepare

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from spmd_toys import mill, mill_state  # after the path is set

MILL = "mill"
MILL_SIZE = 192, 256
WINDOW_S = 0.05  # many time slices of 3 to 4 ms, which is what a busy core hands out
HOG = "import os, sys\nif len(sys.argv) > 1: os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"

_TURNS = 100_000
_PING = """
define void @ping(ptr %word, i64 %first, i64 %end) {
entry:
  br label %wait
wait:
  %i = phi i64 [%first, %entry], [%i, %wait], [%i2, %turn]
  %v = load atomic i64, ptr %word acquire, align 8
  %mine = icmp eq i64 %v, %i
  br i1 %mine, label %turn, label %wait
turn:
  %i1 = add i64 %i, 1
  store atomic i64 %i1, ptr %word release, align 8
  %i2 = add i64 %i, 2
  %over = icmp uge i64 %i2, %end
  br i1 %over, label %exit, label %wait
exit:
  ret void
}
"""
SMOKE = "mill digits --windows 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=[MILL, "digits", "twofc", "lenet"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=30)
    arguments = parsed(parser, SMOKE)
    cores = sorted(os.sched_getaffinity(0))
    cases = {"free": None, "busy": "", **{f"busy core {core}": str(core) for core in cores[:2]}}
    if len(cores) > 1:
        print(f"cores {cores[0]} and {cores[1]}: {apart_s(cores[0], cores[1]) * 1e9:.0f} ns for a cache line")
    print(f"{'workload':10s} {'steps/s':>9s}" + "".join(f"{name:>22s}" for name in cases))
    for name in arguments.workloads:
        program, one, more = runners(name, arguments.threads)
        if not alike(one, more):
            sys.exit(f"{name}: {arguments.threads} threads give other bits than one")
        cells: list[str] = []
        rate = 0.0
        for where in cases.values():
            with hog(where):
                seconds = interleaved((one, more), arguments.windows)
            low, middle, high = np.percentile(seconds[0] / seconds[1], [25, 50, 75])
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            rate = rate or 1 / float(np.median(seconds[0]))
        print(f"{name:10s} {rate:9.0f}" + "".join(f"{cell:>22s}" for cell in cells), flush=True)
        print(f"  {split_text(program, arguments.threads)}", flush=True)


def runners(name: str, threads: int) -> tuple[Program, CpuRunner, CpuRunner]:
    """The step's program, loaded for one thread and for more, from the same state."""
    if name == MILL:
        program, state, batch = mill(*MILL_SIZE, layers=8, chain=40, scale=1.0), [mill_state(*MILL_SIZE)], []
    else:
        prepared = prepare(name)
        signature = prepared.signature
        sizes = len(signature.state), len(signature.batch)
        text = canonical_text(prepared.step_text, "step")
        program = compile_program(text, "step", *sizes, ObjectCache(cache_folder() / "objects"))
        state, batch = prepared.initial_state(0), next(prepared.batches(0, 1))
    made = CpuRunner(program), CpuRunner(program, threads=threads)
    for runner in made:
        runner.write_state(state)
        runner.write_batch(batch)
    return program, *made


def apart_s(one: int, other: int) -> float:
    """Seconds that a cache line takes from core to core: two threads write it in turn; the best of three."""
    loader = Loader()
    loader.add(llvm.object_from_ir(_PING), "ping")
    ping = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(loader.address("ping"))
    word = ctypes.create_string_buffer(128)
    address = -(-ctypes.addressof(word) // 64) * 64
    before, best = os.sched_getaffinity(0), float("inf")

    def answer() -> None:
        os.sched_setaffinity(0, {other})
        ping(address, 1, _TURNS)

    try:
        os.sched_setaffinity(0, {one})
        for _ in range(3):
            ctypes.memset(word, 0, len(word))
            thread = threading.Thread(target=answer)
            thread.start()
            time.sleep(0.02)  # the other core waits by now
            start = time.perf_counter()
            ping(address, 0, _TURNS)
            best = min(best, (time.perf_counter() - start) / _TURNS)
            thread.join()
    finally:
        os.sched_setaffinity(0, before)
    return best


def alike(one: CpuRunner, more: CpuRunner, steps: int = 20) -> bool:
    """Whether both end some steps with the same bits."""
    one.run(steps)
    more.run(steps)
    return one.outputs() == more.outputs()


def interleaved(made: Sequence[CpuRunner], windows: int) -> np.ndarray:
    """Seconds a step of each runner, window by window in turn, each from the state that the first has now."""
    counts: list[int] = []
    state = made[0].read_state()
    for runner in made:
        start = time.perf_counter()
        runner.run(3)
        counts.append(max(1, round(WINDOW_S / (time.perf_counter() - start) * 3)))
    seconds = np.empty((len(made), windows))
    for window in range(windows):
        for row, (runner, count) in enumerate(zip(made, counts, strict=True)):
            runner.write_state(state)
            start = time.perf_counter()
            for _ in range(count):
                runner.run()
            seconds[row, window] = (time.perf_counter() - start) / count
    return seconds


@contextmanager
def hog(where: str | None) -> Generator[None]:
    """A process that never rests: none, anywhere (""), or on one core."""
    if where is None:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", HOG, *([where] if where else [])])
    try:
        time.sleep(0.3)
        yield
    finally:
        process.kill()
        process.wait()


def split_text(program: Program, threads: int) -> str:
    """How a step is cut for `threads`, and the share of its flops and bytes that is split."""
    phases = schedule(program.plan, program.kernels, threads)
    calls = program.plan.calls
    whole = sum(cost(program.kernels[call.kernel]) for call in calls)
    seen = {part.call for phase in phases if len(phase) > 1 for task in phase for part in task.parts}
    shared = sum(cost(program.kernels[calls[i].kernel]) for i in seen)
    return (
        f"{len(calls)} calls, {len(phases)} phases, {100 * shared / max(whole, 1):.0f} % of the cost in shared phases"
    )


if __name__ == "__main__":
    main()

"""Steps in other types than f32: what they differ from JAX by, how fast they are, and what memory they take.

    python benchmarks/dtypes.py [plain images mixed brain half sorted] [--steps 30] [--smoke]

plain: f32 data, int32 labels, f32 throughout. images: uint8 images and int64 labels. mixed: f32 parameters, bf16
arithmetic. brain: parameters and momentum in bf16. half: in f16. sorted: as images, with top_k and sort. Each is
trained by gevo and by jax.jit with donated state, from the same state on the same batches. state off, loss off: the
largest difference after one step from gevo's state, over the largest number of that leaf. loss: gevo's and JAX's after
all steps, each on its own. JAX: how often gevo's time that is, more than 1 means that gevo is faster. --smoke: a tiny
network, and few windows.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from common import System, calls, fastest, interleaved, line, machine, ratio, settle
from fitness.cpu import Array, CpuRunner
from fitness.typed import typed
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import compile_text
from workloads.cache import cache_folder
from workloads.frontends.user_code import load_workload
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

FILE = Path(__file__).with_name("dtype_workloads.py")
NAMES = ("plain", "images", "mixed", "brain", "half", "sorted")
WIDTHS = (8, 12, 9, 9, 20, 12, 19)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=10.0, help="for the windows of a step, about")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    settle(1)
    print(f"{machine()}, one thread, {arguments.steps} steps")
    print(line(("step", "peak bytes", "state off", "loss off", "loss, gevo and JAX", "gevo, us", "JAX"), WIDTHS))
    for name in arguments.names:
        print(line(row(name, arguments.steps, arguments.seconds, arguments.smoke), WIDTHS), flush=True)


def row(name: str, steps: int, seconds: float, smoke: bool) -> tuple[str, ...]:
    """The line of a step."""
    full = f"small_{name}" if smoke else name
    prepared, workload = prepare(f"{FILE}:{full}"), load_workload(FILE, full)
    signature = prepared.signature
    sizes = len(signature.state), len(signature.batch)
    cache = ObjectCache(cache_folder() / "objects")
    runner = CpuRunner(typed(compile_text(prepared.step_text, "step", *sizes, cache), signature))
    theirs = Jax(workload, prepared)
    found = compared(runner, theirs, prepared, steps)
    batch = next(prepared.batches(0, 1))
    runner.write_batch(batch)
    state = prepared.initial_state(0)
    ours = System(calls(runner.run), reset=lambda: runner.write_state(state))
    windows = (1, 3) if smoke else (5, 20)
    times = interleaved({"gevo": ours, "jax": theirs.system(batch)}, *windows, seconds=seconds)
    middle, low, high = ratio(times["jax"], times["gevo"])
    return (
        name,
        f"{runner.plan.peak_bytes:,}",
        f"{found.state:.1e}",
        f"{found.loss:.1e}",
        f"{found.ours:.4f} {found.theirs:.4f}",
        f"{fastest(times['gevo']) * 1e6:.1f}",
        f"{middle:.2f} ({low:.2f}-{high:.2f})",
    )


class Jax:
    """The same training by jax.jit with donated state."""

    def __init__(self, workload: Any, prepared: PreparedWorkload) -> None:
        self.step = jax.jit(workload.step, donate_argnums=0)
        self.tree = jax.tree.structure(workload.init(0))
        self.initial = prepared.initial_state(0)

    def state(self, leaves: list[Array]) -> Any:
        return self.tree.unflatten([jax.numpy.array(leaf, copy=True) for leaf in leaves])

    def system(self, batch: Any) -> System:
        placed, held = tuple(map(jax.numpy.asarray, batch)), list[Any]([None])

        def reset() -> None:
            held[0] = jax.block_until_ready(self.state(self.initial))

        def one() -> None:
            held[0], metrics = self.step(held[0], placed)
            jax.block_until_ready((held[0], metrics))

        reset()
        return System(calls(one), reset=reset)


@dataclass
class Compared:
    """Largest differences of a step from the same state; the losses after all steps."""

    state: float = 0.0
    loss: float = 0.0
    ours: float = 0.0
    theirs: float = 0.0


def compared(runner: CpuRunner, theirs: Jax, prepared: PreparedWorkload, steps: int) -> Compared:
    found, apart = Compared(), theirs.state(theirs.initial)
    runner.write_state(theirs.initial)
    for batch in prepared.batches(0, steps):
        before = runner.read_state()
        runner.write_batch(batch)
        runner.run()
        state, metrics = theirs.step(theirs.state(before), batch)
        pairs = zip(runner.state, jax.tree.leaves(state), strict=True)
        found.state = max(found.state, *(difference(got, want) for got, want in pairs))
        found.loss = max(found.loss, difference(runner.metrics[0], jax.tree.leaves(metrics)[0]))
        apart, last = theirs.step(apart, batch)
        found.ours, found.theirs = float(runner.metrics[0]), float(jax.tree.leaves(last)[0])
    return found


def difference(ours: Array, theirs: Any) -> float:
    one, other = ours.astype(np.float64), np.asarray(theirs).astype(np.float64)
    if not np.isfinite(one).all():
        raise ValueError("a state or a loss is not finite")
    return float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30))


if __name__ == "__main__":
    main()

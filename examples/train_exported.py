"""Trains with an exported `digits` step, from NumPy alone: python examples/train_exported.py FOLDER"""

import sys

import gevo
from fitness.step import Step
from workloads.data import digits

step = gevo.load(sys.argv[1])
if not isinstance(step, Step):
    sys.exit(f"{sys.argv[1]}: expected the step of a training, got a prediction")
x, y = digits()["train"]
state, loss = step.initial_state(), float("nan")
for start in [s for _ in range(20) for s in range(0, len(x) - 31, 32)]:
    state, (loss,) = step(state, (x[start : start + 32], y[start : start + 32]))
print(f"{sys.argv[1]}: loss {loss:.3f} after 20 epochs, {step.peak_bytes / 1024:.0f} KiB of memory in all")

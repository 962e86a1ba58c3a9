"""What tuning the learning rate of two layers by hand gives, the plain remedy that an evolved step is compared with.

    python benchmarks/learning_rate.py [WORKLOAD] [--seeds 2,3,4,5,6] [--steps 250]

The training is done in NumPy, on the batches and from the initial states that gevo uses; the seeds are those of
`gevo confirm`. Mean accuracy over the seeds with its standard error.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the products are small

import numpy as np

from common import parsed
from workloads.prepare import prepare
from workloads.workload import PreparedWorkload

SMOKE = "digits --seeds 2,3 --steps 5"
LEAVES = ("w1", "b1", "w2", "b2")
RATES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="twofc", help="of two layers: twofc or digits")
    parser.add_argument("--seeds", default="2,3,4,5,6")
    parser.add_argument("--steps", type=int, default=250)
    arguments = parsed(parser, SMOKE)
    prepared, seeds = prepare(arguments.workload), [int(s) for s in arguments.seeds.split(",")]
    print(f"rate   validation       test             {arguments.steps} steps, seeds {arguments.seeds}")
    for rate in RATES:
        found = np.array([accuracies(prepared, rate, seed, arguments.steps) for seed in seeds])
        error = found.std(0, ddof=1) / len(seeds) ** 0.5
        cells = [f"{mean:.4f}+-{e:.4f}" for mean, e in zip(found.mean(0), error, strict=True)]
        print(f"{rate:<6} {'   '.join(cells)}", flush=True)


def accuracies(prepared: PreparedWorkload, rate: float, seed: int, steps: int) -> tuple[float, float]:
    """Share of right rows of the validation and the test split after a training by SGD."""
    names = [leaf.name.removeprefix("params.") for leaf in prepared.signature.state]
    p = {name: leaf for name, leaf in zip(names, prepared.initial_state(seed), strict=True) if name in LEAVES}
    for x, y in prepared.batches(seed, steps):
        hidden = np.maximum(x @ p["w1"] + p["b1"], 0)
        scores = hidden @ p["w2"] + p["b2"]
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        shares[np.arange(len(y)), y] -= 1
        shares /= len(y)
        back = shares @ p["w2"].T * (hidden > 0)
        gradient = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ shares, "b2": shares.sum(0)}
        p = {name: value - np.float32(rate) * gradient[name] for name, value in p.items()}
    return right(prepared, p, "validation"), right(prepared, p, "test")


def right(prepared: PreparedWorkload, p: dict[str, np.ndarray], split: str) -> float:
    x, y = prepared.split(split)
    scores = np.maximum(x @ p["w1"] + p["b1"], 0) @ p["w2"] + p["b2"]
    return float((scores.argmax(1) == y).mean())


if __name__ == "__main__":
    main()

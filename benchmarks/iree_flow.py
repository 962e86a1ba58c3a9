"""The child of `vs_iree.py`: compiles whole steps with IREE and runs them. Jobs and answers are JSON lines.

    python benchmarks/iree_flow.py FOLDER    # with s0.npy, s1.npy, ... of the state and b0.npy, ... of stacked batches

A process of its own, because IREE's bindings and MLIR's do not load into one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import iree.compiler  # pyright: ignore[reportMissingImports]
import iree.runtime  # pyright: ignore[reportMissingImports]
import numpy as np

FLAGS = ["--iree-llvmcpu-target-cpu=host"]


def main(folder: Path) -> None:
    config = iree.runtime.Config("local-sync")
    arrays = {kind: [np.load(path) for path in sorted(folder.glob(f"{kind}*.npy"))] for kind in "sb"}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = evaluated(job, config, arrays["s"], arrays["b"])
        except Exception as error:  # a variant that IREE refuses is an answer
            answer = {"error": str(error)[:400]}
        print(json.dumps(answer), flush=True)


def evaluated(job: dict[str, Any], config: Any, state: list[np.ndarray], batches: list[np.ndarray]) -> dict[str, Any]:
    """Seconds to compile the job's text, to run `steps` on one batch, and `train` on as many batches."""
    start = time.perf_counter()
    code = iree.compiler.compile_str(job["text"], input_type="none", target_backends=["llvm-cpu"], extra_args=FLAGS)
    module = iree.runtime.load_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, code), config)
    compiled = time.perf_counter()
    leaves = [iree.runtime.asdevicearray(config.device, leaf) for leaf in state]
    batch = [iree.runtime.asdevicearray(config.device, b[0]) for b in batches]
    for _ in range(job["steps"]):
        leaves = module.step(*leaves, *batch)[: len(state)]
    leaves[0].to_host()
    ran = time.perf_counter()
    leaves = [iree.runtime.asdevicearray(config.device, leaf) for leaf in state]
    for i in range(job["train"]):
        leaves = module.step(*leaves, *(b[i] for b in batches))[: len(state)]
    [leaf.to_host() for leaf in leaves]
    times = (compiled - start, ran - compiled, time.perf_counter() - ran)
    return dict(zip(("compile_s", "run_s", "train_s"), times, strict=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

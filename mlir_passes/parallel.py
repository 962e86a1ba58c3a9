"""Kernels compiled by several processes into the object cache on disk.

Processes and not threads: MLIR holds Python's lock, and a kernel that makes MLIR abort must not take the caller along.
Processes of their own and not forks: the caller may have threads (JAX has).

    python -m mlir_passes.parallel FOLDER    # kernels as JSON on standard input
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlir_passes.errors import CompileError
from mlir_passes.graph import KernelText
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.choice import Choice
from mlir_passes.lower_cpu import compile_kernel
from mlir_passes.objects import ObjectCache

_WORTH = 12  # kernels that pay for starting a process, 0.3 s


def compile_missing(wanted: Mapping[str, tuple[KernelText, Choice]], folder: Path, jobs: int) -> None:
    """Have the kernels that the cache under `folder` lacks compiled by up to `jobs` processes.

    What cannot be compiled is left out: whoever asks for it will meet the error himself.
    """
    cache = ObjectCache(folder)
    missing = [(key, *found) for key, found in wanted.items() if cache.get(key) is None]
    jobs = min(jobs, len(missing) // _WORTH)
    if jobs < 2:
        return
    missing.sort(key=lambda one: -len(one[1].text))  # long texts take long: dealt out in turn
    running = [_start([_message(*one) for one in missing[number::jobs]], folder) for number in range(jobs)]
    for process in running:
        process.wait()


def _message(key: str, kernel: KernelText, choice: Choice) -> dict[str, Any]:
    return {"key": key, "kernel": asdict(kernel), "choice": choice.to_json()}


def _start(messages: list[dict[str, Any]], folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mlir_passes.parallel", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(json.dumps(messages).encode())
    process.stdin.close()
    return process


def main(folder: Path) -> None:
    cache, context = ObjectCache(folder), new_context()
    for message in json.loads(sys.stdin.buffer.read()):
        kernel = KernelText(**message["kernel"])
        try:
            cache.put(
                message["key"], compile_kernel(kernel, message["key"], context, Choice.from_json(message["choice"]))
            )
        except CompileError:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]))

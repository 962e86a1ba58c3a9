"""Work on IR in a process of its own: MLIR may abort on IR it does not expect, and must not take a search along.

`python -m gevo.ir_child TASK JSON` runs one task of the table and prints its failure, if any, as the last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gevo.errors import BaseFails, CampaignError, Unsupported, Unwritable


def in_child(task: str, **arguments: Any) -> None:
    """Run `task` in a child; raises Unsupported, BaseFails or Unwritable with what went wrong there."""
    root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *([inherited] if inherited else [])])}
    command = [sys.executable, "-m", "gevo.ir_child", task, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = done.stdout.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        failure = json.loads(lines[-1])
        raise {"unsupported": Unsupported, "base": BaseFails, "store": Unwritable}[failure["kind"]](failure["what"])
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    raise Unsupported(f"the compiler's process died with code {done.returncode}: {last}", task)


def make_base(prepared: str, folder: str) -> None:
    """base.mlir and space.json of a prepared workload, into `folder`."""
    from mlir_passes.canonical import write_base
    from workloads.workload import PreparedWorkload

    workload = PreparedWorkload.load(Path(prepared))
    signature = workload.signature
    names = [s.name for s in signature.state]
    write_base(workload.lined_text, len(names), names, Path(folder), signature.storage, signature.entry)


def export(
    prepared: str,
    base: str,
    cache: str,
    genome: Mapping[str, Any],
    extra: Mapping[str, Any],
    to: str,
    tuning: str = "",
    threads: int = 1,
) -> None:
    """The program of a variant, into the folder `to`."""
    from fitness.choices import load_choices
    from fitness.program import save_program
    from gevo.genome import Genome
    from gevo.variant import compiled
    from mlir_passes.objects import ObjectCache
    from workloads.workload import PreparedWorkload

    workload = PreparedWorkload.load(Path(prepared))
    signature = workload.signature
    made, choices = Genome.from_json(genome), load_choices(tuning, threads)
    variant, program = compiled(Path(base).read_text(), made, signature, ObjectCache(Path(cache)), choices)
    facts = {**extra, "signature": signature.to_json(), "fingerprint": variant.fingerprint}
    initial = workload.folder / f"init_{signature.quality.seeds[0]}.npz"
    files = {"step.mlir": variant.text.encode(), "initial_state.npz": initial.read_bytes()}
    save_program(Path(to), program, facts, files)


def describe_kernels(prepared: str, base: str, cache: str, tuning: str, time: bool, to: str) -> None:
    """The kernels of a base step (`gevo.kernels.StepKernels`), with measured times if `time`, as JSON into `to`."""
    from dataclasses import asdict, replace

    from fitness.choices import load_choices
    from fitness.typed import typed
    from gevo.kernels import collect
    from mlir_passes.describe import describe
    from mlir_passes.ir_tools import new_context
    from mlir_passes.kernels.choice import DEFAULT
    from mlir_passes.lower_cpu import kernel_hash
    from mlir_passes.objects import ObjectCache
    from mlir_passes.pipeline import compile_program, kernel_text, usable
    from workloads.workload import PreparedWorkload

    workload = PreparedWorkload.load(Path(prepared))
    signature = workload.signature
    sizes = len(signature.state), len(signature.batch)
    choices = load_choices(tuning)
    text, objects = Path(base).read_text(), ObjectCache(Path(cache))
    program = typed(compile_program(text, signature.entry, *sizes, objects, choices=choices), signature)
    context, words = new_context(), dict[str, dict[str, Any]]()
    for key, kernel in program.kernels.items():
        choice = usable(choices.get(kernel_hash(kernel_text(kernel)), DEFAULT))
        words[key] = {**asdict(describe(kernel_text(kernel), choice, context)), "tuned": choice != DEFAULT}
    found = collect(program, signature, words)
    if time:
        from fitness.call_times import call_times

        seed = signature.quality.seeds[0]
        timed = call_times(program, workload.initial_state(seed), list(workload.batches(seed, 8)))
        found = replace(collect(program, signature, words, timed.calls), step_s=timed.step, method=timed.method)
    Path(to).write_text(json.dumps(found.to_json()))


def write_schedules(**arguments: Any) -> None:
    """See `gevo.schedule_seeds`, which imports MLIR and solvers."""
    from gevo import schedule_seeds

    schedule_seeds.write_schedules(**arguments)


def explain_ir(**arguments: Any) -> None:
    """See `gevo.explain.ir`, which imports MLIR."""
    from gevo.explain import ir

    ir.explain_ir(**arguments)


def draw_schedule(**arguments: Any) -> None:
    """See `gevo.schedule_drawn`, which imports MLIR."""
    from gevo import schedule_drawn

    schedule_drawn.draw_schedule(**arguments)


TASKS: dict[str, Callable[..., None]] = {
    "make_base": make_base,
    "export": export,
    "describe_kernels": describe_kernels,
    "explain_ir": explain_ir,
    "write_schedules": write_schedules,
    "draw_schedule": draw_schedule,
}


def _main(task: str, arguments: str) -> int:
    from fitness.errors import FitnessError, StoreError
    from mlir_passes.errors import PassError

    try:
        TASKS[task](**json.loads(arguments))
    except PassError as error:
        print(json.dumps({"kind": "unsupported", "what": str(error)}))
        return 1
    except StoreError as error:
        print(json.dumps({"kind": "store", "what": str(error)}))
        return 1
    except (FitnessError, CampaignError) as error:
        print(json.dumps({"kind": "base", "what": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))

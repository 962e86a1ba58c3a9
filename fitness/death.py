"""What the death of an evaluating child means."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass

from fitness.job import Limits
from fitness.result import Failure, Outcome
from fitness.stages import COMPILE_STAGES

_FULL = 0.75  # share of the memory limit that was resident when a signal came: then memory was the cause
_NO_MEMORY = ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory")


@dataclass(frozen=True)
class Death:
    """How a child ended without a result.

    how: "exit" (number: code), "signal" (number: signal), or "deadline" (killed by its worker).
    grown_bytes: peak resident memory over that at the fork. stderr: the end of what it wrote there.
    """

    how: str
    number: int = 0
    grown_bytes: int = 0
    cpu_s: float = 0.0
    stderr: str = ""


def cause(death: Death, stage: str, limits: Limits) -> Failure:
    """Outcome and detail of a child that died in `stage`."""
    compiling = stage in COMPILE_STAGES
    own = Outcome.COMPILE_FAILED if compiling else Outcome.CRASHED
    said = f": {death.stderr}" if death.stderr else ""
    if death.how == "deadline":
        return Failure(Outcome.TIMED_OUT, f"over the wall limit of {limits.wall_s:g} s{said}")
    if any(text in death.stderr for text in _NO_MEMORY):
        return Failure(Outcome.OUT_OF_MEMORY, f"an allocation failed at the limit of {limits.memory_bytes} bytes{said}")
    if death.how == "exit":
        return Failure(own, f"exit code {death.number} without a result{said}")
    if death.number == signal.SIGXCPU or (death.number == signal.SIGKILL and death.cpu_s >= math.ceil(limits.cpu_s)):
        return Failure(Outcome.TIMED_OUT, f"over the CPU limit of {limits.cpu_s:g} s{said}")
    if death.number == signal.SIGKILL:
        return Failure(Outcome.OUT_OF_MEMORY, f"killed by the system, most likely for memory{said}")
    if death.grown_bytes >= _FULL * limits.memory_bytes:
        return Failure(
            Outcome.OUT_OF_MEMORY, f"{signal_name(death.number)} with {death.grown_bytes} bytes in use{said}"
        )
    return Failure(own, f"{signal_name(death.number)}{said}")


def signal_name(number: int) -> str:
    """SIGSEGV for 11, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

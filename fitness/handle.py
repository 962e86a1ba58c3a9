"""A worker process as its pool sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fitness.death import signal_name
from fitness.job import Context
from fitness.lines import Lines, write_line
from fitness.worker import STDERR_CHARS, kill_group

START_S = 120.0
GRACE_S = 10.0
_REAP_S = 0.2  # from the end of its pipe to the end of the process
_ROOT = Path(__file__).parents[1]
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Handle:
    """One worker and the job it is at. `job` is None while it is idle or starting."""

    def __init__(self, context: Context, evaluator: str) -> None:
        self._log = TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fitness.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(),
            start_new_session=True,  # Ctrl-C reaches the pool only; the pool kills
        )
        assert self._process.stdin and self._process.stdout
        self._in, self.out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._lines = Lines(self.out)
        self._wall_s = context.limits.wall_s
        self.ready = False
        self.child = 0
        self.number = -1
        self.job: int | None = None
        self.stage = ""
        self.stage_s: dict[str, float] = {}
        self.fingerprint = ""
        self.reported = False
        self._entered = 0.0
        self.deadline = time.monotonic() + START_S
        self.send({"context": context.to_json(), "evaluator": evaluator})

    @property
    def idle(self) -> bool:
        return self.ready and self.job is None

    def give(self, number: int, index: int, genome: Any) -> None:
        """Send a job; `number` is unique, so that late words about another are told apart."""
        self.number, self.job, self.child = number, index, 0
        self.stage, self.stage_s, self._entered = "", {}, time.monotonic()
        self.fingerprint, self.reported = "", False
        self.deadline = time.monotonic() + self._wall_s + GRACE_S
        self.send({"job": number, "index": index, "genome": genome})

    def enter(self, stage: str) -> None:
        """Note that the child begins a stage."""
        now = time.monotonic()
        if self.stage:
            self.stage_s[self.stage] = self.stage_s.get(self.stage, 0.0) + now - self._entered
        self.stage, self._entered = stage, now

    def free(self, ready: bool = False) -> None:
        """Note that the worker is idle; `ready`: that it has started."""
        self.ready = self.ready or ready
        self.job, self.child = None, 0
        self.deadline = float("inf")

    def send(self, message: dict[str, Any]) -> None:
        """Write a message; a worker that is gone shows at the next `read`."""
        try:
            write_line(self._in, message)
        except OSError:
            return

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that are there, for this job; None if the worker is gone."""
        messages = self._lines.read()
        if messages is None:
            return None
        return [m for m in messages if m.get("job", self.number) == self.number]

    def hit(self) -> None:
        """Kill the worker and its child; does not wait."""
        for pid in (self.child, self._process.pid):
            if pid:
                kill_group(pid)

    def kill(self) -> str:
        """Kill the worker and its child and wait; returns how it was found and the end of what it printed."""
        found = self._found()
        self.hit()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        with self._log as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - STDERR_CHARS))
            said = log.read().decode(errors="replace").strip()
        return f"{found}: {said}" if said else found

    def _found(self) -> str:
        try:
            code = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            return "it hangs"
        return f"exit code {code}" if code >= 0 else signal_name(-code)


def _environment() -> dict[str, str]:
    """This environment with one thread a library, and this checkout or installation first on the path."""
    path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": path}

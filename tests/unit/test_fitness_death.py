"""What the death of a child means, and the line protocol under torn lines."""

from __future__ import annotations

import os
import signal

import pytest

from fitness.death import Death, cause
from fitness.job import Limits
from fitness.lines import Lines, write_line
from fitness.result import Outcome

LIMITS = Limits(wall_s=2, cpu_s=1.5, memory_bytes=1000)


@pytest.mark.parametrize(
    ("death", "stage", "outcome"),
    [
        (Death("deadline", signal.SIGKILL), "compile", Outcome.TIMED_OUT),
        (Death("signal", signal.SIGXCPU), "edit", Outcome.TIMED_OUT),
        (Death("signal", signal.SIGKILL, cpu_s=2.1), "check", Outcome.TIMED_OUT),
        (Death("signal", signal.SIGKILL, cpu_s=0.1), "check", Outcome.OUT_OF_MEMORY),
        (Death("signal", signal.SIGABRT, stderr="std::bad_alloc"), "compile", Outcome.OUT_OF_MEMORY),
        (Death("signal", signal.SIGABRT, stderr="LLVM ERROR: out of memory"), "compile", Outcome.OUT_OF_MEMORY),
        (Death("signal", signal.SIGSEGV, grown_bytes=750), "compile", Outcome.OUT_OF_MEMORY),
        (Death("signal", signal.SIGSEGV, grown_bytes=749), "compile", Outcome.COMPILE_FAILED),
        (Death("signal", signal.SIGABRT), "edit", Outcome.COMPILE_FAILED),
        (Death("signal", signal.SIGSEGV), "plan", Outcome.COMPILE_FAILED),
        (Death("signal", signal.SIGSEGV), "load", Outcome.CRASHED),
        (Death("signal", signal.SIGFPE), "quality", Outcome.CRASHED),
        (Death("signal", 64), "quality", Outcome.CRASHED),
        (Death("exit", 0), "quality", Outcome.CRASHED),
        (Death("exit", 1), "verify", Outcome.COMPILE_FAILED),
        (Death("exit", 70), "", Outcome.CRASHED),
    ],
)
def test_each_death_has_its_outcome(death: Death, stage: str, outcome: Outcome):
    assert cause(death, stage, LIMITS).outcome is outcome


def test_detail_has_the_signal_and_what_was_printed():
    failure = cause(Death("signal", signal.SIGABRT, stderr="Assertion `x' failed."), "compile", LIMITS)
    assert failure.detail == "SIGABRT: Assertion `x' failed."


def test_torn_and_foreign_lines_are_skipped():
    out, into = os.pipe()
    lines = Lines(out)
    os.write(into, b'{"event": "resu')
    write_line(into, {"event": "ended"})
    os.write(into, b"12\nnull\n\xff\xfe\nplain text\n")
    write_line(into, {"event": "ready"})
    os.write(into, b'{"late')
    assert lines.read() == [{"event": "ended"}, {"event": "ready"}]
    os.write(into, b'r": 1}\n')
    os.close(into)
    assert lines.read() == [{"later": 1}]
    assert lines.read() is None
    os.close(out)

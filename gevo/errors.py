"""The exceptions of this package and the exit codes of the command line.

| code | class or case |
| --- | --- |
| 0 | done |
| 1 | a bug in gevo: the traceback is shown with `--debug` |
| 2 | wrong options or arguments |
| 3 | the workload is unknown or cannot be traced or fed |
| 4 | the step holds an op, or needs a compilation, that is not supported |
| 5 | a folder cannot be written |
| 6 | another process writes to this run |
| 7 | the files of a run are damaged, or do not belong together |
| 8 | data of a workload are missing |
| 9 | a Python package that this needs is not installed |
| 10 | unknown run, or no such record in it |
| 11 | the base step itself does not run or cannot be measured |
| 12 | a run of that name exists already |
| 130 | stopped by Ctrl-C; the run can be resumed |
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

INTERRUPTED = 130


class CampaignError(Exception):
    """What is wrong, where, and what to do; `code` is the exit code of the command line."""

    code: ClassVar[int] = 2

    def __init__(self, what: str, where: str | Path = "", todo: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what, self.where, self.todo = what, str(where), todo


class Unsupported(CampaignError):
    code = 4


class Unwritable(CampaignError):
    code = 5


class RunLocked(CampaignError):
    code = 6


class RunDamaged(CampaignError):
    code = 7


class ExtraMissing(CampaignError):
    code = 9


class NotFound(CampaignError):
    code = 10


class BaseFails(CampaignError):
    code = 11


class RunExists(CampaignError):
    code = 12

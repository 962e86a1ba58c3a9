"""An exception as the command line tells it: one message and its exit code, by the table in `errors`."""

from __future__ import annotations

import errno

import typer

from fitness.errors import FitnessError, StoreError
from gevo.errors import INTERRUPTED, BaseFails, CampaignError, ExtraMissing, Unsupported, Unwritable
from mlir_passes.errors import PassError
from workloads.errors import Kind, WorkloadError

BUG = 1
WORKLOAD_CODES = {
    Kind.WORKLOAD: 3,
    Kind.OP: Unsupported.code,
    Kind.DATA: 8,
    Kind.PACKAGE: ExtraMissing.code,
    Kind.CACHE: Unwritable.code,
}
CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
USAGE_ERROR = typer.BadParameter.__base__  # click's, which newer versions of typer bring along privately


def explained(error: BaseException) -> tuple[int, str]:
    """Exit code and message of what ended a command."""
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED, "Stopped"
    if isinstance(error, CampaignError):
        return error.code, _message(error.what, error.where, error.todo)
    if isinstance(error, WorkloadError):
        return WORKLOAD_CODES[error.kind], _message(error.what, error.where, error.todo)
    if isinstance(error, StoreError):
        return Unwritable.code, str(error)
    if isinstance(error, FitnessError):
        return BaseFails.code, str(error)
    if isinstance(error, PassError):
        return Unsupported.code, str(error)
    if isinstance(error, BrokenPipeError):
        return BUG, "whoever read the output went away"
    if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
        where = error.filename or "disk"
        return Unwritable.code, f"{where}: {error.strerror}. Give a folder that has room and that you may write to"
    if isinstance(error, USAGE_ERROR):  # type: ignore[arg-type]
        return CampaignError.code, f"{error.format_message().rstrip('. ')}. See --help"  # type: ignore[attr-defined]
    return BUG, f"A bug in gevo: {type(error).__name__}: {error}. Run again with `gevo --debug ...` for the traceback"


def _message(what: str, where: str, todo: str) -> str:
    text = f"{where}: {what}" if where else what
    return f"{text}. {todo}" if todo else text

"""The exceptions of this package: where, what, and what to do; each names the stage that raised it."""


class PassError(Exception):
    """IR that a stage cannot take; `stage` is its name in `pipeline.STAGES`."""

    def __init__(self, stage: str, what: str, todo: str = "") -> None:
        super().__init__(f"{stage}: {what}" + (f". {todo}" if todo else ""))
        self.stage, self.what, self.todo = stage, what, todo


class UnsupportedOp(PassError):
    """The step holds an op that is outside the dialects of the base module."""


class EditDoesNotApply(PassError):
    """An edit of the genome names a site that the variant does not have, or breaks dominance or types."""


class CompileError(PassError):
    """A kernel that MLIR or LLVM could not lower."""

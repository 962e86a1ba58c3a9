"""The one exception of this package: it says what is wrong, where, and what to do."""

from enum import StrEnum


class Kind(StrEnum):
    """What a user must mend: the workload, an op in it, or what it needs on this machine."""

    WORKLOAD = "workload"
    OP = "op"
    PACKAGE = "package"
    DATA = "data"
    CACHE = "cache"


class WorkloadError(Exception):
    """A workload that cannot be found, traced or fed; `str()` is the whole message for the user."""

    def __init__(self, what: str, where: str, todo: str, kind: str = Kind.WORKLOAD) -> None:
        super().__init__(f"{where}: {what}. {todo}")
        self.what, self.where, self.todo, self.kind = what, where, todo, Kind(kind)

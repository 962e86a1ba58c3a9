"""The one exception of this package: it says what is wrong, where, and what to do."""


class WorkloadError(Exception):
    """A workload that cannot be found, traced or fed; `str()` is the whole message for the user."""

    def __init__(self, what: str, where: str, todo: str) -> None:
        super().__init__(f"{where}: {what}. {todo}")
        self.what, self.where, self.todo = what, where, todo

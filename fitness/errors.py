"""The exceptions of this package: what is wrong, where, what to do. A failed candidate is not one: it is a Result."""


class FitnessError(Exception):
    """What stops a campaign or a load: the base does not run, a program folder is damaged, a profile is unknown."""

    def __init__(self, what: str, where: str = "", todo: str = "") -> None:
        super().__init__(what + (f" ({where})" if where else "") + (f". {todo}" if todo else ""))
        self.what, self.where, self.todo = what, where, todo


class StoreError(FitnessError):
    """A folder that values are paged to is missing, full, or fails."""

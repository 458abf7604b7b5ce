"""How a port says no."""

from typing import ClassVar

from pyoco_server.errors import PyocoServerError


class UnavailableError(PyocoServerError):
    """The outside did not answer in time, or cannot be reached.

    What was asked may have been done all the same: an error of the network is an unknown outcome, never a failure.
    """

    err_id: ClassVar[str | None] = "ERR-PYOCO-0003"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0003"


class NotStoredError(UnavailableError):
    """The outside could not be asked, or answered that it stored nothing: here the outcome is known."""


class LogConflictError(PyocoServerError):
    """Somebody else appended first; nothing was written."""

    def __init__(self, execution_id: str, after: int) -> None:
        super().__init__(f"the log of '{execution_id}' has moved on from position {after}")
        self.execution_id = execution_id
        self.after = after


class TooLargeError(PyocoServerError, ValueError):
    """What was to be stored is larger than the store takes; nothing was written."""

"""Errors of the ports: what is known, and what is not, about a call that failed."""

from typing import ClassVar

from pyoco_server.errors import PyocoServerError


class UnavailableError(PyocoServerError):
    """The store did not answer in time, or cannot be reached.

    It may have done what it was asked to do: an error of the network is an unknown outcome, never a failure.
    """

    err_id: ClassVar[str | None] = "ERR-PYOCO-0003"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0003"


class NotStoredError(UnavailableError):
    """The store could not be asked, or answered that it stored nothing: here the outcome is known."""


class LogConflictError(PyocoServerError):
    """Another process appended first; nothing was written."""

    def __init__(self, execution_id: str, after: int) -> None:
        super().__init__(f"the log of '{execution_id}' has moved on from position {after}")
        self.execution_id = execution_id
        self.after = after


class TooLargeError(PyocoServerError, ValueError):
    """The message is larger than the store accepts; nothing was written."""

"""The errors of a client: an error answer, no answer, a wait that took too long."""

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import PyocoServerError


class ApiError(PyocoServerError):
    """The gateway answered with an error; programs use ``status``, ``err_id`` and ``details``."""

    err_id: str | None  # type: ignore[misc]  # the gateway says which
    msg_id: str | None  # type: ignore[misc]

    def __init__(
        self,
        status: int,
        err_id: str | None = None,
        msg_id: str | None = None,
        message: str = "",
        action: str | None = None,
        details: Mapping[str, Any] | None = None,
        detail: object = None,
    ) -> None:
        super().__init__(status, err_id, msg_id, message, action, details, detail)
        self.status = status
        self.err_id = err_id
        self.msg_id = msg_id
        self.message = message
        self.action = action
        self.details = dict(details or {})
        self.detail = detail
        """What the gateway reports about this case: a text, or the list of problems of the request."""

    @override
    def __str__(self) -> str:
        text = f"{self.message}: {self.said}" if self.said else self.message
        return f"HTTP {self.status}: {text}"

    @property
    def said(self) -> str:
        """The detail as one text; empty if it only repeats the message."""
        if isinstance(self.detail, list):
            return "; ".join(_problem(found) for found in self.detail)
        return "" if self.detail is None or self.detail == self.message else str(self.detail)


class UnexpectedAnswerError(ApiError):
    """The answer is not one of a gateway: another server sent it, or a proxy."""


class GatewayUnreachableError(PyocoServerError):
    """There was no answer."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0001"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0001"

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        """The request may have arrived and may have been carried out."""


class WaitTimeoutError(PyocoServerError, TimeoutError):
    """The run had not ended when the time was up; it continues. ``snapshot`` is its newest one, if it was read."""

    def __init__(self, message: str, snapshot: JsonObject | None = None) -> None:
        super().__init__(message)
        self.snapshot = snapshot


def _problem(found: object) -> str:
    """Format one problem of a validation, in the form of FastAPI."""
    if not isinstance(found, Mapping):
        return str(found)
    where = ".".join(str(part) for part in found.get("loc") or () if part not in {"body", "query", "header", "path"})
    return f"{where}: {found.get('msg')}" if where else str(found.get("msg"))

"""What can go wrong between a client and a gateway."""

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError


class ApiError(PyocoServerError):
    """The gateway answered, and the answer is an error; programs look at ``status``, ``err_id`` and ``details``."""

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
        """What the gateway says of this very case: a text, or a list of what is wrong with the request."""

    @override
    def __str__(self) -> str:
        said = f"{self.message}: {self.said}" if self.said else self.message
        return f"HTTP {self.status}: {said}"

    @property
    def said(self) -> str:
        """The detail as one text; empty if it only repeats the message."""
        if isinstance(self.detail, list):
            return "; ".join(_problem(found) for found in self.detail)
        return "" if self.detail is None or self.detail == self.message else str(self.detail)


class UnexpectedAnswerError(ApiError):
    """Whatever answered does not speak as a gateway does: another server, or something in between."""


class GatewayUnreachableError(PyocoServerError):
    """There was no answer."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0001"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0001"

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        """The request may have arrived: what it asks for may have been done."""


class WaitTimeoutError(PyocoServerError, TimeoutError):
    """The run had not ended when the time was up; it goes on. ``snapshot`` is how it stood, if that is known."""

    def __init__(self, message: str, snapshot: JsonObject | None = None) -> None:
        super().__init__(message)
        self.snapshot = snapshot


def _problem(found: object) -> str:
    """One finding of a validation, as FastAPI words them."""
    if not isinstance(found, Mapping):
        return str(found)
    where = ".".join(str(part) for part in found.get("loc") or () if part not in {"body", "query", "header", "path"})
    return f"{where}: {found.get('msg')}" if where else str(found.get("msg"))

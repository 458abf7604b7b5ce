"""Errors of API keys: missing, refused, without the scope, not found."""

from typing import Any, ClassVar

from pyoco_server.errors import PyocoServerError


class ApiKeyRequiredError(PyocoServerError):
    """The request came without an API key."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0014"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0014"


class ApiKeyRefusedError(PyocoServerError):
    """The API key is not valid: unknown, wrong, revoked or expired."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0015"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0015"


class ScopeMissingError(PyocoServerError):
    """The API key is valid, but lacks the scope."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0107"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0107"

    def __init__(self, missing: str, scopes: tuple[str, ...]) -> None:
        super().__init__(f"this needs the scope '{missing}'; the key has {', '.join(scopes) or 'none'}")
        self.details: dict[str, Any] = {"missing_scope": missing, "scopes": list(scopes)}


class KeyNotFoundError(PyocoServerError):
    """There is no such key."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0104"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0104"

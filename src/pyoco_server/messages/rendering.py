"""The one JSON form of an error for programs."""

from collections.abc import Mapping
from typing import Any

from pyoco_server.errors import PyocoServerError
from pyoco_server.messages.catalogue import CatalogueEntry, entry_of
from pyoco_server.messages.language import Language


def error_body(
    entry: CatalogueEntry,
    language: Language,
    *,
    details: Mapping[str, Any] | None = None,
    detail: object = None,
) -> dict[str, Any]:
    """Return an error of the catalogue as JSON data.

    ``details`` are facts a program can use; ``detail`` is what FastAPI's clients look for (a text, or a list of what is
    wrong with the request), by default the message.
    """
    return _body(entry.err_id, entry.msg_id, entry.message(language), entry.action(language), details, detail)


def body_of(
    error: PyocoServerError,
    language: Language,
    *,
    details: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an exception as JSON data; its own text is the ``detail``.

    One that is not in the catalogue (a refused command, say) has no ids and no action, and its own text is the message.
    """
    entry = entry_of(error)
    if entry is None:
        return _body(None, None, str(error), None, details, None)
    return error_body(entry, language, details=details, detail=str(error) or None)


def _body(
    err_id: str | None,
    msg_id: str | None,
    message: str,
    action: str | None,
    details: Mapping[str, Any] | None,
    detail: object,
) -> dict[str, Any]:
    error = {"err_id": err_id, "msg_id": msg_id, "message": message, "action": action, "details": dict(details or {})}
    return {"error": error, "detail": message if detail is None else detail}

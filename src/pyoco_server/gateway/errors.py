"""Errors as HTTP answers: one shape, the reader's language, the ids of the catalogue."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from pyoco_server.app.ports import TooLargeError, UnavailableError
from pyoco_server.core import CommandRejected, RejectionCode
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.logs import log_error
from pyoco_server.messages import CATALOGUE, Language, body_of, entry_of, error_body, negotiate

_log = logging.getLogger(__name__)
_UNKNOWN = frozenset({RejectionCode.NODE_NOT_FOUND, RejectionCode.EXECUTION_NOT_FOUND})


class ListQueryError(InvalidInputError):
    """The query of a list of runs is not valid."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0017"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0017"


class WorkersRequestError(InvalidInputError):
    """The request about workers is not valid."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0019"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0019"


class WorkerNotFoundError(PyocoServerError):
    """There is no such worker."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0020"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0020"


class YamlTooLargeError(PyocoServerError):
    """The flow.yaml is larger than is accepted."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0016"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0016"


class BodyTooLargeError(PyocoServerError):
    """The request is larger than is accepted."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0101"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0101"


class TooManyError(PyocoServerError):
    """There is a limit, and it is reached."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0102"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0102"


class NotFoundError(PyocoServerError):
    """There is nothing here by that name."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0104"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0104"


class ConflictError(PyocoServerError):
    """What was asked for does not go together with what is there."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


def language_of(request: Request) -> Language:
    """The language the reader prefers."""
    return negotiate(request.headers.get("accept-language"))


def install(app: FastAPI) -> None:
    """Answer every error in the one shape."""
    app.add_exception_handler(PyocoServerError, _ours)
    app.add_exception_handler(CommandRejected, _rejected)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))


def answer_to(scope: Scope, error: PyocoServerError) -> JSONResponse:
    """The answer to a request that ends in this error."""
    language = negotiate(Headers(scope=scope).get("accept-language"))
    if isinstance(error, TooLargeError):
        error = BodyTooLargeError(str(error))
    entry = entry_of(error)
    status = entry.http_status if entry is not None and entry.http_status is not None else 500
    if status >= 500:
        level = logging.WARNING if isinstance(error, UnavailableError) else logging.ERROR
        log_error(_log, error.err_id or "ERR-PYOCO-0106", action="request_failed", exc=error, level=level)
    details = getattr(error, "details", None)
    headers = {"Retry-After": "1"} if status in {429, 503} else {}
    return _answer(status, body_of(error, language, details=details), headers)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PyocoServerError)  # noqa: S101 for the type checker; registered for nothing else
    return answer_to(request.scope, error)


async def _rejected(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CommandRejected)  # noqa: S101 for the type checker; registered for nothing else
    details = {"code": "COMMAND_REJECTED", "reason": error.code.value, **error.fact}
    status = 404 if error.code in _UNKNOWN else 409
    entry = CATALOGUE["ERR-PYOCO-0104" if status == 404 else "ERR-PYOCO-0103"]
    return _answer(status, error_body(entry, language_of(request), details=details, detail=str(error)))


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 for the type checker; registered for nothing else
    problems = [_problem(found) for found in error.errors()]
    entry = CATALOGUE[_id_for(request)]
    body = error_body(entry, language_of(request), details={"problems": problems}, detail=problems)
    return _answer(422, body)


def _id_for(request: Request) -> str:
    """The id of an input error depends on what was asked for."""
    path = request.url.path.rstrip("/")
    if path == "/runs" and request.method == "GET":
        return "ERR-PYOCO-0017"
    return "ERR-PYOCO-0019" if path == "/workers" or path.startswith("/workers/") else "ERR-PYOCO-0002"


def _problem(found: Mapping[str, Any]) -> dict[str, Any]:
    where: Sequence[Any] = found.get("loc", ())
    return {"loc": [str(part) for part in where], "msg": str(found.get("msg", "")), "type": str(found.get("type", ""))}


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 for the type checker; registered for nothing else
    ids = {404: "ERR-PYOCO-0104", 413: "ERR-PYOCO-0101", 429: "ERR-PYOCO-0102"}
    entry = CATALOGUE.get(ids.get(error.status_code, "ERR-PYOCO-0002"))
    if entry is None:
        return _answer(error.status_code, {"detail": error.detail}, error.headers)
    body = error_body(entry, language_of(request), detail=error.detail)
    return _answer(error.status_code, body, error.headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log_error(_log, "ERR-PYOCO-0106", action="request_crashed", exc=error, path=request.url.path)
    return _answer(500, error_body(CATALOGUE["ERR-PYOCO-0106"], language_of(request)))

"""Errors as HTTP answers: one shape, the client's language, the ids of the catalogue; and one log line for each."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from pyoco_server.app.ports import LogConflictError, TooLargeError, UnavailableError
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.core import CommandRejected, RejectionCode
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.logs import log_error
from pyoco_server.messages import CATALOGUE, Language, body_of, entry_of, error_body, negotiate

_log = logging.getLogger(__name__)
LONGEST_SHOWN: Final = 80
LONGEST_PATH: Final = 200
MOST_PROBLEMS: Final = 50
"""The most problems of a request that an answer lists."""
MOST_LOGGED: Final = 5
"""The most of them that a log line lists."""
_IDS: Final = {404: "ERR-PYOCO-0104", 413: "ERR-PYOCO-0101", 429: "ERR-PYOCO-0102", 500: "ERR-PYOCO-0106"}
_LOGGED: Final = "pyoco_server.is_logged"
_UNKNOWN: Final = frozenset({RejectionCode.NODE_NOT_FOUND, RejectionCode.EXECUTION_NOT_FOUND})


class RequestNotValidError(InvalidInputError):
    """A request does not fit its route. The text does not repeat what was sent: it may hold secrets."""


class ListQueryError(InvalidInputError):
    """The query of a list of runs is not valid."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0017"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0017"


class WorkerNotFoundError(PyocoServerError):
    """No worker has this id."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0020"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0020"


class YamlTooLargeError(PyocoServerError):
    """The flow.yaml is larger than the limit."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0016"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0016"


class YamlClosedError(PyocoServerError):
    """The operator has closed the route for flow.yaml."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0111"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0111"


class BodyTooLargeError(PyocoServerError):
    """The request is larger than the limit."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0101"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0101"


class TooManyError(PyocoServerError):
    """A limit is reached."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0102"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0102"


class NotFoundError(PyocoServerError):
    """Nothing has this name."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0104"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0104"


class DashboardNotFoundError(PyocoServerError):
    """The dashboard is not installed with this server."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0120"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0120"


class AssetNotFoundError(PyocoServerError):
    """The dashboard has no such file."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0121"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0121"


class ConflictError(PyocoServerError):
    """The request contradicts what is stored."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


class ForeignOriginError(PyocoServerError):
    """A page of another web site sent the request."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0130"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0130"


class UnknownHostError(PyocoServerError):
    """The request names a host that the gateway does not serve."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0131"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0131"


class HeadTooLargeError(PyocoServerError):
    """The head of the request is larger than any that is accepted."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0132"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0132"


class HeadTooSlowError(PyocoServerError):
    """The head of the request did not arrive in time."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0133"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0133"


def language_of(request: Request) -> Language:
    """Return the language the client prefers."""
    return _language_for(request.scope)


def _language_for(scope: Scope) -> Language:
    """Return the language of ``Accept-Language``; without it the server's (``PYOCO_LANG``)."""
    default: Language = scope["app"].state.language
    return negotiate(Headers(scope=scope).get("accept-language"), default=default)


def install(app: FastAPI) -> None:
    """Answer every error in the one shape."""
    app.add_exception_handler(PyocoServerError, _known_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(ClientDisconnect, _incomplete_request)
    app.add_exception_handler(Exception, _crash)


def status_and_body(error: PyocoServerError, language: Language) -> tuple[int, dict[str, Any]]:
    """Return the status and the body for an error, which may be an answer of its own or one result among many."""
    if isinstance(error, CommandRejected):
        return _rejection(error, language)
    if isinstance(error, RunNotFoundError):
        run_id = str(error.args[0]) if error.args else ""
        entry, details = CATALOGUE["ERR-PYOCO-0005"], {"run_id": run_id[:LONGEST_SHOWN]}
        detail = f"run not found: '{run_id[:LONGEST_SHOWN]}'"
        return 404, error_body(entry, language, details=details, detail=detail)
    if isinstance(error, TooLargeError):
        error = BodyTooLargeError(str(error))
    if isinstance(error, LogConflictError):
        error = ConflictError(str(error))
    entry_found = entry_of(error)
    if entry_found is None or entry_found.http_status is None:
        return 500, error_body(CATALOGUE["ERR-PYOCO-0106"], language)
    return entry_found.http_status, body_of(error, language, details=getattr(error, "details", None))


def answer_to(scope: Scope, error: PyocoServerError, *, is_logged: bool = False) -> JSONResponse:
    """Return the answer to a request that ends in this error, and log it unless ``is_logged``."""
    status, body = status_and_body(error, _language_for(scope))
    if not is_logged:
        _log_answer(scope, error, status, body["error"]["err_id"])
    after = str(getattr(error, "retry_after_sec", 1))
    return JSONResponse(body, status, headers={"Retry-After": after} if status in {429, 503} else None)


def _log_answer(scope: Scope, error: Exception, status: int, err_id: str) -> None:
    """Write one line for a request that ends in an error; only unexpected errors are logged with their traceback.

    An outage and a mistake of the client are expected: each may be logged a thousand times.
    """
    if scope.get(_LOGGED):  # a body that is too large fails twice: when it is read, and when it is answered
        return
    scope[_LOGGED] = True
    path_params = scope.get("path_params", {})
    is_crash = status >= 500 and not isinstance(error, UnavailableError)
    log_error(
        _log,
        err_id,
        action="request_failed" if status >= 500 else "request_rejected",
        exc=error,
        level=logging.INFO if status < 500 else logging.ERROR if is_crash else logging.WARNING,
        one_line=not is_crash,
        reason=str(error),
        method=scope.get("method"),
        path=str(scope.get("path"))[:LONGEST_PATH],
        status=status,
        **({"run_id": path_params["run_id"]} if "run_id" in path_params else {}),
    )


async def _known_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PyocoServerError)  # noqa: S101 for the type checker; registered for nothing else
    return answer_to(request.scope, error)


def _rejection(error: CommandRejected, language: Language) -> tuple[int, dict[str, Any]]:
    details = {"code": "COMMAND_REJECTED", "reason": error.code.value, **error.fact}
    status = 404 if error.code in _UNKNOWN else 409
    entry = CATALOGUE["ERR-PYOCO-0104" if status == 404 else "ERR-PYOCO-0103"]
    return status, error_body(entry, language, details=details, detail=str(error))


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 for the type checker; registered for nothing else
    return answer_to_invalid(request, error)


def answer_to_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Return the answer to a request that does not fit its route, and log it."""
    problems = [_problem(found) for found in error.errors()[:MOST_PROBLEMS]]
    entry = CATALOGUE[_id_for(request)]
    summary = "; ".join(f"{'.'.join(found['loc'])}: {found['msg']}" for found in problems[:MOST_LOGGED])
    refused = RequestNotValidError(summary).with_traceback(error.__traceback__)
    _log_answer(request.scope, refused, 422, entry.err_id)
    body = error_body(entry, language_of(request), details={"problems": problems}, detail=problems)
    return JSONResponse(body, 422)


def _id_for(request: Request) -> str:
    """Return the id of an input error, which depends on the route."""
    path = request.url.path.rstrip("/")
    if path == "/runs" and request.method == "GET":
        return "ERR-PYOCO-0017"
    return "ERR-PYOCO-0019" if path == "/workers" or path.startswith("/workers/") else "ERR-PYOCO-0002"


def message_of(found: Mapping[str, Any]) -> str:
    """Return the message, without the words that pydantic puts before those of our own checks."""
    return str(found.get("msg", "")).removeprefix("Value error, ")


def _problem(found: Mapping[str, Any]) -> dict[str, Any]:
    where: Sequence[Any] = found.get("loc", ())
    message = message_of(found)
    if isinstance(found.get("input"), bytes):
        message = "the body was not read as JSON: send it with Content-Type: application/json"
    elif found.get("type") == "json_invalid":
        message = f"not JSON: {(found.get('ctx') or {}).get('error', '')}"
    shown = [str(part)[:LONGEST_SHOWN] for part in where]
    return {"loc": shown, "msg": message, "type": str(found.get("type", ""))}


async def _framework_error(request: Request, error: Exception) -> JSONResponse:
    """Answer what the framework refuses by itself; a body that it cannot read is an input error like any other."""
    assert isinstance(error, HTTPException)  # noqa: S101 for the type checker; registered for nothing else
    status = 422 if error.status_code == 400 else error.status_code
    err_id = _id_for(request) if status == 422 else _IDS.get(status, "ERR-PYOCO-0002")
    body = error_body(CATALOGUE[err_id], language_of(request), detail=error.detail)
    if not isinstance(error.__cause__, PyocoServerError):  # else it was logged where it was raised
        _log_answer(request.scope, error, status, err_id)
    return JSONResponse(body, status, headers=dict(error.headers or {}))


async def _incomplete_request(request: Request, error: Exception) -> JSONResponse:
    """Log a client that disconnected in the middle of its request; no client receives the answer."""
    refused = RequestNotValidError("the client left before the request was complete")
    return answer_to(request.scope, refused.with_traceback(error.__traceback__))


async def _crash(request: Request, error: Exception) -> JSONResponse:
    log_error(_log, "ERR-PYOCO-0106", action="request_crashed", exc=error, path=request.url.path)
    return JSONResponse(error_body(CATALOGUE["ERR-PYOCO-0106"], language_of(request)), 500)

"""One request and how its answer is read: data, so that whoever sends it needs to know nothing about it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Generic, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from pyoco_server.client.errors import ApiError, UnexpectedAnswerError
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError

T = TypeVar("T")
U = TypeVar("U")
Query = Sequence[tuple[str, str]]
Upload = tuple[str, "bytes | IO[bytes]", str]
"""Name, content and media type of a file; one that is open is sent as it is read."""
_SHOWN = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """What to send, and what to make of the answer."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Query = ()
    json: object = None
    form: Mapping[str, str] | None = None
    files: Mapping[str, Upload] | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    silence_sec: float | None = None
    """How long nothing may be heard of the answer; None: as the client is set up."""

    @property
    def is_repeatable(self) -> bool:
        """May it be sent again when nobody knows whether it arrived?"""
        return self.method == "GET" or "Idempotency-Key" in self.headers

    def reading(self, read: Callable[[httpx.Response], U]) -> "Call[U]":
        """The same request, with something else made of its answer."""
        return dataclasses.replace(cast("Call[U]", self), read=read)

    def build(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The request on its way out."""
        request = http.build_request(
            self.method,
            self.path,
            params=list(self.query),
            json=self.json,
            data=dict(self.form) if self.form is not None else None,
            files=dict(self.files) if self.files is not None else None,
            headers=dict(self.headers),
        )
        if self.silence_sec is not None:
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": self.silence_sec}
        return request


def segment(name: str, value: str, *, safe: str = "") -> str:
    """A name as a part of a path; one that would make it another path is refused."""
    parts = value.split("/") if "/" in safe else [value]
    if any(part in {"", ".", ".."} for part in parts):
        raise InvalidInputError(f"{name}: {value!r:.80} cannot be one")
    try:
        return quote(value, safe=safe)
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name}: {value!r:.80} is not text") from error


def as_object(response: httpx.Response) -> JsonObject:
    """The answer, which is an object."""
    return _expected(response, dict)


def as_array(response: httpx.Response) -> list[JsonObject]:
    """The answer, which is an array of objects."""
    found: list[JsonObject] = _expected(response, list)
    if not all(isinstance(item, dict) for item in found):
        raise _unexpected(response, "an array of objects")
    return found


def as_text(response: httpx.Response) -> str:
    """The answer as it is."""
    return response.text


def as_bytes(response: httpx.Response) -> bytes:
    """The answer as it is."""
    return response.content


def field(response: httpx.Response, name: str, type_: type[T]) -> T:
    """One field of the answer."""
    value = as_object(response).get(name)
    if not isinstance(value, type_):
        raise _unexpected(response, f"an object with '{name}'")
    return value


def any_json(response: httpx.Response) -> Any:  # noqa: ANN401 any JSON value
    """The answer, whatever it is, as long as it is JSON."""
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unexpected(response, "JSON") from error


def refusal(response: httpx.Response) -> ApiError:
    """The error an answer tells of."""
    status = response.status_code
    try:
        body = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnexpectedAnswerError(status, message=response.reason_phrase or "error", detail=_start(response) or None)
    body = body if isinstance(body, dict) else {"detail": body}
    error = body.get("error")
    told: JsonObject = error if isinstance(error, dict) else {}
    details = told.get("details")
    return ApiError(
        status,
        _text(told.get("err_id")),
        _text(told.get("msg_id")),
        _text(told.get("message")) or response.reason_phrase or "error",
        _text(told.get("action")),
        details if isinstance(details, dict) else None,
        body.get("detail"),
    )


def _expected(response: httpx.Response, type_: type[T]) -> T:
    value = any_json(response)
    if not isinstance(value, type_):
        raise _unexpected(response, "an object" if type_ is dict else "an array")
    return value


def _unexpected(response: httpx.Response, wanted: str) -> UnexpectedAnswerError:
    message = f"the answer is not {wanted}; is this the address of a pyoco-server?"
    return UnexpectedAnswerError(response.status_code, message=message, detail=_start(response) or None)


def _start(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

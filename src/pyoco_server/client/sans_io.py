"""Requests as data, and generators of the steps that perform them. Nothing here does I/O.

A generator yields the next step, and the client sends it the reply. So both clients share retries, streams and series.
"""

import dataclasses
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import IO, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from pyoco_server.client.errors import ApiError, GatewayUnreachableError, UnexpectedAnswerError
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError

T = TypeVar("T")
U = TypeVar("U")
Query = Sequence[tuple[str, str]]
Upload = tuple[str, "bytes | IO[bytes]", str]
"""Name, content and media type of a file; one that is open is sent as it is read."""
_SHOWN = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One HTTP request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Query = ()
    json: object = None
    form: Mapping[str, str] | None = None
    files: Mapping[str, Upload] | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    silence_sec: float | None = None
    """The most time without a byte of the answer; None: the timeout of the client."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again if it is unknown whether it arrived."""
        return self.method == "GET" or "Idempotency-Key" in self.headers

    def reading(self, read: Callable[[httpx.Response], U]) -> "Call[U]":
        """Return the same request with another reader of its answer."""
        return dataclasses.replace(cast("Call[U]", self), read=read)

    def build(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """Return the request of httpx."""
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
    """Quote a name for a path; InvalidInputError if it would make it another path."""
    parts = value.split("/") if "/" in safe else [value]
    if any(part in {"", ".", ".."} for part in parts):
        raise InvalidInputError(f"{name}: {value!r:.80} is not valid")
    try:
        return quote(value, safe=safe)
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name}: {value!r:.80} is not text") from error


def as_object(response: httpx.Response) -> JsonObject:
    """Read an answer that is a JSON object."""
    return _expected(response, dict)


def as_array(response: httpx.Response) -> list[JsonObject]:
    """Read an answer that is an array of objects."""
    found: list[JsonObject] = _expected(response, list)
    if not all(isinstance(item, dict) for item in found):
        raise _unexpected(response, "an array of objects")
    return found


def as_text(response: httpx.Response) -> str:
    """Read an answer that is text."""
    return response.text


def as_bytes(response: httpx.Response) -> bytes:
    """Read an answer that is not decoded."""
    return response.content


def field(response: httpx.Response, name: str, type_: type[T]) -> T:
    """Read one field of an answer; UnexpectedAnswerError if it has another type."""
    value = as_object(response).get(name)
    if not isinstance(value, type_):
        raise _unexpected(response, f"an object with '{name}'")
    return value


def any_json(response: httpx.Response) -> Any:  # noqa: ANN401 any JSON value
    """Read an answer that is any JSON; UnexpectedAnswerError if it is not."""
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unexpected(response, "JSON") from error


def refusal(response: httpx.Response) -> ApiError:
    """Return the error that an answer describes."""
    status = response.status_code
    try:
        body = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnexpectedAnswerError(status, message=response.reason_phrase or "error", detail=_start(response) or None)
    body = body if isinstance(body, dict) else {"detail": body}
    error = body.get("error")
    facts: JsonObject = error if isinstance(error, dict) else {}
    details = facts.get("details")
    return ApiError(
        status,
        _text(facts.get("err_id")),
        _text(facts.get("msg_id")),
        _text(facts.get("message")) or response.reason_phrase or "error",
        _text(facts.get("action")),
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


T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")

Reply = httpx.Response | httpx.RequestError
"""The result of sending a request."""


class Exchange(NamedTuple):
    """Send a request and read its answer; the reply is a Reply."""

    call: Call[Any]


class OpenStream(NamedTuple):
    """Send a request whose answer is a stream; the reply is a Reply, whose body is read only if it is an error."""

    call: Call[Any]


class ReadStream(NamedTuple):
    """Read from the stream; the reply is bytes, empty at the end, or the error that ended it."""


class CloseStream(NamedTuple):
    """Close the stream."""


class Pause(NamedTuple):
    """Wait."""

    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Item(Generic[T_co]):
    """Pass a result to the caller that iterates."""

    value: T_co


Step = Exchange | OpenStream | ReadStream | CloseStream | Pause
SingleRequestSteps = Generator[Step, Any, T]
"""Steps that end with a result."""
RequestSteps = Generator[Step | Item[T], Any, None]
"""Steps with many results among them."""

TEMPORARY: Final = frozenset({502, 503, 504})
"""The gateway or a proxy is starting, or overloaded."""
_NEVER_ARRIVED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_CONNECTION: Final = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)
_FIRST_PAUSE_SEC: Final = 0.1
_LONGEST_PAUSE_SEC: Final = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long and how often a client repeats requests."""

    server: str
    retries: int
    """How often a request is repeated, if that is safe."""
    reconnect_sec: float
    """How long a watch or a wait tolerates a gateway that answered before and does not now."""
    poll_sec: float
    """How often to read a run where watching does not work."""
    clock: Callable[[], float] = time.monotonic


class Request(Protocol[T_co]):
    """An operation with one result."""

    def steps(self, policy: RetryPolicy) -> Generator[Step, Any, T_co]:
        """Return its steps."""
        ...


class RequestSeries(Protocol[T_co]):
    """An operation with many results."""

    def steps(self, policy: RetryPolicy) -> Generator[Step | Item[T_co], Any, None]:
        """Return its steps, with results among them."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """One request, repeated where that is safe and may help."""

    call: Call[T]

    def steps(self, policy: RetryPolicy) -> SingleRequestSteps[T]:
        """Send the request, and repeat it after a broken connection or a 503, if that is safe."""
        return sending(self.call, policy)


def sending(call: Call[T], policy: RetryPolicy) -> SingleRequestSteps[T]:
    """Send a request and return its result; raises its error."""
    tried = 0
    while True:
        reply: Reply = yield Exchange(call)
        tried += 1
        if tried > policy.retries or not call.is_repeatable or not may_pass(reply):
            return received(call, reply, policy)
        yield Pause(backoff(tried, reply))


def received(call: Call[T], reply: Reply, policy: RetryPolicy) -> T:
    """Return the result of a request, or raise its error."""
    if isinstance(reply, httpx.RequestError):
        raise unreachable(reply, policy, is_repeatable=call.is_repeatable) from reply
    if not reply.is_success:
        raise refusal(reply)
    return call.read(reply)


def unreachable(
    error: httpx.RequestError, policy: RetryPolicy, *, is_repeatable: bool = True
) -> GatewayUnreachableError:
    """Return the error for a request without an answer."""
    unknown = not is_repeatable and not isinstance(error, _NEVER_ARRIVED)
    reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__
    doubt = "; the request may still have been carried out" if unknown else ""
    return GatewayUnreachableError(f"{policy.server}: {reason}{doubt}", outcome_unknown=unknown)


def backoff(tried: int, reply: Reply | None = None) -> float:
    """Return the pause after so many attempts: longer each time, or as long as the gateway asks for."""
    pause = min(_FIRST_PAUSE_SEC * 2.0 ** (tried - 1), _LONGEST_PAUSE_SEC)
    asked = reply.headers.get("retry-after", "") if isinstance(reply, httpx.Response) else ""
    return max(pause, min(float(asked), _LONGEST_PAUSE_SEC)) if asked.isascii() and asked.isdigit() else pause


def intercepted(steps: RequestSteps[T], take: Callable[[T], Generator[S, Any, None]]) -> Generator[Step | S, Any, None]:
    """Yield the steps of a series, and in place of each of its results the steps of ``take(result)``."""
    reply: object = None
    try:
        while True:
            try:
                step = steps.send(reply)
            except StopIteration:
                return
            reply = None
            if isinstance(step, Item):
                yield from take(step.value)
            else:
                reply = yield step
    finally:
        steps.close()


def may_pass(reply: Reply) -> bool:
    """Return whether the same request may succeed a moment later: the connection broke, or the gateway says 503."""
    return isinstance(reply, _CONNECTION) or (isinstance(reply, httpx.Response) and reply.status_code == 503)

"""How requests are sent, without sending any: generators that say what to do next and are told what came of it.

One driver carries the steps out with a blocking connection, another with an asynchronous one; what is done, in which
order, and when it is given up, is written once.
"""

import dataclasses
import time
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import httpx

from pyoco_server.client.call import Call, refusal
from pyoco_server.client.errors import GatewayUnreachableError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")

Reply = httpx.Response | httpx.RequestError
"""What came of a request."""


class Exchange(NamedTuple):
    """Send a request and read its answer; told: Reply."""

    call: Call[Any]


class Listen(NamedTuple):
    """Send a request whose answer goes on; told: Reply, of which only the head was read unless it is an error."""

    call: Call[Any]


class Hear(NamedTuple):
    """Read on; told: bytes, empty at the end, or the error that ended it."""


class HangUp(NamedTuple):
    """Listen no longer."""


class Pause(NamedTuple):
    """Let time pass."""

    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Item(Generic[T_co]):
    """Hand something to whoever iterates."""

    value: T_co


Step = Exchange | Listen | Hear | HangUp | Pause
Flow = Generator[Step, Any, T]
"""Steps that lead to a result."""
Walk = Generator[Step | Item[T], Any, None]
"""Steps that lead to many results on the way."""

TEMPORARY: Final = frozenset({502, 503, 504})
"""The gateway, or what stands before it, is on its way back."""
_NEVER_ARRIVED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_CONNECTION: Final = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)
_FIRST_PAUSE_SEC: Final = 0.1
_LONGEST_PAUSE_SEC: Final = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How patient a client is."""

    server: str
    retries: int
    """How often a request that may be repeated is."""
    reconnect_sec: float
    """How long those who watch or wait bear with a gateway that was there and is away."""
    poll_sec: float
    """How often to look where watching does not work."""
    clock: Callable[[], float] = time.monotonic


class Plan(Protocol[T_co]):
    """Something that has one result."""

    def flow(self, manner: Manner) -> Generator[Step, Any, T_co]:
        """The steps to it."""
        ...


class Series(Protocol[T_co]):
    """Something that has many results."""

    def walk(self, manner: Manner) -> Generator[Step | Item[T_co], Any, None]:
        """The steps to them."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """A plan: one request, repeated where that is safe and may help."""

    call: Call[T]

    def flow(self, manner: Manner) -> Flow[T]:
        """Send it, and again after a broken connection or a 503, if it may be."""
        return sending(self.call, manner)


def sending(call: Call[T], manner: Manner) -> Flow[T]:
    """Send a request; raises what came of it if that is not an answer."""
    tried = 0
    while True:
        reply: Reply = yield Exchange(call)
        tried += 1
        if tried > manner.retries or not call.is_repeatable or not may_pass(reply):
            return received(call, reply, manner)
        yield Pause(backoff(tried, reply))


def received(call: Call[T], reply: Reply, manner: Manner) -> T:
    """The result of a request, or its error."""
    if isinstance(reply, httpx.RequestError):
        raise unreachable(reply, manner, is_repeatable=call.is_repeatable) from reply
    if not reply.is_success:
        raise refusal(reply)
    return call.read(reply)


def unreachable(error: httpx.RequestError, manner: Manner, *, is_repeatable: bool = True) -> GatewayUnreachableError:
    """No answer, in words."""
    unknown = not is_repeatable and not isinstance(error, _NEVER_ARRIVED)
    reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__
    doubt = "; the request may have been carried out all the same" if unknown else ""
    return GatewayUnreachableError(f"{manner.server}: {reason}{doubt}", outcome_unknown=unknown)


def backoff(tried: int, reply: Reply | None = None) -> float:
    """How long to wait after so many attempts: longer each time, or as long as the gateway asks for."""
    pause = min(_FIRST_PAUSE_SEC * 2.0 ** (tried - 1), _LONGEST_PAUSE_SEC)
    asked = reply.headers.get("retry-after", "") if isinstance(reply, httpx.Response) else ""
    return max(pause, min(float(asked), _LONGEST_PAUSE_SEC)) if asked.isascii() and asked.isdigit() else pause


def intercepted(walk: Walk[T], take: Callable[[T], Generator[S, Any, None]]) -> Generator[Step | S, Any, None]:
    """Go the steps of a walk, and others of one's own for each of its results."""
    told: object = None
    try:
        while True:
            try:
                step = walk.send(told)
            except StopIteration:
                return
            told = None
            if isinstance(step, Item):
                yield from take(step.value)
            else:
                told = yield step
    finally:
        walk.close()


def may_pass(reply: Reply) -> bool:
    """Return whether the same request may succeed a moment later: the connection broke, or the gateway says 503."""
    return isinstance(reply, _CONNECTION) or (isinstance(reply, httpx.Response) and reply.status_code == 503)

"""The NATS client that the stores use, whichever path it takes through the library.

:class:`NatsClient` owns requests: one inbox for all, a counter as their name, one timer, and a reply that is handled
where it is read. :class:`~.compat.FastClient` sends and receives through private members of nats-py;
:class:`~.plain_client.PlainClient` does so through its public API only. Both promise the same: what cannot be sent
now is refused, and nothing is sent later than it was asked for.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from pyoco_server.adapters.jetstream.transport.loop_clock import LoopClock

_log = logging.getLogger(__name__)

_VERSION: Final = "NATS/1.0"
_SERVER_STATUS: Final = frozenset({"Status", "Description"})
"""The server states these in the first line of the headers; a stored header of such a name is not the server's."""
_STORED: Final = "Nats-Sequence"
"""Only a stored message has this header, and the server sends no status with one."""
_HEADER_LINE: Final = b"NATS/1.0\r\n"
_NO_RESPONDERS: Final = b"NATS/1.0 503"

_CANCEL_AGAIN_SEC: Final = 0.25


class RawReply(NamedTuple):
    """A reply as it was received; ``headers`` are not parsed."""

    data: bytes
    headers: bytes | None


T = TypeVar("T")

Settle = Callable[[asyncio.Future[T], RawReply], None]
"""Called where a reply is read: settles the future, now or later. The caller of the request gets what it raises."""

OnMessage = Callable[[bytes, bytes, bytes | None, bytes], None]
"""Called where a message is read, with its subject, data, headers and reply subject. Must be quick and not raise."""

Handler = Callable[[Msg], Coroutine[Any, Any, None]]


class ServerSubscription(Protocol):
    """What a subscription with a handler offers."""

    async def unsubscribe(self) -> None:
        """Stop receiving."""
        ...


class InlineSubscription:
    """A subject whose messages are handled where they are read; ``number`` is the library's, on the fast path."""

    __slots__ = ("current", "number", "on_message", "subject")

    def __init__(self, subject: str, on_message: OnMessage) -> None:
        self.subject = subject
        self.on_message = on_message
        self.number = 0
        self.current: Any = None
        """The library's subscription."""

    def dispatch(self, subject: bytes, data: bytes, headers: bytes | None, reply: bytes) -> None:
        """Handle a message. An error is logged: it must not end the connection that all others share."""
        try:
            self.on_message(subject, data, headers, reply)
        except Exception:  # noqa: BLE001 logged with its subject
            _log.exception("cannot handle a message on '%s'", subject.decode(errors="replace"))


class NatsClient(ABC):
    """Requests and subscriptions on one connection, which reconnects by itself."""

    def __init__(self) -> None:
        self._requested: dict[bytes, tuple[asyncio.Future[Any], Settle[Any]]] = {}
        self._deadlines: deque[tuple[float, bytes]] = deque()
        self._requests = 0
        self._inbox: str | None = None
        self._token_at = 0
        self._inbox_lock = asyncio.Lock()
        self._clock = LoopClock(self._time_out)

    # --- Requests ----------------------------------------------------------------------------------------------------

    async def request_raw(self, subject: str, payload: bytes, headers: bytes, *, timeout: float) -> RawReply:  # noqa: ASYNC109
        """Send a request and return the one reply. ``headers`` as :func:`header_block` makes them, or empty.

        All callers on a connection must pass the same timeout, and a subject that they have checked.
        """
        return await self.request_settled(subject, payload, headers, _settle_at_once, timeout=timeout)

    async def request_settled(
        self,
        subject: str,
        payload: bytes,
        headers: bytes,
        settle: Settle[T],
        *,
        timeout: float,  # noqa: ASYNC109 one timer for all requests
    ) -> T:
        """Send a request and return what ``settle`` makes of the reply. The timeout ends when the reply is read."""
        token, answered = await self._register(len(payload) + len(headers), settle)
        self._deadlines.append((self._clock.now + timeout, token))
        self._clock.run()
        if (sending := self._send(subject, f"{self._inbox}{token.decode()}", headers, payload)) is not None:
            await sending
        try:
            return await answered
        finally:
            del answered  # it holds the error, whose traceback holds this frame

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 as the library has it
        old_style: bool = False,  # noqa: FBT001, FBT002, ARG002 as the library has it
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Send a request and return the reply as the library does; any timeout. Its JetStream API goes this way."""
        block = header_block(headers) if headers else b""
        token, answered = await self._register(len(payload) + len(block), _settle_at_once)
        try:
            if (sending := self._send(subject, f"{self._inbox}{token.decode()}", block, payload)) is not None:
                await sending
            async with asyncio.timeout(timeout):
                reply = await answered
        except TimeoutError:
            raise nats.errors.TimeoutError from None
        finally:
            self._requested.pop(token, None)
        return Msg(self, subject, "", reply.data, parsed_headers(reply.headers) or None)  # type: ignore[arg-type]

    async def publish_raw(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        """Send a message; it is lost if the connection breaks. Replies arrive under ``reply``."""
        self._refuse_unless_connected()
        if (sending := self._send(subject, reply, b"", payload)) is not None:
            await sending

    async def _register(self, size: int, settle: Settle[T]) -> tuple[bytes, asyncio.Future[T]]:
        self._refuse_unless_connected()
        if self._inbox is None:
            await self._open_inbox()
            self._refuse_unless_connected()
        if size > self.max_payload:
            raise nats.errors.MaxPayloadError
        self._requests += 1
        token = b"%d" % self._requests
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requested[token] = answered, settle
        return token, answered

    async def _open_inbox(self) -> None:
        async with self._inbox_lock:
            if self._inbox is None:
                inbox = f"{self.new_inbox()}."
                self._token_at = len(inbox)
                await self.subscribe_inline(f"{inbox}*", self._on_reply)
                self._inbox = inbox

    def _on_reply(self, subject: bytes, data: bytes, headers: bytes | None, _reply: bytes) -> None:
        answered, settle = self._requested.pop(subject[self._token_at :], _NOT_REQUESTED)
        if answered is None or answered.done():
            return
        if headers is not None and headers.startswith(_NO_RESPONDERS):
            answered.set_exception(nats.errors.NoRespondersError())
            return
        try:
            settle(answered, RawReply(data, headers))
        except Exception as error:  # noqa: BLE001 raised to the caller of the request
            # Without its traceback, which leads back to the future: nothing is left to the garbage collector.
            answered.set_exception(error.with_traceback(None))

    def _time_out(self, now: float) -> bool:
        """Time out the oldest requests; return whether there are any more."""
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][1] not in self._requested):
            answered, _ = self._requested.pop(self._deadlines.popleft()[1], _NOT_REQUESTED)
            if answered is not None and not answered.done():
                answered.set_exception(nats.errors.TimeoutError())
        return bool(self._deadlines)

    def _refuse_unless_connected(self) -> None:
        if self.is_connected and not self.is_draining_pubs:
            return
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if self.is_draining_pubs:
            raise nats.errors.ConnectionDrainingError
        raise nats.errors.OutboundBufferLimitError

    def abandon_requests(self) -> None:
        """The connection broke: fail all open requests, and drop what is unsent. Subscriptions are repeated."""
        requested, self._requested = self._requested, {}
        self._deadlines.clear()
        self._clock.stop()
        for answered, _ in requested.values():
            if not answered.done():
                answered.set_exception(nats.errors.StaleConnectionError())

    # --- What the two paths do differently ---------------------------------------------------------------------------

    stats: dict[str, int]
    """Counters by name: messages and bytes in and out, ``reconnects``."""

    @abstractmethod
    async def connect(self, servers: Any, **options: Any) -> None:  # noqa: ANN401 as the library has it
        """Connect; the options are the library's."""

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether a message can be sent now."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the connection has ended for good."""

    @property
    @abstractmethod
    def is_draining_pubs(self) -> bool:
        """Whether the connection is ending and takes no more messages."""

    @property
    @abstractmethod
    def max_payload(self) -> int:
        """The largest message that the server accepts, headers included."""

    @property
    @abstractmethod
    def last_error(self) -> Exception | None:
        """The last error of the connection."""

    @property
    @abstractmethod
    def pending_data_size(self) -> int:
        """How many bytes wait to be sent."""

    @property
    @abstractmethod
    def connected_server_version(self) -> Any:  # noqa: ANN401 the library's
        """The version of the server: ``major``, ``minor``, ``patch``."""

    @property
    @abstractmethod
    def server_name(self) -> str:
        """The name of the server."""

    @property
    @abstractmethod
    def is_in_cluster(self) -> bool:
        """Whether the server is one of several."""

    @abstractmethod
    def new_inbox(self) -> str:
        """A new subject to receive replies on."""

    @abstractmethod
    def _send(self, subject: str, reply: str, headers: bytes, payload: bytes) -> Awaitable[Any] | None:
        """Send a message; an awaitable is one that the caller must await."""

    @abstractmethod
    async def subscribe_inline(self, subject: str, on_message: OnMessage) -> InlineSubscription:
        """Handle messages where they are read, until :meth:`unsubscribe_inline`."""

    @abstractmethod
    async def unsubscribe_inline(self, subscription: InlineSubscription) -> None:
        """Stop handling messages."""

    @abstractmethod
    async def withdraw(self, subscription: InlineSubscription) -> None:
        """Have the server forget a subscription, and still handle messages that are on their way."""

    @abstractmethod
    async def subscribe(self, subject: str, queue: str = "", cb: Handler | None = None) -> ServerSubscription:
        """Handle messages in a task, one after the other."""

    @abstractmethod
    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message as the library does, with its checks."""

    @abstractmethod
    async def flush(self, timeout: int = 10) -> None:  # noqa: ASYNC109 as the library has it
        """Return when the server has processed everything that was sent before."""

    @abstractmethod
    def jetstream(self, *, timeout: float) -> JetStreamContext:
        """The library's JetStream API on this connection."""

    @abstractmethod
    async def shut_down(self, *, within_sec: float) -> None:
        """Close the connection within that time, whatever the server does; no task is left."""


def _settle_at_once(answered: asyncio.Future[RawReply], reply: RawReply) -> None:
    answered.set_result(reply)


_NOT_REQUESTED: Final = (None, _settle_at_once)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end; cancel it again if it continues.

    The library connects by ``asyncio.wait_for``, which can lose a cancellation in Python 3.11, and then connects again.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN_SEC)


async def end_within(tasks: set[asyncio.Task[Any]], within_sec: float, break_off: Callable[[], None]) -> None:
    """Wait for tasks that end a connection; after that time break it off, and cancel what is left."""
    _, late = await asyncio.wait(tasks, timeout=within_sec)
    if late:
        break_off()
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def header_block(headers: Mapping[str, str]) -> bytes:
    """Encode headers as they are sent. Names and values must be our own: no line ends."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return b"%b%b\r\n" % (_HEADER_LINE, lines.encode())


def received_block(headers: Mapping[str, str] | None) -> bytes | None:
    """Encode headers that the library has parsed as they were received, with the server's status in the first line."""
    if not headers:
        return None
    if _STORED in headers or next(iter(headers)) != "Status":
        return header_block(headers)
    status = f"{headers['Status']} {headers.get('Description', '')}".rstrip()
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items() if name not in _SERVER_STATUS])
    return f"{_VERSION} {status}\r\n{lines}\r\n".encode()


def header_value(headers: bytes | None, name: bytes) -> bytes | None:
    """Return one value of headers as they were received; None if there is no such header."""
    if headers is None:
        return None
    start = headers.find(b"\r\n%b:" % name)
    if start < 0:
        return None
    start += len(name) + 3
    return headers[start : headers.index(b"\r\n", start)].strip()


def parsed_headers(headers: bytes | None) -> dict[str, str]:
    """Parse headers as they were received; the server's status in the first line becomes Status and Description."""
    if not headers:
        return {}
    first, *lines = headers.decode(errors="replace").split("\r\n")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name not in _SERVER_STATUS:
            found[name] = value.strip()
    status = first[len(_VERSION) :].strip()
    if status:
        found["Status"], _, found["Description"] = status.partition(" ")
    return found

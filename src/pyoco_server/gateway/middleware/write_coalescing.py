"""Extends uvicorn's HTTP protocol: one write for head and body of a response, limits for connections and heads.

uvicorn writes head and body one after the other, and each write is handed to the system at once: two system calls, two
packets, and a client that wakes up twice. It reads heads of any size, for as long as they take. This is the only module
that extends a class of uvicorn. :func:`problems` compares the installed version with what that needs, once, at import;
if it finds a difference, :func:`http_protocol` returns uvicorn's protocol over h11, which is slower, bounds the size of
a head by itself, and knows no other limit. See ADR 0024 and 0027.
"""

import asyncio
import functools
import importlib
import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from typing_extensions import override

from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import HeadTooLargeError, HeadTooSlowError, RequestNotValidError
from pyoco_server.gateway.middleware.connections import LARGEST_HEAD, MOST_FIELDS, ConnectionLimits, problem_of_head

_log = logging.getLogger(__name__)

TESTED_VERSIONS: Final = "0.32 to 0.54"
"""The versions of uvicorn that this was tested with."""

STOCK: Final = "h11"
"""uvicorn's name for its protocol that bounds heads, by ``h11_max_incomplete_event_size``."""

LINGER_SEC: Final = 2.0
"""How long the rest of a request is read and dropped after its answer, before the connection is closed. A connection
that is closed with unread bytes is reset, and the client may lose the answer."""

_MOST_BYTES: Final = 64 * 1024
"""More than this is not kept back, so that uvicorn pauses when the client does not read."""

_PROTOCOL: Final = ("uvicorn.protocols.http.httptools_impl", "HttpToolsProtocol")
_USES: Final = {
    "connection_made": {"transport", "connections", "FlowControl"},
    "connection_lost": {"transport", "connections"},
    "data_received": {"parser", "feed_data", "HttpParserError", "send_400_response"},
    "on_message_begin": {"url", "headers", "scope"},
    "on_url": {"url"},
    "on_header": {"headers"},
    "on_body": {"cycle"},
    "on_headers_complete": {"url", "cycle"},
    "on_message_complete": {"cycle", "response_complete"},
    "send_400_response": {"transport"},
}
"""Names that methods of the protocol use: it keeps the transport that it is given, and closes that one. What the parser
reports is in ``url`` and ``headers``; an error of the parser, or in what it calls, ends with ``send_400_response``."""


class CoalescingTransport(asyncio.Transport):
    """Sends everything that is written in one turn of the event loop in one write."""

    def __init__(self, inner: asyncio.Transport, *, is_read: Callable[[], bool] = lambda: True) -> None:
        """``is_read`` says whether the request that was answered last has been read to its end."""
        super().__init__()
        self._inner = inner
        self._is_read = is_read
        self.is_lingering = False
        """The answer is sent; what still arrives of the request is dropped."""
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes | bytearray | memoryview] = []
        self._bytes = 0

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self.is_lingering:
            return
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            pending, self._pending, self._bytes = self._pending, [], 0
            self._inner.write(b"".join(pending))

    @override
    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    @override
    def write_eof(self) -> None:
        self._flush()
        self._inner.write_eof()

    @override
    def close(self) -> None:
        self._flush()
        if self._is_read() or self.is_closing():
            self._inner.close()
            return
        self.is_lingering = True
        self._inner.write_eof()
        self._inner.resume_reading()
        self._loop.call_later(LINGER_SEC, self._inner.close)

    @override
    def abort(self) -> None:
        self._pending, self._bytes = [], 0
        self._inner.abort()

    @override
    def get_write_buffer_size(self) -> int:
        return self._bytes + self._inner.get_write_buffer_size()

    # --- Passed on ---------------------------------------------------------------------------------------------------

    @override
    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._inner.get_write_buffer_limits()

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._inner.set_write_buffer_limits(high, low)

    @override
    def can_write_eof(self) -> bool:
        return self._inner.can_write_eof()

    @override
    def is_closing(self) -> bool:
        return self.is_lingering or self._inner.is_closing()

    @override
    def is_reading(self) -> bool:
        return self._inner.is_reading()

    @override
    def pause_reading(self) -> None:
        self._inner.pause_reading()

    @override
    def resume_reading(self) -> None:
        self._inner.resume_reading()

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    @override
    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner.get_protocol()

    @override
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner.set_protocol(protocol)


def problems() -> list[str]:
    """Return how the installed uvicorn differs from what is needed here."""
    try:
        return list(_differences())
    except Exception as error:  # noqa: BLE001 whatever a changed uvicorn raises, its own protocol works
        return [f"the check failed: {error!r:.200}"]


def _differences() -> Iterator[str]:
    protocol = _uvicorn_protocol()
    if not issubclass(protocol, asyncio.Protocol):
        yield f"{protocol.__name__} is no asyncio.Protocol"
    for name, used in _USES.items():
        code = getattr(getattr(protocol, name, None), "__code__", None)
        if code is None:
            yield f"{protocol.__name__}.{name} is missing"
        elif missing := sorted(used.difference(code.co_names)):
            yield f"{protocol.__name__}.{name} does not use {', '.join(missing)}"


def _uvicorn_protocol() -> Any:  # noqa: ANN401 uvicorn's class
    module, name = _PROTOCOL
    return getattr(importlib.import_module(module), name)


PROBLEMS: Final = problems()
"""How the installed uvicorn differs from what is needed here; empty if responses are sent in one write."""


_BASE: Final[Any] = asyncio.Protocol if PROBLEMS else _uvicorn_protocol()


class LimitedProtocol(_BASE):  # type: ignore[misc]  # a class that is known when the program runs
    """uvicorn's protocol with limits, and with one write for a response."""

    headers: Any

    def __init__(self, limits: ConnectionLimits, **given: Any) -> None:  # noqa: ANN401 as uvicorn calls it
        super().__init__(**given)
        self._limits = limits
        self._address = ""
        self._in_head = True  # the next bytes belong to a head, which may not have begun
        self._is_awaited = True  # the time for the head runs
        self._unreported = 0  # bytes that the parser may keep, because they are part of nothing that it has reported
        self._received = 0  # bytes of the newest part: all of a head that is not in the former is in it
        self._problem: PyocoServerError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection; answer at once and close it if there are too many."""
        super().connection_made(CoalescingTransport(transport, is_read=lambda: self._in_head))
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        answer = self._limits.opened(self, self._address)
        if answer is not None:
            self.transport.write(answer)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._limits.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, unless the parser keeps too many of them."""
        if self.transport.is_lingering:  # the request was answered; the rest of it is dropped
            return
        self._received = len(data)
        self._unreported += self._received
        super().data_received(data)
        if self._unreported and not self.transport.is_closing():
            if self._unreported > LARGEST_HEAD:
                self._end_with(HeadTooLargeError(f"the head of the request has more than {LARGEST_HEAD} bytes"))
            elif self._in_head and not self._is_awaited:
                self._is_awaited = True
                self._limits.await_head(self)

    def on_headers_complete(self) -> None:
        """Serve the request, unless its head is too large."""
        if max(self._unreported, self._received) > LARGEST_HEAD or len(self.headers) > MOST_FIELDS:
            self._problem = problem_of_head(self.url, self.headers)
            if self._problem is not None:
                raise ValueError(str(self._problem))  # the parser stops, and send_400_response follows
        self._in_head, self._unreported = False, 0
        if self._is_awaited:
            self._is_awaited = False
            self._limits.head_complete(self)
        super().on_headers_complete()
        self.headers = []  # fields behind the body could replace what was checked before it

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        self._unreported = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect another head."""
        self._in_head, self._unreported = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that could not be parsed."""
        self._end_with(self._problem or RequestNotValidError(msg))

    def end_overdue(self, head_sec: float) -> None:
        """Answer that the head did not arrive; close without an answer if nothing of it did."""
        if self._unreported:
            self._end_with(HeadTooSlowError(f"the head of the request did not arrive within {head_sec:g} seconds"))
        else:  # browsers open connections in advance
            self.transport.close()

    def _end_with(self, error: PyocoServerError) -> None:
        self._in_head = False
        answer = self._limits.refused(error, self._address)
        if self.cycle is None or self.cycle.response_complete:  # else it would become a part of another answer
            self.transport.write(answer)
        self.transport.close()


def http_protocol(limits: ConnectionLimits | None = None) -> Any:  # noqa: ANN401 as uvicorn.Config takes it
    """Return the protocol for ``uvicorn.Config(http=…)``; uvicorn's own, with one warning, if the check failed."""
    if not PROBLEMS:
        return functools.partial(LimitedProtocol, limits or ConnectionLimits())
    _log.warning(
        "uvicorn %s differs from the tested versions (%s): %s; its own protocol is used, which is slower",
        importlib.metadata.version("uvicorn"),
        TESTED_VERSIONS,
        "; ".join(PROBLEMS),
        extra={"action": "http_protocol_stock"},
    )
    return STOCK

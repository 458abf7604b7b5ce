"""Bounds what a connection may cost before its request is one: size and age of the head, and how many there are.

The protocol in ``write_coalescing`` reports to :class:`ConnectionLimits`; nothing here depends on uvicorn. ADR 0027.
"""

import asyncio
import contextlib
import logging
import resource
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import (
    HeadTooLargeError,
    RequestNotValidError,
    TooManyError,
    status_and_body,
)
from pyoco_server.gateway.middleware.refusals import RefusalLog
from pyoco_server.messages import Language, server_language
from pyoco_server.settings import Settings

_log = logging.getLogger(__name__)
LARGEST_HEAD: Final = 64 * 1024
"""The most bytes of the request line and all header fields together."""
MOST_FIELDS: Final = 100
"""The most header fields of a request."""
RESERVED_FILES: Final = 256
"""File descriptors that connections leave for NATS, the index, uploads and the modules of Python."""

_REASONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
}


class HttpConnection(Protocol):
    """A connection, as its protocol implements it."""

    def end_overdue(self, head_sec: float) -> None:
        """Close the connection, because its head has not arrived in time."""


class ConnectionLimits:
    """Counts the connections of one server, in total and by address, and ends those whose head does not arrive."""

    def __init__(
        self,
        *,
        most: int = 10_000,
        most_per_address: int = 5_000,
        head_sec: float = 10.0,
        language: Language = Language.EN,
    ) -> None:
        """``most_per_address`` is 0 for no limit."""
        self.most = most
        self.most_per_address = most_per_address
        self._head_sec = head_sec
        self._language = language
        self._by_address: Counter[str] = Counter()
        self._open: dict[HttpConnection, str] = {}
        self._awaited: dict[HttpConnection, float] = {}
        """Connections whose head is incomplete, oldest first, with the time at which they are ended."""
        self._timer: asyncio.TimerHandle | None = None
        self._refusals = RefusalLog(_log)

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def opened(self, connection: HttpConnection, address: str) -> bytes | None:
        """Count a new connection and wait for its first head; returns an answer if there are too many."""
        if len(self._open) >= self.most:
            return self.refused(TooManyError(f"{self.most} connections are open already; try again later"), address)
        if 0 < self.most_per_address <= self._by_address[address]:
            text = f"{self.most_per_address} connections are open from this address already; close some of them first"
            return self.refused(TooManyError(text), address)
        self._open[connection] = address
        self._by_address[address] += 1
        self.await_head(connection)
        return None

    def closed(self, connection: HttpConnection) -> None:
        """Forget a connection."""
        self._awaited.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def await_head(self, connection: HttpConnection) -> None:
        """Start the time in which the head of the next request must be complete, if it has not started yet."""
        if connection in self._awaited:
            return
        loop = asyncio.get_running_loop()
        self._awaited[connection] = loop.time() + self._head_sec
        if self._timer is None:
            self._timer = loop.call_later(self._head_sec, self._end_overdue)

    def head_complete(self, connection: HttpConnection) -> None:
        """Stop waiting for a head."""
        self._awaited.pop(connection, None)

    def refused(self, error: PyocoServerError, address: str) -> bytes:
        """Log the refusal of a request that has no complete head, and return the whole answer to it."""
        status, body = status_and_body(error, self._language)
        status = 400 if isinstance(error, RequestNotValidError) else status
        self._refusals.write(error, body["error"]["err_id"], {"client": (address, 0)}, status=status)
        return _answer(status, body)

    def _end_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._awaited:
            connection, due = next(iter(self._awaited.items()))
            if due > now:
                self._timer = loop.call_at(due, self._end_overdue)
                return
            del self._awaited[connection]
            connection.end_overdue(self._head_sec)
        self._timer = None


def problem_of_head(url: bytes, fields: Iterable[tuple[bytes, bytes]]) -> PyocoServerError | None:
    """Return the error if the head of a request is larger than any that is accepted."""
    count, size = 0, len(url)
    for name, value in fields:
        count += 1
        size += len(name) + len(value) + 4
    if size > LARGEST_HEAD:
        return HeadTooLargeError(f"the head of the request has more than {LARGEST_HEAD} bytes")
    if count > MOST_FIELDS:
        return HeadTooLargeError(f"the request has more than {MOST_FIELDS} header fields")
    return None


def _answer(status: int, body: dict[str, Any]) -> bytes:
    content = msgspec.json.encode(body)
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n"
    )
    retry = "retry-after: 1\r\n" if status == 429 else ""
    return f"{head}{retry}\r\n".encode() + content


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits that the settings ask for, as far as the process may open so many files."""
    http = settings.http
    most = min(http.max_connections, max(1, _raised_file_limit(http.max_connections + RESERVED_FILES) - RESERVED_FILES))
    if most < http.max_connections:
        _log.warning(
            "PYOCO_HTTP_MAX_CONNECTIONS=%d is more than the limit of open files allows: %d connections are accepted; "
            "raise the limit (LimitNOFILE of systemd, ulimit -n)",
            http.max_connections,
            most,
            extra={"action": "connections_limited"},
        )
    return ConnectionLimits(
        most=most,
        most_per_address=http.max_connections_per_address and min(http.max_connections_per_address, max(1, most // 2)),
        head_sec=http.head_timeout_sec,
        language=server_language(http.language),
    )


def _raised_file_limit(wanted: int) -> int:
    """Raise the soft limit of open files to what is wanted, as far as the hard limit allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # a system may allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == unlimited else soft

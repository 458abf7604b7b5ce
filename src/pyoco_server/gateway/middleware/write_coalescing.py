"""Sends the head and the body of an HTTP response in one write.

uvicorn writes one after the other, and each write is handed to the system at once: two system calls, two packets, and a
client that wakes up twice. This is the only module that extends a class of uvicorn. :func:`problems` compares the
installed version with what that needs, once, at import; if it finds a difference, :func:`http_protocol` returns
uvicorn's own protocol, which is slower. See ADR 0024.
"""

import asyncio
import functools
import importlib
import importlib.metadata
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

from typing_extensions import override

_log = logging.getLogger(__name__)

TESTED_VERSIONS: Final = "0.32 to 0.54"
"""The versions of uvicorn that this was tested with."""

STOCK: Final = "auto"
"""uvicorn's name for its own choice of a protocol."""

_MOST_BYTES: Final = 64 * 1024
"""More than this is not kept back, so that uvicorn pauses when the client does not read."""

_PROTOCOL: Final = ("uvicorn.protocols.http.httptools_impl", "HttpToolsProtocol")
_USES: Final = {
    "connection_made": {"transport", "connections", "FlowControl"},
    "connection_lost": {"transport", "connections"},
}
"""Names that methods of the protocol use: it keeps the transport that it is given, and closes that one."""


class CoalescingTransport(asyncio.Transport):
    """Sends everything that is written in one turn of the event loop in one write."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes | bytearray | memoryview] = []
        self._bytes = 0

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data:
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
        self._inner.close()

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
        return self._inner.is_closing()

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


@functools.cache
def http_protocol() -> Any:  # noqa: ANN401 as uvicorn.Config takes it
    """Return the protocol for ``uvicorn.Config(http=…)``; uvicorn's own, with one warning, if the check failed."""
    if PROBLEMS:
        _log.warning(
            "uvicorn %s differs from the tested versions (%s): %s; its own protocol is used, which is slower",
            importlib.metadata.version("uvicorn"),
            TESTED_VERSIONS,
            "; ".join(PROBLEMS),
            extra={"action": "http_protocol_stock"},
        )
        return STOCK
    protocol = _uvicorn_protocol()

    def connection_made(self: Any, transport: asyncio.Transport) -> None:  # noqa: ANN401 an instance of the class below
        protocol.connection_made(self, CoalescingTransport(transport))

    return type("CoalescingProtocol", (protocol,), {"connection_made": connection_made})

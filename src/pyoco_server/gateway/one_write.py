"""HTTP answers in one piece: head and body leave together.

Uvicorn writes them one after the other, and each is handed to the system at once: two system calls, two packets, and a
client that is woken twice.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_BYTES: Final = 64 * 1024
"""More than this is not kept back, so that whoever writes learns when the client does not read."""


class OneWriteProtocol(HttpToolsProtocol):
    """Uvicorn's, on a transport that gathers."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(GatheringTransport(transport))


class GatheringTransport(asyncio.Transport):
    """Sends what is written in one turn of the event loop in one go."""

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

    # --- As it is ----------------------------------------------------------------------------------------------------

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

"""HTTP/1.1 on connections that are kept open, with as little work as it allows; the same for all who speak it."""

import asyncio
import json
import time
from typing import Any

FRESH_SEC = 2.0


class NotNowError(RuntimeError):
    """The server says that it cannot answer at the moment."""


class Http:
    """One server, as many connections as there are requests at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 any JSON
        """Send a request and return the JSON that came back, or None."""
        content = b"" if body is None else json.dumps(body).encode()
        kind_header = "" if body is None else "Content-Type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: application/json\r\n{kind_header}"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        reader, writer = await self._connection()
        writer.write(request)
        status, answer = await _read(reader)
        self._free.append((time.monotonic(), reader, writer))
        if not 200 <= status < 300:
            kind = NotNowError if status == 503 else RuntimeError
            raise kind(f"{method} {path}: {status} {answer[:500].decode(errors='replace')}")
        return json.loads(answer) if answer else None

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection that was used recently, or a new one: servers close idle connections."""
        while self._free:
            used_at, reader, writer = self._free.pop()
            if time.monotonic() - used_at < FRESH_SEC:
                return reader, writer
            writer.transport.abort()
        return await asyncio.open_connection("127.0.0.1", self._port)


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    if b"transfer-encoding: chunked" in head:
        return status, await _chunks(reader)
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return status, await reader.readexactly(int(length)) if length else b""


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    read = bytearray()
    while size := int(await reader.readuntil(b"\r\n"), 16):
        read += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return bytes(read)

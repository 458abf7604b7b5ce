"""Reads server-sent events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx


class SentEvent(NamedTuple):
    """An event as it was received."""

    name: str
    data: dict[str, Any]

    @property
    def status(self) -> str:
        """The status of its snapshot."""
        status: str = self.data["snapshot"]["status"]
        return status


def events(answer: httpx.Response) -> Iterator[SentEvent]:
    """Yield the events of a stream."""
    name, data = "", ""
    for line in answer.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = value
        else:
            assert line == "", line
            yield SentEvent(name, json.loads(data))


@contextlib.contextmanager
def watch(client: httpx.Client, run_id: str, **query: Any) -> Iterator[Iterator[SentEvent]]:
    """Watch a run."""
    with client.stream("GET", f"/runs/{run_id}/watch", params=query) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield events(answer)


class Watching:
    """A minimal connection that watches a run: tests open very many of them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._last = ""

    async def next(self, name: str = "snapshot") -> dict[str, Any]:
        """Return the next event of this name."""
        while True:
            line = (await self._reader.readline()).decode()
            assert line, f"the stream ended after {self._last!r}"
            self._last = line
            if line.startswith(f"event: {name}"):
                data: dict[str, Any] = json.loads((await self._reader.readline()).decode().removeprefix("data: "))
                return data

    async def status(self) -> int:
        """Return the HTTP status."""
        return int((await self._reader.readline()).split()[1])

    def leave(self) -> None:
        """Close the connection, at once."""
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def watching(url: str, run_id: str, query: str = "", *, limit: int = 2**16) -> AsyncIterator[Watching]:
    """Watch a run until the end of ``with``."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=limit)
    writer.write(f"GET /runs/{run_id}/watch?{query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
    made = Watching(reader, writer)
    try:
        yield made
    finally:
        made.leave()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

"""Server-sent events: a response that goes on, and that a reader who has stopped reading cannot hold open."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from pyoco_server.core.wire import JsonObject

SEND_TIMEOUT_SEC: Final = 20.0
"""A reader that takes nothing for so long is gone, whatever its connection says."""


def event(name: str, data: JsonObject, *, event_id: str | None = None) -> bytes:
    """One event as it goes over the wire."""
    identity = b"" if event_id is None else b"id: " + event_id.encode() + b"\n"
    return identity + b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """Sends events until they end, the reader leaves, or stops reading."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send), name="event stream")
        leaving = asyncio.create_task(_left(receive), name="event stream reader")
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if sending.done() and not sending.cancelled() and sending.exception() is not None:
            sending.result()

    async def _send(self, send: Send) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_SEC):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in self._events:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_SEC):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except (TimeoutError, OSError):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""Server-sent events: a response of bounded memory, also for a reader that stops reading."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

SEND_TIMEOUT_SEC: Final = 20.0
"""A reader that takes nothing for so long is sent nothing more."""

STUCK_SEC: Final = 600.0
"""Its connection is closed after so long; the operating system drops what is still in its buffers."""

Events = AsyncGenerator[bytes, None]


def event(name: str, data: dict[str, Any]) -> bytes:
    """Encode one event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """Sends events until they end, the reader leaves, or stops reading.

    ``events`` is opened before anything is sent, so that an error there becomes an error answer; it stays open as long
    as the connection, whether the reader reads or not.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AbstractAsyncContextManager[Events]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._events as events:
            leaving = asyncio.create_task(left(receive), name="event stream reader")
            sending = asyncio.create_task(self._send(events, send), name="event stream")
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and not sending.cancelled() and isinstance(sending.exception(), TimeoutError):
                    # It counts as a watcher as long as it is connected.
                    await asyncio.wait({leaving}, timeout=STUCK_SEC)
            finally:
                sending.cancel()
                leaving.cancel()
                ends = await asyncio.gather(sending, leaving, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, OSError | TimeoutError):
                raise end

    async def _send(self, events: Events, send: Send) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_SEC):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in events:
            async with asyncio.timeout(SEND_TIMEOUT_SEC):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def left(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass

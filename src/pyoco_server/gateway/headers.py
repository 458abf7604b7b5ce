"""Headers a request may have: the key under which it is handled once, and what it is a part of."""

import re
from typing import Annotated, Final

from fastapi import Header
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CORRELATION: Final = "X-Correlation-Id"
PRINTABLE: Final = r"^[\x21-\x7e]{1,200}$"
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]{1,200}")

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=PRINTABLE,
        description="The same request again under the same key is handled once.",
        examples=["order-4711"],
    ),
]
Correlation = Annotated[
    str | None,
    Header(
        alias=CORRELATION,
        pattern=PRINTABLE,
        description="What the request is a part of; kept in the events it leads to, and sent back.",
        examples=["req-0815"],
    ),
]


class CorrelationEcho:
    """Sends the request's correlation id back, whatever the answer is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        given = Headers(scope=scope).get(CORRELATION) if scope["type"] == "http" else None
        if given is None or _PRINTABLE.fullmatch(given) is None:
            await self._app(scope, receive, send)
            return

        async def send_back(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[CORRELATION] = given
            await send(message)

        await self._app(scope, receive, send_back)

"""Adds headers that forbid browsers to run foreign code, to show an answer in a frame, and to cache it."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
_ALWAYS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_CLOSING: Final = frozenset({401, 413, 431})
"""After these answers the connection is closed: the rest of the request is not read."""


class SecurityHeaders:
    """Adds each header that an answer does not have. It is the outermost layer, so that no answer lacks them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add(message)
            await send(message)

        await self._app(scope, receive, with_headers)


def _add(start: Message) -> None:
    headers = [*start["headers"]]
    present = {name.lower() for name, _ in headers}
    if start["status"] in _CLOSING and b"connection" not in present:
        headers.append((b"connection", b"close"))
    start["headers"] = headers + [header for header in _ALWAYS if header[0] not in present]

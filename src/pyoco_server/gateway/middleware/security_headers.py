"""Adds headers that forbid browsers to run foreign code, to show an answer in a frame, and to cache it."""

import base64
import hashlib
import re
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
DOCS_PATH: Final = "/docs"
"""The one page with foreign code; its policy names the origin, and its inline script by hash."""

_CDN: Final = "https://cdn.jsdelivr.net/npm/"
_INLINE_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
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
        page: Message | None = None

        async def with_headers(message: Message) -> None:
            nonlocal page
            if message["type"] == "http.response.start":
                if scope["path"] == DOCS_PATH and _is_html(message):
                    page = message  # its policy depends on its body
                    return
                _add(message)
            elif page is not None:
                MutableHeaders(scope=page)["Content-Security-Policy"] = _docs_policy(message.get("body", b""))
                _add(page)
                start, page = page, None
                await send(start)
            await send(message)

        await self._app(scope, receive, with_headers)


def _add(start: Message) -> None:
    headers = [*start["headers"]]
    present = {name.lower() for name, _ in headers}
    if start["status"] in _CLOSING and b"connection" not in present:
        headers.append((b"connection", b"close"))
    start["headers"] = headers + [header for header in _ALWAYS if header[0] not in present]


def _is_html(start: Message) -> bool:
    return MutableHeaders(scope=start).get("content-type", "").startswith("text/html")


def _docs_policy(html: bytes) -> str:
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE_SCRIPT.findall(html)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'self'; script-src {_CDN} {scripts}; style-src {_CDN} 'unsafe-inline'; "
        "img-src 'self' data: https://fastapi.tiangolo.com; "
        "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )

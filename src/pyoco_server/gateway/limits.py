"""Requests have a largest size; one that is larger is refused before it is read."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.gateway.errors import BodyTooLargeError, answer_to

DEFAULT_BYTES: Final = 2 * 1024 * 1024
UPLOADS: Final = ("/wheels",)
"""Where files come in; these routes have a limit of their own."""


class BodyLimit:
    """Counts what comes in; a header that lies about the length does not help."""

    def __init__(self, app: ASGIApp, *, most: int = DEFAULT_BYTES) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"].startswith(UPLOADS):
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._most:
            await answer_to(scope, self._error())(scope, receive, send)
            return
        came = 0
        answered = False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most:
                raise self._error()
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except BodyTooLargeError as error:
            if answered:
                raise
            await answer_to(scope, error)(scope, receive, send)

    def _error(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the request has more than {self._most} bytes; send less at a time")

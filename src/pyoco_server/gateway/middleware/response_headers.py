"""Adds headers to answers: ``Allow`` to a 405, and the correlation id of the request to every answer."""

from collections.abc import Callable, Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.gateway.schemas.parameters import CORRELATION
from pyoco_server.identifiers import REQUEST_KEY

_NOT_ALLOWED: Final = 405
_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class AllowedMethods:
    """Makes every 405 name all methods of its path: several routers share paths, and each knows only its own."""

    def __init__(self, app: ASGIApp, routes: Callable[[], Sequence[BaseRoute]]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and complete its answer if that is a 405."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        original = dict(scope)  # routing changes it

        async def send_with_all(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _NOT_ALLOWED:
                MutableHeaders(scope=message)["Allow"] = ", ".join(self._methods(original))
            await send(message)

        await self._app(scope, receive, send_with_all)

    def _methods(self, scope: Scope) -> list[str]:
        return [
            method
            for method in _METHODS
            if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in self._routes())
        ]


class CorrelationEcho:
    """Returns the request's correlation id with every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        given = Headers(scope=scope).get(CORRELATION) if scope["type"] == "http" else None
        if given is None or not REQUEST_KEY.fits(given):
            await self._app(scope, receive, send)
            return

        async def send_back(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[CORRELATION] = given
            await send(message)

        await self._app(scope, receive, send_back)

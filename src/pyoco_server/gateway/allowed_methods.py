"""What may be done with a path: several routers share some, and each knows of its own methods only."""

from collections.abc import Callable, Sequence
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NOT_ALLOWED: Final = 405
_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class AllowedMethods:
    """Lets every 405 name all methods of its path."""

    def __init__(self, app: ASGIApp, routes: Callable[[], Sequence[BaseRoute]]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at how it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = dict(scope)  # routing changes it

        async def send_with_all(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _NOT_ALLOWED:
                MutableHeaders(scope=message)["Allow"] = ", ".join(self._methods(asked))
            await send(message)

        await self._app(scope, receive, send_with_all)

    def _methods(self, scope: Scope) -> list[str]:
        return [
            method
            for method in _METHODS
            if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in self._routes())
        ]

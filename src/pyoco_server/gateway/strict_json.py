"""JSON bodies, read strictly: what is not JSON to everybody is not JSON to us."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _StrictRequest(Request):
    @override
    async def json(self) -> Any:
        """The body; no NaN, no half surrogate pairs, nothing but UTF-8, and not nested without end."""
        try:
            return msgspec.json.decode(await self.body())
        except RecursionError as error:
            raise json.JSONDecodeError("nested too deeply", "", 0) from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    """A route whose JSON is read strictly, and many times faster."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


def quick_route(quickly: Callable[[Request], Coroutine[Any, Any, Response | None]]) -> type[APIRoute]:
    """A strict route that first asks ``quickly``, which answers or returns None for what it leaves to the framework."""

    class QuickRoute(APIRoute):
        @override
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def handle_quickly(request: Request) -> Response:
                strict = _StrictRequest(request.scope, request.receive)  # reads its body once, for both
                return await quickly(strict) or await handle(strict)

            return handle_quickly

    return QuickRoute

"""JSON bodies, decoded strictly: extensions of JSON that some parsers accept are refused."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from typing_extensions import override

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _StrictRequest(Request):
    @override
    async def json(self) -> Any:
        """Decode the body; refuse NaN, lone surrogates, other encodings than UTF-8, and too deep nesting."""
        return _decode(await self.body())


def _decode(body: bytes) -> Any:  # noqa: ANN401 any JSON
    try:
        return msgspec.json.decode(body)
    except RecursionError as error:
        raise json.JSONDecodeError("nested too deeply", "", 0) from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    """A route whose JSON is decoded strictly, and many times faster than by FastAPI."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


async def read_json(request: Request) -> Any:  # noqa: ANN401 any JSON
    """Return the JSON body of a request, its bytes if they are not said to be JSON, None if there is no body.

    RequestValidationError if it is not JSON.
    """
    try:
        body = await request.body()
        if not body:
            return None
        return _decode(body) if _is_json(request) else body
    except json.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
        raise RequestValidationError([{**problem, "ctx": {"error": error.msg}}], body=error.doc) from error
    except ClientDisconnect as error:  # there is no client to answer
        raise HTTPException(400, "There was an error parsing the body") from error


def _is_json(request: Request) -> bool:
    main, _, subtype = request.headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
    return main == "application" and (subtype == "json" or subtype.endswith("+json"))

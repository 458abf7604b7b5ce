"""The OpenAPI document, completed with the headers that every route takes and returns."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pyoco_server.gateway.schemas.parameters import CORRELATION, PRINTABLE

_LANGUAGE: Final[dict[str, Any]] = {
    "name": "Accept-Language",
    "in": "header",
    "required": False,
    "description": "The language of error messages: `ja` (default) or `en`.",
    "schema": {"type": "string", "examples": ["en"]},
}
_CORRELATION: Final[dict[str, Any]] = {
    "name": CORRELATION,
    "in": "header",
    "required": False,
    "description": "The id of a larger operation that the request belongs to; returned with the answer.",
    "schema": {"type": "string", "pattern": PRINTABLE},
}
_ECHO: Final[dict[str, Any]] = {
    "description": "As in the request.",
    "required": False,
    "schema": {"type": "string"},
}
_METHODS: Final = ("get", "post", "put", "patch", "delete")


def install(app: FastAPI) -> None:
    """Make the application serve the completed document."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # how FastAPI wants it


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    for path in schema["paths"].values():
        for method in _METHODS:
            if method in path:
                _complete_operation(path[method])
    return schema


def _complete_operation(operation: dict[str, Any]) -> None:
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    known = {parameter["name"] for parameter in parameters}
    parameters.extend(header for header in (_LANGUAGE, _CORRELATION) if header["name"] not in known)
    for answer in operation["responses"].values():
        answer.setdefault("headers", {})[CORRELATION] = _ECHO

"""Refuses a body before it is read: larger than the limit of its route, or of a type that the route does not take."""

from typing import Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import BodyTooLargeError, YamlTooLargeError, answer_to, answer_to_invalid

DEFAULT_BYTES: Final = 2 * 1024 * 1024
AROUND_YAML_BYTES: Final = 64 * 1024
"""The most bytes of a form around its flow.yaml: a name, a tag, and the separators."""
UPLOADS: Final = ("/wheels",)
"""Routes of uploads, which have a limit of their own."""
YAML: Final = "/runs/yaml"
FORMS: Final = frozenset({YAML, "/wheels"})
"""The routes that take a form; all other bodies are JSON."""

_OF_FORMS: Final = frozenset({"multipart/form-data", "application/x-www-form-urlencoded", "text/plain"})
"""The types that a browser sends to other sites without asking them."""


class BodyLimit:
    """Counts the bytes of a body as they arrive; a false Content-Length does not get past it."""

    def __init__(self, app: ASGIApp, *, most: int = DEFAULT_BYTES) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and _is_of_wrong_type(scope):
            wanted = "multipart/form-data" if scope["path"] in FORMS else "application/json"
            message = f"the body was not read: send it with Content-Type: {wanted}"
            problem = {"type": "content_type", "loc": ("header", "Content-Type"), "msg": message}
            await answer_to_invalid(Request(scope), RequestValidationError([problem]))(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"].startswith(UPLOADS):
            await self._app(scope, receive, send)
            return
        most, error = self._limit(scope)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > most):
            await answer_to(scope, error)(scope, receive, send)
            return
        received, begun = 0, False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise error
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            if received <= most or begun:  # else the application answered the error that was raised above
                begun = True
                await send(message)

        try:
            await self._app(scope, counted, noted)
        except type(error):
            if begun or received <= most:
                raise
        if received > most and not begun:
            await answer_to(scope, error)(scope, receive, send)

    def _limit(self, scope: Scope) -> tuple[int, PyocoServerError]:
        """Return the limit of a request, and the error if it is larger."""
        if scope["path"] == YAML:
            most: int = scope["app"].state.services.settings.http.workflow_yaml_max_bytes
            text = f"workflow: more than {most} bytes; make it smaller, or raise PYOCO_WORKFLOW_YAML_MAX_BYTES"
            return most + AROUND_YAML_BYTES, YamlTooLargeError(text)
        return self._most, BodyTooLargeError(f"the request has more than {self._most} bytes; send less at a time")


def _is_of_wrong_type(scope: Scope) -> bool:
    """Whether the request has a body of a type that only routes with forms take."""
    if scope["method"] == "GET":
        return False
    kind, has_body = b"", False
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            has_body = True
    essence = kind.partition(b";")[0].strip().lower().decode("latin-1")
    return has_body and essence in _OF_FORMS and (essence != "multipart/form-data" or scope["path"] not in FORMS)

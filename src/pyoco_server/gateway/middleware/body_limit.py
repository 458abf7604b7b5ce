"""Refuses a request that is larger than the limit of its route before it is read."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import BodyTooLargeError, YamlTooLargeError, answer_to

DEFAULT_BYTES: Final = 2 * 1024 * 1024
AROUND_YAML_BYTES: Final = 64 * 1024
"""The most bytes of a form around its flow.yaml: a name, a tag, and the separators."""
UPLOADS: Final = ("/wheels",)
"""Routes of uploads, which have a limit of their own."""
YAML: Final = "/runs/yaml"


class BodyLimit:
    """Counts the bytes of a body as they arrive; a false Content-Length does not get past it."""

    def __init__(self, app: ASGIApp, *, most: int = DEFAULT_BYTES) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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

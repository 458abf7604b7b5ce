"""Requests have a largest size; one that is larger is refused before it is read."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import BodyTooLargeError, YamlTooLargeError, answer_to

DEFAULT_BYTES: Final = 2 * 1024 * 1024
AROUND_YAML_BYTES: Final = 64 * 1024
"""What a form may have around its flow.yaml: a name, a tag, and what separates them."""
UPLOADS: Final = ("/wheels",)
"""Where files come in; these routes have a limit of their own."""
YAML: Final = "/runs/yaml"


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
        most, error = self._limit(scope)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > most):
            await answer_to(scope, error)(scope, receive, send)
            return
        came, begun = 0, False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise error
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            if came <= most or begun:  # else whatever was made of our own error is not the answer
                begun = True
                await send(message)

        try:
            await self._app(scope, counted, noted)
        except type(error):
            if begun or came <= most:
                raise
        if came > most and not begun:
            await answer_to(scope, error)(scope, receive, send)

    def _limit(self, scope: Scope) -> tuple[int, PyocoServerError]:
        """How large the request may be, and what is said if it is larger."""
        if scope["path"] == YAML:
            most: int = scope["app"].state.services.settings.http.workflow_yaml_max_bytes
            told = f"workflow: more than {most} bytes; make it smaller, or raise PYOCO_WORKFLOW_YAML_MAX_BYTES"
            return most + AROUND_YAML_BYTES, YamlTooLargeError(told)
        return self._most, BodyTooLargeError(f"the request has more than {self._most} bytes; send less at a time")

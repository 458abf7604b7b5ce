"""Who gets in: every request is asked for its key before anything of it is read."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.app.key_errors import ApiKeyRefusedError, ApiKeyRequiredError, ScopeMissingError
from pyoco_server.app.key_ring import KeyRing
from pyoco_server.app.key_texts import key_id_of
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.auth_routes import is_open, scope_for
from pyoco_server.gateway.errors import answer_to
from pyoco_server.gateway.principal import STRANGER, Principal
from pyoco_server.gateway.rate_limits import LimitReachedError
from pyoco_server.gateway.services import Services

_log = logging.getLogger(__name__)
_POLICY_VIOLATION: Final = 1008


class Authentication:
    """Lets requests in that come with a key that counts, if keys are asked for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given: Services = scope["app"].state.services
        if given.settings.auth.mode == "none":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":  # there are none, and none gets in unseen
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif is_open(scope["path"]):
            scope.setdefault("state", {})["principal"] = STRANGER
            await self._app(scope, receive, send)
        else:
            await self._serve_known(given, scope, receive, send)

    async def _serve_known(self, given: Services, scope: Scope, receive: Receive, send: Send) -> None:
        presented = [
            text.encode("latin-1") for text in Headers(scope=scope).getlist(given.settings.auth.api_key_header)
        ]
        try:
            key = await self._recognised(given, scope, presented)
            end = given.limits.admit(key.api_key_id, asyncio.get_running_loop().time())
        except PyocoServerError as error:
            _note(error, presented, scope)
            await _refusal(scope, error)(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = Principal(
            tenant_id=key.tenant_id, api_key_id=key.api_key_id, scopes=frozenset(key.scopes)
        )
        answer = _WatchedAnswer(given.key_ring, presented[0], send, on_stream=end)
        try:
            await self._app(scope, receive, answer.send)
        except (ClientDisconnect, OSError):
            if not answer.is_cut_off:
                raise
        finally:
            end()

    async def _recognised(self, given: Services, scope: Scope, presented: list[bytes]) -> StoredKey:
        if not any(presented):
            raise ApiKeyRequiredError(f"send an API key in the header {given.settings.auth.api_key_header}")
        if len(presented) > 1:
            raise ApiKeyRefusedError("there is more than one API key in the request")
        key = await given.key_ring.recognise(presented[0])
        needed = scope_for(scope["path"])
        if needed is not None and needed not in key.scopes:
            raise ScopeMissingError(needed.value, key.scopes)
        return key


class _WatchedAnswer:
    """An answer on its way out. One that goes on for long ends when its key counts no more."""

    def __init__(self, ring: KeyRing, presented: bytes, send: Send, *, on_stream: Callable[[], None]) -> None:
        self._ring = ring
        self._presented = presented
        self._send = send
        self._on_stream = on_stream
        self._is_stream = False
        self._chunks = 0
        self.is_cut_off = False

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on, if it may still be seen."""
        if message["type"] == "http.response.start":
            self._is_stream = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
            if self._is_stream:  # those who watch have a limit of their own
                self._on_stream()
        elif self._chunks and not await self._still_counts():
            self.is_cut_off = True
            if self._is_stream:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise OSError("the API key counts no more")
        else:
            self._chunks += 1
        await self._send(message)

    async def _still_counts(self) -> bool:
        try:
            return await self._ring.still_counts(self._presented)
        except UnavailableError:
            return False


def _note(error: PyocoServerError, presented: list[bytes], scope: Scope) -> None:
    """Who was turned away, by what anybody may know: never the key, and no path, which somebody may have put one in."""
    if isinstance(error, ApiKeyRefusedError | ScopeMissingError):
        client = scope.get("client")
        extra = {
            "action": "request_refused",
            "err_id": error.err_id,
            "api_key_id": key_id_of(presented[0]),
            "remote_addr": client[0] if client else None,
        }
        _log.info("a request was refused: %s", error, extra=extra)


def _refusal(scope: Scope, error: PyocoServerError) -> Response:
    answer = answer_to(scope, error)
    if isinstance(error, LimitReachedError):
        answer.headers["Retry-After"] = str(error.retry_after_sec)
    if isinstance(error, ApiKeyRequiredError):
        answer.headers["WWW-Authenticate"] = "ApiKey"
    return answer

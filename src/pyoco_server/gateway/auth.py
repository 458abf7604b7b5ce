"""Who gets in: every request is asked for its key before anything of it is read."""

import asyncio
import logging
import math
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
from pyoco_server.gateway.services import Awaited, Services, at_hand
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
_POLICY_VIOLATION: Final = 1008
REFUSALS_SEC: Final = 60.0
MOST_REFUSALS: Final = 100
"""In so many seconds no more refusals than this are warned of; the rest is told to who debugs."""


class Authentication:
    """Lets requests in that come with a key that counts, if keys are asked for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._refusals = _Refusals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given: Services | Awaited = scope["app"].state.services
        if given.settings.auth.mode == "none":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":  # there are none, and none gets in unseen
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif is_open(scope["path"]):
            scope.setdefault("state", {})["principal"] = STRANGER
            await self._app(scope, receive, send)
        else:
            await self._serve_known(given, scope, receive, send)

    async def _serve_known(self, given: Services | Awaited, scope: Scope, receive: Receive, send: Send) -> None:
        header = given.settings.auth.api_key_header
        presented = [text.encode("latin-1") for text in Headers(scope=scope).getlist(header)]
        try:
            _check_is_one(presented, header)
            services = at_hand(given)
            key = await self._recognised(services, scope, presented[0])
            end = services.limits.admit(key.api_key_id, asyncio.get_running_loop().time())
        except PyocoServerError as error:
            if not isinstance(error, UnavailableError):
                self._refusals.tell(error, presented, scope)
            await _refusal(scope, error)(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = Principal(
            tenant_id=key.tenant_id, api_key_id=key.api_key_id, scopes=frozenset(key.scopes)
        )
        answer = _WatchedAnswer(services.key_ring, presented[0], send, on_stream=end)
        try:
            await self._app(scope, receive, answer.send)
        except (ClientDisconnect, OSError):
            if not answer.is_cut_off:
                raise
        finally:
            end()

    async def _recognised(self, given: Services, scope: Scope, presented: bytes) -> StoredKey:
        key = await given.key_ring.recognise(presented)
        needed = scope_for(scope["path"])
        if needed is not None and needed not in key.scopes:
            raise ScopeMissingError(needed.value, key.scopes)
        return key


def _check_is_one(presented: list[bytes], header: str) -> None:
    if not any(presented):
        raise ApiKeyRequiredError(f"send an API key in the header {header}")
    if len(presented) > 1:
        raise ApiKeyRefusedError("there is more than one API key in the request")


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


class _Refusals:
    """Tells who was turned away: loudly for so many a minute, since whoever guesses keys must not fill the disk."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._told = 0

    def tell(self, error: PyocoServerError, presented: list[bytes], scope: Scope) -> None:
        """By what anybody may know: never the key, and no path, which somebody may have put one in."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= REFUSALS_SEC:
            self._since, self._told = now, 0
        self._told += 1
        client = scope.get("client")
        log_error(
            _log,
            error.err_id or "ERR-PYOCO-0015",
            action="request_refused",
            exc=error,
            level=logging.WARNING if self._told <= MOST_REFUSALS else logging.DEBUG,
            one_line=True,
            reason=str(error),
            api_key_id=key_id_of(presented[0]) if presented else None,
            remote_addr=client[0] if client else None,
            **({"note": "for a while, more are told at DEBUG only"} if self._told == MOST_REFUSALS else {}),
        )


def _refusal(scope: Scope, error: PyocoServerError) -> Response:
    answer = answer_to(scope, error, is_logged=not isinstance(error, UnavailableError))
    if isinstance(error, LimitReachedError):
        answer.headers["Retry-After"] = str(error.retry_after_sec)
    if isinstance(error, ApiKeyRequiredError):
        answer.headers["WWW-Authenticate"] = "ApiKey"
    return answer

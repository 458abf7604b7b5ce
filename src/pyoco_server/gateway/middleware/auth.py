"""Authentication: every request must present its API key before anything of it is read.

This module lists the open paths and the scopes of the others. A path that is not listed needs a key, too.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyoco_server.app.api_keys.cache import FRESH_SEC, KeyCache
from pyoco_server.app.api_keys.errors import ApiKeyRefusedError, ApiKeyRequiredError, ScopeMissingError
from pyoco_server.app.api_keys.format import KeyScope, key_id_of
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import answer_to
from pyoco_server.gateway.key_limits import LimitReachedError
from pyoco_server.gateway.middleware.refusals import RefusalLog
from pyoco_server.gateway.principal import STRANGER, Principal
from pyoco_server.gateway.services import Awaited, Services, services_of

OPEN_PATHS: Final = frozenset({"/", "/health", "/health/ready"})
OPEN_FOLDER: Final = "/static/"

SCOPES: Final = {
    "runs": KeyScope.RUNS,
    "executions": KeyScope.RUNS,
    "graphs": KeyScope.RUNS,
    "workers": KeyScope.OPERATE,
    "metrics": KeyScope.OPERATE,
    "dlq": KeyScope.OPERATE,
    "wheels": KeyScope.WHEELS,
}
"""The scope by the first part of the path."""


def is_open(path: str) -> bool:
    """Whether a path needs no key: only the dashboard, where users enter their key, and the health checks."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def scope_for(path: str) -> KeyScope | None:
    """Return the scope that a path needs; None if any key opens it (it is not found, or describes the API)."""
    first, *others = path.removeprefix("/").split("/")
    if first in {"runs", "executions"} and len(others) == 2 and others[1] == "archive":
        return KeyScope.OPERATE
    if first == "runs" and others == ["yaml"]:
        return KeyScope.YAML
    return SCOPES.get(first)


_log = logging.getLogger(__name__)
_POLICY_VIOLATION: Final = 1008


class Authentication:
    """Admits requests with a valid key, if keys are required."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._refusals = RefusalLog(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        services: Services | Awaited = scope["app"].state.services
        if services.settings.auth.mode == "none":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":  # no route has a websocket, and none is open without a key
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif is_open(scope["path"]):
            scope.setdefault("state", {})["principal"] = STRANGER
            await self._app(scope, receive, send)
        else:
            await self._authenticate(services, scope, receive, send)

    async def _authenticate(self, services: Services | Awaited, scope: Scope, receive: Receive, send: Send) -> None:
        header = services.settings.auth.api_key_header
        presented = [text.encode("latin-1") for text in Headers(scope=scope).getlist(header)]
        try:
            _check_is_one(presented, header)
            services = services_of(services)
            key = await self._recognised(services, scope, presented[0])
            end = services.limits.admit(key.api_key_id, asyncio.get_running_loop().time())
        except PyocoServerError as error:
            if not isinstance(error, UnavailableError):
                presented_id = key_id_of(presented[0]) if presented else None
                self._refusals.write(error, error.err_id or "ERR-PYOCO-0015", scope, api_key_id=presented_id)
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
            if answer.refused is not None:
                self._refusals.write(answer.refused, "ERR-PYOCO-0015", scope, api_key_id=key.api_key_id)
                await _refusal(scope, answer.refused)(scope, receive, send)
        finally:
            end()

    async def _recognised(self, services: Services, scope: Scope, presented: bytes) -> StoredKey:
        key = await services.key_ring.recognise(presented)
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
    """An answer while it is sent; when its key is withdrawn, a stream is closed, and a late answer is not sent."""

    def __init__(self, ring: KeyCache, presented: bytes, send: Send, *, on_stream: Callable[[], None]) -> None:
        self._ring = ring
        self._presented = presented
        self._send = send
        self._on_stream = on_stream
        self._is_stream = False
        self._chunks = 0
        self._checked_at = asyncio.get_running_loop().time()
        self._version = ring.version
        self.is_cut_off = False
        self.refused: ApiKeyRefusedError | None = None
        """Why nothing of the answer was sent."""

    async def send(self, message: Message) -> None:
        """Send a part of the answer, unless the key was withdrawn."""
        if message["type"] == "http.response.start":
            is_late = asyncio.get_running_loop().time() - self._checked_at >= FRESH_SEC
            if is_late or self._ring.version != self._version:
                await self._check_again()
            self._is_stream = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
            if self._is_stream:  # streams are limited by the hub
                self._on_stream()
        elif (self._chunks or self._is_stream) and not await self._still_counts():
            self.is_cut_off = True
            if self._is_stream:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise OSError("the API key is no longer valid")
        else:
            self._chunks += 1
        await self._send(message)

    async def _check_again(self) -> None:
        """Check the key of a request that took long, or whose key may have been withdrawn meanwhile.

        Without NATS the answer is sent: its key was valid when the request came.
        """
        try:
            await self._ring.recognise(self._presented)
        except UnavailableError:
            return
        except ApiKeyRefusedError as error:
            self.is_cut_off, self.refused = True, error
            raise OSError("the API key is no longer valid") from error

    async def _still_counts(self) -> bool:
        try:
            return await self._ring.still_counts(self._presented)
        except UnavailableError:
            return False


def _refusal(scope: Scope, error: PyocoServerError) -> Response:
    answer = answer_to(scope, error, is_logged=not isinstance(error, UnavailableError))
    if isinstance(error, LimitReachedError):
        answer.headers["Retry-After"] = str(error.retry_after_sec)
    if isinstance(error, ApiKeyRequiredError):
        answer.headers["WWW-Authenticate"] = "ApiKey"
    return answer

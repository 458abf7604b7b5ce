"""``create_app`` of 0.5.1: the gateway as an ASGI application, for ``uvicorn pyoco_server.http_api:create_app``.

Configured by the environment. ``pyoco-server up`` does the same and more: it waits for a NATS server that is away,
keeps its index over a restart, ends connections that wait when it stops, and bounds connections and request heads.
"""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import deprecated

from pyoco_server.app.api_keys.errors import ApiKeyRequiredError
from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.cli.shared.startup import begin_logging
from pyoco_server.gateway.app import create_app as gateway_app
from pyoco_server.gateway.errors import answer_to
from pyoco_server.gateway.exposure import is_loopback
from pyoco_server.gateway.services import Services
from pyoco_server.logs import HTTP_SERVICE
from pyoco_server.settings import Settings, load_settings


@deprecated("pyoco_server.http_api.create_app is kept for programs written for 0.5.1: run 'pyoco-server up'")
def create_app() -> FastAPI:
    """Return the gateway; SettingsError if a variable is not valid. It fails to start while NATS is away."""
    loaded = load_settings()
    begin_logging(loaded, HTTP_SERVICE)
    app = gateway_app(lambda: _opened(loaded.settings))
    if loaded.settings.auth.mode == "none" and not loaded.settings.auth.insecure_no_auth:
        app.add_middleware(_ThisMachineOnly)
    return app


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Services]:
    """The gateway's services, with an index of this process: a server may run the application several times."""
    with tempfile.TemporaryDirectory(prefix="pyoco-index-") as directory:
        storage = settings.storage.model_copy(update={"data_dir": Path(directory)})
        async with open_gateway(settings.model_copy(update={"storage": storage})) as services:
            yield services
            services.hub.close()


class _ThisMachineOnly:
    """Refuses requests that arrive on an address that other machines can reach, while no API key is required.

    The server around the application decides where it listens, so this cannot be checked at the start.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = (scope.get("server") or ("", None))[0] or ""
        if scope["type"] == "lifespan" or not _is_address(address) or is_loopback(address):
            await self._app(scope, receive, send)
            return
        error = ApiKeyRequiredError(
            f"the gateway listens on {address} and asks for no API keys: set PYOCO_HTTP_AUTH_MODE=api_key and create "
            "keys with 'pyoco-server keys create', or set PYOCO_INSECURE_NO_AUTH=1 if the network keeps others out"
        )
        await answer_to(scope, error)(scope, receive, send)


def _is_address(host: str) -> bool:
    """Whether this is the address of a socket; a test client gives a name."""
    return ":" in host or host.replace(".", "").isdigit()

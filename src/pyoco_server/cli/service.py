"""The gateway as a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import uvicorn

from pyoco_server.cli.usage import UsageError
from pyoco_server.gateway.app import create_app
from pyoco_server.gateway.services import Services
from pyoco_server.settings import Settings


def gateway_url(settings: Settings) -> str:
    """Where the gateway can be reached from this machine."""
    host, port = settings.http.host, settings.http.port
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 how to reach it
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


class GatewayServer:
    """The gateway, listening."""

    def __init__(self, services: Services) -> None:
        self._host, self._port = services.settings.http.host, services.settings.http.port
        config = uvicorn.Config(
            create_app(lambda: contextlib.nullcontext(services)),
            host=self._host,
            port=self._port,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # what a client says of itself is not believed
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=3,
        )
        self._server = _Server(config)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Listening as long as this is open; UsageError if it cannot, for example because the port is taken."""
        serving = asyncio.create_task(self._serve(), name="gateway")
        try:
            while not self._server.started and not serving.done():  # noqa: ASYNC110 uvicorn has no event for it
                await asyncio.sleep(0.01)
            if serving.done():
                serving.result()
            yield serving
        finally:
            self._server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)

    async def _serve(self) -> None:
        try:
            await self._server.serve()
        except SystemExit as error:  # how uvicorn says that it could not start; it has logged why
            raise UsageError(
                f"the gateway cannot listen on {self._host}:{self._port}: is the port taken? (see the log)",
                example=f"pyoco-server up --port {self._port + 1}",
            ) from error


class _Server(uvicorn.Server):
    """Leaves signals alone: whoever runs the gateway has more to stop than the gateway."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[explicit-override]  # needs Python 3.12
        """Nothing to capture."""
        yield

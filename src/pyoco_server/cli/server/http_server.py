"""The gateway as a server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

import uvicorn

from pyoco_server.adapters.jetstream.durability.connection import NotLetInError
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.app.ports import UnavailableError
from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.signals import running
from pyoco_server.cli.shared.startup import log_nats_awaited, opened
from pyoco_server.gateway.app import create_app
from pyoco_server.gateway.middleware.connections import LARGEST_HEAD, connection_limits
from pyoco_server.gateway.middleware.write_coalescing import http_protocol
from pyoco_server.gateway.services import Awaited, Services
from pyoco_server.logs.line_limit import limit_lines
from pyoco_server.settings import Settings

_log = logging.getLogger(__name__)


def gateway_url(settings: Settings) -> str:
    """Where the gateway can be reached from this machine."""
    host, port = settings.http.host, settings.http.port
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 how to reach it
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


class GatewayServer:
    """The gateway, listening."""

    def __init__(self, given: Services | Awaited, *, command: str = "pyoco-server up") -> None:
        self._command = command
        self._host, self._port = given.settings.http.host, given.settings.http.port
        self._app = create_app(lambda: contextlib.nullcontext(given))
        limit_lines("uvicorn.error", "asyncio")
        config = uvicorn.Config(
            self._app,
            host=self._host,
            port=self._port,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # what a client says of itself is not believed
            server_header=False,
            lifespan="on",
            http=http_protocol(connection_limits(given.settings)),
            ws="none",
            h11_max_incomplete_event_size=LARGEST_HEAD,
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
            given: Services | Awaited | None = getattr(self._app.state, "services", None)  # it may not have come so far
            if isinstance(given, Services):
                given.hub.close()
            await asyncio.gather(serving, return_exceptions=True)

    async def serve_when_possible(self, settings: Settings, own_nats: NatsServer | None) -> None:
        """Wait for NATS, and serve as long as this is not cancelled; raises what is wrong beside its absence."""
        async with contextlib.AsyncExitStack() as stack:
            self._app.state.services = await opened(
                stack, lambda: open_gateway(settings, own_nats=own_nats), is_logged=True
            )
            _log.info("NATS is there; requests are served", extra={"action": "nats_arrived"})
            await asyncio.Event().wait()

    async def _serve(self) -> None:
        try:
            await self._server.serve()
        except SystemExit as error:  # how uvicorn says that it could not start; it has logged why
            raise UsageError(
                f"the gateway cannot listen on {self._host}:{self._port}: is the port taken, perhaps by another one? "
                "(see the log); choose another with --port or PYOCO_HTTP_PORT",
                example=f"{self._command} --port {self._port + 1}",
            ) from error


@contextlib.asynccontextmanager
async def gateway_on(settings: Settings, own_nats: NatsServer | None) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run the gateway; when one of the tasks ends, the gateway has ended.

    Without NATS it listens, answers that NATS is not available, and serves as soon as it can connect.
    """
    async with contextlib.AsyncExitStack() as stack:
        given: Services | Awaited
        try:
            given = await stack.enter_async_context(open_gateway(settings, own_nats=own_nats))
        except NotLetInError:
            raise
        except UnavailableError as error:
            log_nats_awaited(error)
            given = Awaited(settings)
        gateway, tasks = GatewayServer(given), []
        if isinstance(given, Awaited):  # left after the server: what is being served is not taken away
            tasks.append(await stack.enter_async_context(running(gateway.serve_when_possible(settings, own_nats))))
        yield [*tasks, await stack.enter_async_context(gateway.running())]


class _Server(uvicorn.Server):
    """Does not handle signals: the command that runs the gateway does, and stops other parts as well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[explicit-override]  # needs Python 3.12
        """Nothing to capture."""
        yield

"""The application: routers, errors, limits; and what runs beside them."""

import importlib.metadata
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp
from typing_extensions import override

from pyoco_server.gateway import errors, openapi
from pyoco_server.gateway.allowed_methods import AllowedMethods
from pyoco_server.gateway.answers import documented
from pyoco_server.gateway.auth import Authentication
from pyoco_server.gateway.dashboard import router as dashboard
from pyoco_server.gateway.headers import CorrelationEcho
from pyoco_server.gateway.limits import BodyLimit
from pyoco_server.gateway.routers import (
    dlq,
    executions,
    graphs,
    health,
    metrics,
    run_events,
    run_outputs,
    runs_act,
    runs_read,
    runs_submit,
    runs_watch,
    runs_watch_all,
    runs_yaml,
    wheels,
    workers,
)
from pyoco_server.gateway.security_headers import SecurityHeaders
from pyoco_server.gateway.services import Awaited, Services
from pyoco_server.messages import server_language

_DESCRIPTION = "Durable workflows: submit runs, watch them, cancel them, resume them."
_OF_WHEELS = ("ERR-PYOCO-0002", "ERR-PYOCO-0022", "ERR-PYOCO-0023", "ERR-PYOCO-0101", "ERR-PYOCO-0003")
OpenServices = Callable[[], AbstractAsyncContextManager[Services | Awaited]]


class Gateway(FastAPI):
    """The application; what every answer must have is added outside of everything, also of what answers for crashes."""

    @override
    def build_middleware_stack(self) -> ASGIApp:
        return SecurityHeaders(AllowedMethods(super().build_middleware_stack(), lambda: self.routes))


def create_app(open_services: OpenServices) -> FastAPI:
    """The gateway; ``open_services`` is entered when it starts and left when it stops.

    What serves can be put in place of what is awaited, in the application's state, while requests come in.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services() as given:
            app.state.services = given
            app.state.language = server_language(given.settings.http.language)
            yield

    app = Gateway(
        title="pyoco-server",
        description=_DESCRIPTION,
        version=importlib.metadata.version("pyoco-server"),
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.language = server_language("auto")  # until the settings are known: an app that is not open answers, too
    errors.install(app)
    openapi.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Authentication)  # around what reads requests: what comes without a key is not read
    app.add_middleware(CorrelationEcho)
    # Looked at one after the other: what is asked for most comes first.
    for module in (runs_submit, runs_yaml, runs_act, runs_read, runs_watch_all, runs_watch, run_events, health):
        app.include_router(module.router)
    for module in (run_outputs, executions, graphs, workers, dlq, metrics):
        app.include_router(module.router)
    app.include_router(wheels.router, responses=documented(*_OF_WHEELS))
    app.include_router(dashboard)
    return app

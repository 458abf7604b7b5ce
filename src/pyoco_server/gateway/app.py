"""The FastAPI application: routers, error handlers and middleware, and the order in which they surround a request."""

import importlib.metadata
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp
from typing_extensions import override

from pyoco_server.gateway import api_page, errors, openapi
from pyoco_server.gateway.dashboard import router as dashboard
from pyoco_server.gateway.middleware.auth import Authentication
from pyoco_server.gateway.middleware.body_limit import BodyLimit
from pyoco_server.gateway.middleware.browsers import BrowserGuard
from pyoco_server.gateway.middleware.response_headers import AllowedMethods, CorrelationEcho
from pyoco_server.gateway.middleware.security_headers import SecurityHeaders
from pyoco_server.gateway.responses import documented
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
    runs_redrive,
    runs_submit,
    runs_watch,
    runs_watch_all,
    runs_yaml,
    wheels,
    workers,
)
from pyoco_server.gateway.services import Awaited, Services
from pyoco_server.messages import server_language

_DESCRIPTION = "Durable workflows: submit runs, watch them, cancel them, resume them."
_OF_WHEELS = ("ERR-PYOCO-0002", "ERR-PYOCO-0022", "ERR-PYOCO-0023", "ERR-PYOCO-0101", "ERR-PYOCO-0003")
OpenServices = Callable[[], AbstractAsyncContextManager[Services | Awaited]]


class Gateway(FastAPI):
    """The application. Security headers are added outside all other middleware, so that no answer lacks them."""

    @override
    def build_middleware_stack(self) -> ASGIApp:
        return SecurityHeaders(AllowedMethods(super().build_middleware_stack(), lambda: self.routes))


def create_app(open_services: OpenServices) -> FastAPI:
    """Return the gateway; ``open_services`` is entered when it starts and left when it stops.

    A gateway that starts without NATS has :class:`Awaited` in its state; :class:`Services` may replace it at any time.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services() as services:
            app.state.services = services
            app.state.language = server_language(services.settings.http.language)
            yield

    app = Gateway(
        title="pyoco-server",
        description=_DESCRIPTION,
        version=importlib.metadata.version("pyoco-server"),
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's page loads its scripts from another host
        redoc_url=None,
    )
    app.state.language = server_language("auto")  # until the settings are loaded
    errors.install(app)
    openapi.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Authentication)  # outside the body limit: without a key, nothing is read
    app.add_middleware(BrowserGuard)
    app.add_middleware(CorrelationEcho)
    # Routes are tried in this order: the busiest come first.
    for module in (
        runs_submit,
        runs_yaml,
        runs_redrive,
        runs_act,
        runs_read,
        runs_watch_all,
        runs_watch,
        run_events,
        health,
    ):
        app.include_router(module.router)
    for module in (run_outputs, executions, graphs, workers, dlq, metrics):
        app.include_router(module.router)
    app.include_router(wheels.router, responses=documented(*_OF_WHEELS))
    app.include_router(api_page.router)
    app.include_router(dashboard)
    return app

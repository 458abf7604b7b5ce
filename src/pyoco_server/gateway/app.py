"""The application: routers, errors, limits; and what runs beside them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from pyoco_server.gateway import errors
from pyoco_server.gateway.limits import BodyLimit
from pyoco_server.gateway.routers import (
    dlq,
    executions,
    graphs,
    health,
    metrics,
    run_events,
    runs,
    runs_yaml,
    workers,
)
from pyoco_server.gateway.services import Services

_DESCRIPTION = "Durable workflows: submit runs, watch them, cancel them, resume them."
OpenServices = Callable[[], AbstractAsyncContextManager[Services]]


def create_app(open_services: OpenServices) -> FastAPI:
    """The gateway; ``open_services`` is entered when it starts and left when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services() as given:
            app.state.services = given
            yield

    app = FastAPI(title="pyoco-server", description=_DESCRIPTION, version="0.1.0", lifespan=lifespan)
    errors.install(app)
    app.add_middleware(BodyLimit)
    for module in (health, runs_yaml, runs, run_events, executions, graphs, workers, dlq, metrics):
        app.include_router(module.router)
    return app

"""A gateway that asks for keys, on a real nats-server: in this process, or listening."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.app.api_keys.service import IssuedKey, KeyService
from pyoco_server.bootstrap.gateway import open_gateway, open_key_service
from pyoco_server.gateway.app import create_app
from pyoco_server.gateway.services import Services
from pyoco_server.settings import Settings
from pyoco_server.settings.model import Auth, Http, NameSettings, Nats, Storage
from tests.plain_http import NO_TLS
from tests.waiting import wait_until

EVERYTHING = tuple(KeyScope)
PEPPER = "a pepper of the tests"


class Open(NamedTuple):
    """An open gateway."""

    app: FastAPI
    services: Services
    desk: KeyService
    url: str = ""

    @contextlib.asynccontextmanager
    async def client(self, key: IssuedKey | str | None = None, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """Open a client that sends this key."""
        text = key.text if isinstance(key, IssuedKey) else key
        sent = {"Accept-Language": "en", **({} if text is None else {"X-API-Key": text}), **headers}
        if self.url:
            async with httpx.AsyncClient(base_url=self.url, headers=sent, timeout=10, verify=NO_TLS) as client:
                yield client
        else:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=sent) as client:
                yield client


class World:
    """Names and settings with which gateways are opened."""

    def __init__(self, nats_url: str, prefix: str, directory: Path) -> None:
        self.nats_url = nats_url
        self.prefix = prefix
        self.directory = directory

    def settings(self, *, port: int = 8000, host: str = "127.0.0.1", **auth: object) -> Settings:
        """Return settings that require keys, unless ``mode`` says otherwise."""
        prefix = self.prefix
        return Settings(
            nats=Nats(urls=(self.nats_url,)),
            http=Http(host=host, port=port),
            auth=Auth(**{"mode": "api_key", "pepper": SecretStr(PEPPER), **auth}),  # type: ignore[arg-type]
            storage=Storage(data_dir=self.directory),
            names=NameSettings(
                events_stream=f"{prefix}_EVENTS",
                events_subject_prefix=f"{prefix}.events",
                live_subject_prefix=f"{prefix}.live",
                work_stream=f"{prefix}_WORK",
                work_subject_prefix=f"{prefix}.work",
                dlq_stream=f"{prefix}_DLQ",
                dlq_subject_prefix=f"{prefix}.dlq",
                runs_kv_bucket=f"{prefix}_runs",
                workers_kv_bucket=f"{prefix}_workers",
                graphs_kv_bucket=f"{prefix}_graphs",
                auth_kv_bucket=f"{prefix}_auth",
                wheel_history_kv_bucket=f"{prefix}_wheel_history",
                wheels_object_bucket=f"{prefix}_wheels",
                outputs_object_bucket=f"{prefix}_outputs",
            ),
        )

    @contextlib.asynccontextmanager
    async def open(self, settings: Settings | None = None) -> AsyncIterator[Open]:
        """Open a gateway in this process."""
        chosen = settings or self.settings()
        async with open_gateway(chosen) as services, open_key_service(chosen) as desk:
            app = create_app(lambda: contextlib.nullcontext(services))
            async with app.router.lifespan_context(app):
                yield Open(app, services, desk)

    @contextlib.asynccontextmanager
    async def listening(self, settings: Settings | None = None) -> AsyncIterator[Open]:
        """Open a gateway behind a real socket."""
        with socket.socket(proto=socket.IPPROTO_TCP) as listener:  # only then asyncio sends small parts at once
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            async with self.open(settings) as gateway:
                server = uvicorn.Server(uvicorn.Config(gateway.app, log_config=None, lifespan="off"))
                serving = asyncio.create_task(server.serve([listener]))
                try:
                    await wait_until(lambda: server.started)
                    yield gateway._replace(url=f"http://127.0.0.1:{port}")
                finally:
                    server.should_exit = True
                    await serving


async def issued(gateway: Open, tenant: str | None, *scopes: KeyScope) -> IssuedKey:
    """Issue a key for a tenant, with all scopes unless some are named."""
    return await gateway.desk.create(tenant, scopes=scopes or EVERYTHING)


def now() -> float:
    return SystemClock().now().timestamp()

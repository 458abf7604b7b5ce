"""A platform on a disk that loses power: its processes, and what its clients were promised.

The platform is what users start: ``pyoco-server up`` with its embedded NATS and its data on the disk, and a worker.
"""

import contextlib
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import httpx

from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.bootstrap.gateway import open_key_service
from pyoco_server.settings import load_settings
from tests.kill.processes import GatewayProcess, WorkerProcess, eventually
from tests.plain_http import NO_TLS
from tests.power.clients import LATER, Clients
from tests.power.promises import MISSING_SEC, Outcome, PromiseCheck, Promises

START_SEC: Final = 120.0
_ONE_REQUEST_EACH: Final = httpx.Limits(max_keepalive_connections=0)
"""A kept connection may be closed by the gateway when a request is sent on it; that is no broken promise."""
_PEPPER: Final = "a" * 64
_ROOT: Final = Path(__file__).parents[2]
_FLOWS: Final = Path(__file__).with_name("flows.py")


class PowerWorld:
    """One data directory, started as often as the power fails."""

    def __init__(self, home: Path, *, durability: str = "sync", sees_store: bool = True, bug: str = "") -> None:
        """If ``sees_store`` is false, the worker finds an empty directory where the store is.

        ``bug`` names a bug of :mod:`.planted`, which the gateway and the worker then have.
        """
        self.home = home
        self.promises = Promises()
        self.env: dict[str, str] = {}
        self._durability = durability
        self._sees_store = sees_store
        self.bug = bug
        self._port, self._nats_port = _lasting_port(), _lasting_port()
        self._api_key = ""
        self._starts = 0

    @contextlib.asynccontextmanager
    async def starting(self, data_dir: Path) -> AsyncIterator[GatewayProcess]:
        """Start a gateway, which need not become ready; kill it at the end."""
        self._starts += 1
        embedded = {
            "PYOCO_DATA_DIR": str(data_dir),
            "PYOCO_DURABILITY": self._durability,
            "PYOCO_HTTP_AUTH_MODE": "api_key",
            "PYOCO_AUTH_PEPPER": _PEPPER,
            "PYTHONPATH": str(_ROOT),
        }
        self.env = {**embedded, "PYOCO_NATS_URL": f"nats://127.0.0.1:{self._nats_port}"}
        up = self._program("server", "up", "--port", str(self._port), "--nats-client-port", str(self._nats_port))
        gateway = GatewayProcess.start("gateway", up, self._output("gateway"), cwd=self.home, env=embedded)
        gateway.url = f"http://127.0.0.1:{self._port}"
        try:
            yield gateway
        finally:
            gateway.kill()

    @contextlib.asynccontextmanager
    async def running(self, data_dir: Path) -> AsyncIterator[httpx.AsyncClient]:
        """Start the platform and wait until its gateway is ready; kill every process at the end."""
        async with self.starting(data_dir) as gateway:
            await gateway.ready(within=START_SEC)
            async with self.working(gateway, data_dir) as client:
                yield client

    @contextlib.asynccontextmanager
    async def working(
        self, gateway: GatewayProcess, data_dir: Path, *, tags: str = "default"
    ) -> AsyncIterator[httpx.AsyncClient]:
        """Start a worker beside a gateway that is ready."""
        if not self._api_key:
            self._api_key = await self._new_key()
        work = self._program("worker", "--flows", str(_FLOWS), "--worker-id", "w", "--tags", tags)
        command = work if self._sees_store else _without(data_dir, work)
        worker = WorkerProcess.start("worker", command, self._output("worker"), cwd=self.home, env=self.env)
        headers = {"X-API-Key": self._api_key}
        try:
            async with httpx.AsyncClient(
                base_url=gateway.url, headers=headers, timeout=20, verify=NO_TLS, limits=_ONE_REQUEST_EACH
            ) as client:
                yield client
        finally:
            worker.kill()

    def clients(self, client: httpx.AsyncClient, seed: str) -> Clients:
        """Return clients whose answers are promises."""
        return Clients(client, self.promises, self.env, seed)

    async def answers(self, count: int) -> None:
        """Return when clients have received so many answers, and have seen a run end."""

        async def are_there() -> bool:
            return len(self.promises) >= count and bool(self.promises.ended)

        await eventually(are_there, f"{count} answers", within=START_SEC)

    async def outcome(
        self, data_dir: Path, promises: Promises | None = None, *, missing_sec: float = MISSING_SEC
    ) -> Outcome:
        """Start the platform on what is left of its data, and check every promise."""
        began = time.monotonic()
        async with self.starting(data_dir) as gateway:
            await gateway.ready(within=START_SEC)
            ready_sec = time.monotonic() - began
            async with self.working(gateway, data_dir, tags=f"default,{LATER}") as client:
                return await PromiseCheck(client, promises or self.promises, missing_sec).outcome(ready_sec)

    def said(self, action: str) -> int:
        """Return how often the last gateway logged an action."""
        return self._output("gateway").read_text().count(f'"action": "{action}"')

    def _program(self, name: str, *arguments: str) -> list[str]:
        program = ["tests.power.planted", self.bug, name] if self.bug else [f"pyoco_server.cli.{name}"]
        return [sys.executable, "-m", *program, *arguments]

    def _output(self, name: str) -> Path:
        return self.home / f"{name}-{self._starts}.log"

    async def _new_key(self) -> str:
        async with open_key_service(load_settings(self.env).settings) as keys:
            return (await keys.create(None, scopes=set(KeyScope), name="main")).text


def _lasting_port() -> int:
    """Return a free port that stays free while the platform is down: the system gives none below 32768 to clients."""
    while True:
        port = random.randint(15_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _without(directory: Path, command: Sequence[str]) -> list[str]:
    """Return a command that runs where the directory is empty: in a mount namespace of its own."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(directory), *command]

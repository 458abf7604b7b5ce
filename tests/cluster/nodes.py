"""Nodes of a NATS cluster as processes, and queries of the state of the cluster."""

import contextlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.transport.error_translation import translated
from pyoco_server.adapters.nats_server.executables import nats_server_binary
from pyoco_server.app.ports import UnavailableError
from tests.cluster.documented import Address, configuration, configuration_alone
from tests.kill.processes import Process, eventually

REPLICAS = 3

Info = dict[str, Any]


class Node:
    """A server with its own directory; it can be killed and started again at the same address."""

    def __init__(self, address: Address, home: Path, *, within: Sequence[str] = (), store: Path | None = None) -> None:
        """``within`` is a prefix of the command; ``store`` is the data directory, by default below ``home``."""
        self.address = address
        self.home = home
        self.store = store or home / "store"
        self._within = within
        self._process: Process | None = None
        home.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    def configure(self, addresses: Collection[Address], more: str = "") -> None:
        """Write the configuration of this node of the cluster."""
        alone = len(addresses) == 1
        text = (
            configuration_alone(self.address, self.store)
            if alone
            else configuration(self.address, addresses, self.store)
        )
        (self.home / "nats.conf").write_text(f"{text}{more}")

    def start(self) -> None:
        command = [*self._within, str(nats_server_binary()), "-c", str(self.home / "nats.conf")]
        self._process = Process.start(self.name, command, self.home / "nats.log", cwd=self.home, env={})

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


class Cluster:
    """Nodes of one cluster; queries go to any node that answers."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = [*nodes]

    @property
    def url(self) -> str:
        return ",".join(node.address.url for node in self.nodes)

    def start(self, more: str = "") -> None:
        """Configure and start all nodes; ``more`` is appended to every configuration."""
        addresses = [node.address for node in self.nodes]
        for node in self.nodes:
            node.configure(addresses, more)
            node.start()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    async def ready(self, within: float = 30.0) -> None:
        """Wait until JetStream has a leader and knows all nodes."""
        await eventually(
            self._is_formed, lambda: "the cluster is formed\n" + self._log_tails(), within=within, pause=0.1
        )

    async def _is_formed(self) -> bool:
        try:
            async with await connect(self.url, name="tester", connect_timeout_sec=1.0) as connection:
                return "error" not in await ask(connection, "INFO")
        except UnavailableError:
            return False

    def _log_tails(self) -> str:
        return "\n".join((node.home / "nats.log").read_text()[-2_000:] for node in self.nodes)


async def ask(connection: Connection, question: str, body: object = None) -> Info:
    """Send a request to the JetStream API; UnavailableError if there is no answer."""
    content = b"" if body is None else json.dumps(body).encode()
    with translated():
        answer: Info = json.loads((await connection.nc.request(f"$JS.API.{question}", content, timeout=5)).data)
    return answer


async def until_replicated(connection: Connection, streams: Collection[str], *, within: float = 30.0) -> None:
    """Wait until every stream, and every consumer on it, has a leader and two more replicas that are up to date."""
    found: dict[str, Info] = {}

    async def is_whole() -> bool:
        for stream in streams:
            with contextlib.suppress(UnavailableError):
                found[stream] = await ask(connection, f"STREAM.INFO.{stream}")
                consumers = (await ask(connection, f"CONSUMER.LIST.{stream}")).get("consumers") or []
                if all(map(_is_whole, [found[stream], *consumers])):
                    continue
            return False
        return True

    def expectation() -> str:
        return "every stream has three replicas\n" + "\n".join(
            f"{stream}: {info.get('cluster')}" for stream, info in found.items()
        )

    await eventually(is_whole, expectation, within=within, pause=0.1)


def _is_whole(info: Info) -> bool:
    cluster = info.get("cluster") or {}
    others = cluster.get("replicas") or []
    return bool(
        cluster.get("leader")
        and len(others) == REPLICAS - 1
        and all(other.get("current") and not other.get("offline") for other in others)
    )


async def leader_of(connection: Connection, stream: str) -> str:
    """Return the name of the node that leads a stream; wait until there is one."""
    leader: str = ""

    async def has_leader() -> bool:
        nonlocal leader
        leader = ((await ask(connection, f"STREAM.INFO.{stream}")).get("cluster") or {}).get("leader") or ""
        return bool(leader)

    await eventually(has_leader, f"{stream} has a leader")
    return leader

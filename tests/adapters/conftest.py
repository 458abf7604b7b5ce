"""One nats-server for all tests of the adapters; every test has names of its own on it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import provision
from tests.adapters.nats_server import NatsServer, names_for

P = TypeVar("P")
R = TypeVar("R")

_numbers = itertools.count(1)


class JetStream:
    """A server and names on it; ``run`` gives a coroutine a connection with everything provisioned."""

    def __init__(self, server: NatsServer, names: Names) -> None:
        self.server = server
        self.names = names

    def run(self, body: Callable[[Connection, Names], Awaitable[R]]) -> R:
        async def with_connection() -> R:
            async with await connect(self.server.url, name="test") as connection:
                await provision(connection, self.names)
                return await body(connection, self.names)

        return asyncio.run(with_connection())

    def forget(self) -> None:
        """Delete all the streams, if the server is still there to be shared."""

        async def delete() -> None:
            async with await connect(self.server.url, name="test") as connection:
                for stream in await connection.js.streams_info():
                    if self._is_ours(str(stream.config.name)):
                        await connection.js.delete_stream(str(stream.config.name))

        asyncio.run(delete())

    def _is_ours(self, stream: str) -> bool:
        prefix = self.names.work_prefix.partition(".")[0]
        return stream.startswith((f"{prefix}_", f"KV_{prefix}_", f"OBJ_{prefix}_"))


class Backend:
    """Where a contract is tried: in memory or on JetStream."""

    def __init__(self, jetstream: JetStream | None) -> None:
        self.jetstream = jetstream

    def run(
        self,
        in_memory: Callable[[], P],
        on_jetstream: Callable[[Connection, Names], P],
        body: Callable[[Callable[[], Awaitable[P]]], Awaitable[R]],
    ) -> R:
        """Run ``body`` with a function that opens the port; on JetStream each call has a connection of its own."""
        return asyncio.run(self._run(in_memory, on_jetstream, body))

    async def _run(
        self,
        in_memory: Callable[[], P],
        on_jetstream: Callable[[Connection, Names], P],
        body: Callable[[Callable[[], Awaitable[P]]], Awaitable[R]],
    ) -> R:
        shared = in_memory()
        connections: list[Connection] = []

        async def open_port() -> P:
            if self.jetstream is None:
                return shared
            connection = await connect(self.jetstream.server.url, name="test")
            connections.append(connection)
            await provision(connection, self.jetstream.names)
            return on_jetstream(connection, self.jetstream.names)

        try:
            return await body(open_port)
        finally:
            for connection in connections:
                await connection.close()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The shared server. Tests must not stop it; ``own_nats_server`` is for those."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for one test, to be killed and started again."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def jetstream(nats_server: NatsServer) -> Iterator[JetStream]:
    """Names of one's own on the shared server."""
    made = JetStream(nats_server, names_for(f"t{next(_numbers)}"))
    yield made
    made.forget()


@pytest.fixture(params=["memory", "jetstream"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Both places a port is served from."""
    return Backend(request.getfixturevalue("jetstream") if request.param == "jetstream" else None)

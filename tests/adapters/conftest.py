"""One nats-server for all tests of the adapters; every test uses names of its own on it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from tests.adapters.real_nats import NatsServer, names_for
from tests.waiting import PATIENCE_SEC

P = TypeVar("P")
R = TypeVar("R")

_numbers = itertools.count(1)


class JetStream:
    """A server and names on it; ``run`` gives a coroutine a connection with everything provisioned."""

    def __init__(self, server: NatsServer, names: Names, *, plain: bool = False) -> None:
        self.server = server
        self.names = names
        self.plain = plain

    def run(self, body: Callable[[Connection, Names], Awaitable[R]]) -> R:
        async def with_connection() -> R:
            async with await connect(
                self.server.url, name="test", plain=self.plain, request_timeout_sec=PATIENCE_SEC
            ) as connection:
                await provision(connection, self.names)
                return await body(connection, self.names)

        return asyncio.run(with_connection())

    def forget(self) -> None:
        """Delete the streams of this test; other tests share the server."""

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
    """The implementation under a contract test: in memory or on JetStream."""

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
            connection = await connect(
                self.jetstream.server.url, name="test", plain=self.jetstream.plain, request_timeout_sec=PATIENCE_SEC
            )
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
    """The shared server. A test that stops its server uses ``own_nats_server``."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        asyncio.run(_add_permanent_stream(server))
        yield server


async def _add_permanent_stream(server: NatsServer) -> None:
    """Add a stream that no test deletes.

    After the last stream of an account is deleted, nats-server removes the directory of the account's streams in the
    background; a stream that is created at that moment fails with 10049, "error creating store for stream".
    """
    async with await connect(server.url, name="test") as connection:
        await connection.js.add_stream(name="PERMANENT", subjects=["permanent"])


@pytest.fixture
def own_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for one test, to be killed and started again."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=[False, True], ids=["fast", "plain"])
def plain(request: pytest.FixtureRequest) -> bool:
    """The path through nats-py: its private members, or its public API alone. A test that uses this runs over both."""
    return bool(request.param)


@pytest.fixture
def jetstream(request: pytest.FixtureRequest, nats_server: NatsServer) -> Iterator[JetStream]:
    """Names that only this test uses, on the shared server."""
    is_plain = "plain" in request.fixturenames and request.getfixturevalue("plain")
    made = JetStream(nats_server, names_for(f"t{next(_numbers)}"), plain=is_plain)
    yield made
    made.forget()


@pytest.fixture(params=["memory", "jetstream", "jetstream-plain"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every implementation of the ports, JetStream over both paths through nats-py."""
    if request.param == "memory":
        return Backend(None)
    made: JetStream = request.getfixturevalue("jetstream")
    made.plain = request.param == "jetstream-plain"
    return Backend(made)

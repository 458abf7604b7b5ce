"""How many nodes hold everything, on a server that is alone; with others: tests/cluster."""

import asyncio

import pytest

from pyoco_server.adapters.jetstream.connection import connect
from pyoco_server.adapters.jetstream.replicas import set_replicas
from pyoco_server.adapters.jetstream.resources import ResourceMismatchError, provision
from tests.adapters.conftest import JetStream
from tests.adapters.nats_server import NatsServer, names_for


def test_a_server_alone_refuses_three_and_says_so(nats_server: NatsServer) -> None:
    names = names_for("alone")

    async def body() -> None:
        async with await connect(nats_server.url, name="test") as connection:
            await provision(connection, names)
            told = await set_replicas(connection, names, 1)
            assert len(told) == 10
            assert {(one.before, one.now) for one in told} == {(1, 1)}
            with pytest.raises(ResourceMismatchError, match="'alone_EVENTS' cannot be used: replicas > 1"):
                await set_replicas(connection, names, 3)
            assert not connection.nc.is_in_cluster

    asyncio.run(body())
    JetStream(nats_server, names).forget()

"""The number of replicas on a single server; tests/cluster has three nodes."""

import asyncio

import pytest

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.primitives.provisioning import ResourceMismatchError, provision, set_replicas
from tests.adapters.conftest import JetStream
from tests.adapters.real_nats import NatsServer, names_for


def test_single_server_refuses_three_replicas(nats_server: NatsServer) -> None:
    names = names_for("alone")

    async def body() -> None:
        async with await connect(nats_server.url, name="test") as connection:
            await provision(connection, names)
            changes = await set_replicas(connection, names, 1)
            assert len(changes) == 10
            assert {(change.before, change.now) for change in changes} == {(1, 1)}
            with pytest.raises(ResourceMismatchError, match="'alone_EVENTS' cannot be used: replicas > 1"):
                await set_replicas(connection, names, 3)
            assert not connection.nc.is_in_cluster

    asyncio.run(body())
    JetStream(nats_server, names).forget()

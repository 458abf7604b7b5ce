"""Where keys are kept: in memory and on JetStream alike."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.primitives.names import kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.keys import JetStreamKeyStore
from pyoco_server.adapters.memory.registries import MemoryKeyStore
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import KeyStore, StoredKey
from tests.adapters.real_nats import NatsServer, names_for

_numbers = itertools.count(1)
OpenStores = Callable[[], AbstractAsyncContextManager[list[KeyStore]]]


def key(number: int, **more: object) -> StoredKey:
    fields = {
        "tenant_id": "acme",
        "scopes": ("runs",),
        "hmac": "00",
        "scopes_since": 1,
        "created_at": float(number),
        **more,
    }
    return StoredKey(api_key_id=f"k{number:016x}", **fields)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "jetstream"])
def open_stores(request: pytest.FixtureRequest) -> OpenStores:
    """Two ways to one store."""
    if request.param == "memory":

        @asynccontextmanager
        async def in_memory() -> AsyncIterator[list[KeyStore]]:
            store = MemoryKeyStore()
            yield [store, store]

        return in_memory
    server: NatsServer = request.getfixturevalue("auth_nats")
    names = names_for(f"store{next(_numbers)}")

    @asynccontextmanager
    async def on_jetstream() -> AsyncIterator[list[KeyStore]]:
        async with await connect(server.url, name="one") as one, await connect(server.url, name="other") as other:
            await provision(one, names)
            yield [JetStreamKeyStore(one, names), JetStreamKeyStore(other, names)]

    return on_jetstream


def test_a_key_added_by_one_store_is_read_by_another(open_stores: OpenStores) -> None:
    async def scenario() -> None:
        async with open_stores() as (one, other):
            assert (await other.read()).keys == []
            assert await one.add(key(1))
            assert await one.add(key(2, tenant_id=None, name="all"))
            assert not await other.add(key(1, tenant_id="other"))
            assert sorted((await other.read()).keys, key=lambda k: k.api_key_id) == [
                key(1),
                key(2, tenant_id=None, name="all"),
            ]

    asyncio.run(scenario())


def test_nothing_is_read_again_while_nothing_changes(open_stores: OpenStores) -> None:
    async def scenario() -> None:
        async with open_stores() as (one, other):
            await one.add(key(1))
            known = await other.read()
            assert await other.read(known) is known
            await one.update(key(1).api_key_id, lambda found: msgspec.structs.replace(found, revoked_at=9.0))
            changed = await other.read(known)
            assert [found.revoked_at for found in changed.keys] == [9.0]
            await one.update(key(1).api_key_id, lambda found: found)
            assert await other.read(changed) is changed

    asyncio.run(scenario())


def test_no_change_is_lost(open_stores: OpenStores) -> None:
    async def scenario() -> None:
        async with open_stores() as stores:
            await stores[0].add(key(1, name=""))

            async def one_more(at: int) -> None:
                await stores[at % 2].update(
                    key(1).api_key_id, lambda found: msgspec.structs.replace(found, name=f"{found.name}x")
                )

            await asyncio.gather(*map(one_more, range(20)))
            assert [found.name for found in (await stores[0].read()).keys] == ["x" * 20]

    asyncio.run(scenario())


def test_an_unknown_key_is_not_changed(open_stores: OpenStores) -> None:
    async def scenario() -> None:
        async with open_stores() as (one, _):
            assert await one.update(key(7).api_key_id, lambda found: found) is None

    asyncio.run(scenario())


def test_removed_messages_and_a_recreated_bucket_are_noticed(auth_nats: NatsServer) -> None:
    names = names_for("removed")
    stream = kv_stream(names.auth_bucket)

    async def scenario() -> None:
        async with await connect(auth_nats.url, name="test") as connection:
            await provision(connection, names)
            store = JetStreamKeyStore(connection, names)
            await store.add(key(1))
            await store.add(key(2))
            known = await store.read()
            await connection.js.purge_stream(stream, subject=kv_subject(names.auth_bucket, key(1).api_key_id))
            left = await store.read(known)
            assert left.keys == [key(2)]
            await connection.js.purge_stream(stream)
            emptied = await store.read(left)
            assert emptied.keys == []
            await connection.js.delete_stream(stream)
            with pytest.raises(UnavailableError):
                await store.read(emptied)
            await provision(connection, names)
            assert (await store.read(emptied)).keys == []

    asyncio.run(scenario())


def test_an_unreadable_record_is_no_key_and_hides_no_other(auth_nats: NatsServer) -> None:
    names = names_for("unreadable")

    async def scenario() -> None:
        async with await connect(auth_nats.url, name="test") as connection:
            await provision(connection, names)
            store = JetStreamKeyStore(connection, names)
            await store.add(key(1))
            await connection.publish(kv_subject(names.auth_bucket, "k0000000000000009"), b"not JSON")
            stolen = msgspec.json.encode(key(1))
            await connection.publish(kv_subject(names.auth_bucket, "k0000000000000008"), stolen)
            assert (await store.read()).keys == [key(1)]

    asyncio.run(scenario())


def test_many_keys(auth_nats: NatsServer) -> None:
    names = names_for("many")

    async def scenario() -> None:
        async with await connect(auth_nats.url, name="test") as connection:
            await provision(connection, names)
            store = JetStreamKeyStore(connection, names)
            await asyncio.gather(*(store.add(key(number)) for number in range(1_100)))
            assert len((await store.read()).keys) == 1_100

    asyncio.run(scenario())


def test_a_key_from_before_the_scope_yaml_keeps_what_it_opened(auth_nats: NatsServer) -> None:
    names = names_for(f"store{next(_numbers)}")

    async def scenario() -> None:
        async with await connect(auth_nats.url, name="one") as one:
            await provision(one, names)
            store = JetStreamKeyStore(one, names)
            for number, scopes in ((1, ("runs",)), (2, ("operate",)), (3, ("runs", "operate", "wheels"))):
                assert await store.add(key(number, scopes=scopes, scopes_since=0))
            assert await store.add(key(4))
            for _ in range(2):  # the second time as the update has written them
                found = {one.api_key_id[-1]: one.scopes for one in (await store.read()).keys}
                assert found == {
                    "1": ("runs", "yaml"),
                    "2": ("operate",),
                    "3": ("runs", "operate", "wheels", "yaml"),
                    "4": ("runs",),
                }
                for number in range(1, 5):
                    assert await store.update(f"k{number:016x}", lambda it: msgspec.structs.replace(it, name="n"))

    asyncio.run(scenario())

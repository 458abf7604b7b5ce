"""What only outputs on JetStream have: missing chunks, and other tools that read and write them."""

import asyncio
import base64
import random

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names, object_stream
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.graphs import JetStreamGraphRegistry
from pyoco_server.adapters.jetstream.stores.outputs import JetStreamOutputStore
from pyoco_server.app.ports import TooLargeError, UnavailableError
from pyoco_server.errors import PyocoServerError
from tests.adapters.conftest import JetStream
from tests.adapters.real_nats import NatsServer
from tests.waiting import wait_until

DATA = random.Random(1).randbytes(1_000_000)


def _subject(names: Names, name: str) -> str:
    return f"$O.{names.outputs_bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


@pytest.mark.parametrize("missing", [1, 2, 4])
def test_output_with_a_missing_chunk_is_absent(
    jetstream: JetStream, caplog: pytest.LogCaptureFixture, missing: int
) -> None:
    async def body(connection: Connection, names: Names) -> None:
        store = JetStreamOutputStore(connection, names)
        await store.put("a", DATA)
        await connection.js.delete_msg(object_stream(names.outputs_bucket), missing)
        assert await store.get("a") is None

    jetstream.run(body)
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert getattr(record, "action", None) == "output_incomplete"
    assert "'a'" in record.getMessage()


def test_output_with_a_foreign_chunk_is_absent(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        store = JetStreamOutputStore(connection, names)
        await store.put("a", DATA)
        chunk = await connection.js.get_msg(object_stream(names.outputs_bucket), 1)
        await connection.js.publish(str(chunk.subject), b"more")
        assert await store.get("a") is None

    jetstream.run(body)


def test_object_store_client_reads_and_writes_outputs(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        store, tool = JetStreamOutputStore(connection, names), await connection.js.object_store(names.outputs_bucket)
        await store.put("run/ours", DATA)
        assert (await tool.get("run/ours")).data == DATA
        await tool.put("theirs", DATA)
        assert await store.get("theirs") == DATA
        assert {info.name for info in await tool.list()} == {"run/ours", "theirs"}
        await tool.delete("theirs")
        assert await store.get("theirs") is None
        await store.put("theirs", b"again")
        assert (await tool.get("theirs")).data == b"again"

    jetstream.run(body)


def test_deleted_and_losing_puts_leave_no_chunks(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        store = JetStreamOutputStore(connection, names)
        await store.put("a", DATA)
        await store.delete("a")
        state = (await connection.js.stream_info(object_stream(names.outputs_bucket))).state
        assert state.messages == 0
        await asyncio.gather(*(store.put("a", DATA) for _ in range(5)))
        state = (await connection.js.stream_info(object_stream(names.outputs_bucket))).state
        assert state.messages == 4 + 1
        assert await store.get("a") == DATA

    jetstream.run(body)


def test_entry_that_describes_no_object_is_an_error(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        await connection.js.publish(_subject(names, "a"), b"[]")
        with pytest.raises(PyocoServerError, match="message 1 of the object store describes no object"):
            await JetStreamOutputStore(connection, names).get("a")

    jetstream.run(body)


def test_interrupted_put_stores_no_output_and_can_be_repeated(own_nats_server: NatsServer) -> None:
    names, data = Names(), random.Random(2).randbytes(20_000_000)

    async def body() -> None:
        async with await connect(own_nats_server.url, name="test") as connection:
            await provision(connection, names)
            store = JetStreamOutputStore(connection, names)
            putting = asyncio.create_task(store.put("a", data))
            await wait_until(lambda: connection.nc.stats["out_bytes"] > 5_000_000)
            own_nats_server.kill()
            with pytest.raises(UnavailableError):
                await putting
            with pytest.raises(UnavailableError):
                await store.get("a")
            await asyncio.to_thread(own_nats_server.start)
            await wait_until(lambda: connection.is_connected)
            await provision(connection, names)
            assert await store.get("a") is None
            await store.put("a", data)
            assert await store.get("a") == data

    asyncio.run(body())


def test_too_large_graph_is_refused(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        graphs = JetStreamGraphRegistry(connection, names)
        with pytest.raises(TooLargeError, match=r"'g' has \d+ bytes, the server accepts 1048576"):
            await graphs.put("g", b"x" * 1_048_576)
        assert await graphs.get("g") is None

    jetstream.run(body)


def test_graph_removed_by_an_operator_is_absent_and_can_be_put_again(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        graphs, bucket = JetStreamGraphRegistry(connection, names), await connection.js.key_value(names.graphs_bucket)
        assert await graphs.put("g", b"one")
        assert (await bucket.get("g")).value == b"one"
        await bucket.delete("g")
        assert await graphs.get("g") is None
        assert await graphs.put("g", b"two")
        assert (await bucket.get("g")).value == b"two"

    jetstream.run(body)

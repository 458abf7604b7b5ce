"""The consumer of a tag: used as it is, created again when it is gone, refused when it is unsuitable."""

import asyncio

import msgspec
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import ResourceMismatchError
from pyoco_server.adapters.jetstream.primitives.pulls import Pulled
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.app.ports import UnavailableError
from tests.adapters.conftest import JetStream
from tests.adapters.jetstream.pulling import counted, get, published, soon, waiting_pull


def test_pull_survives_the_deletion_of_its_consumer(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        for job in ("a", "b"):
            pulling = await waiting_pull(queue)
            await connection.js.delete_consumer(names.work_stream, queue._consumers.name("cpu"))
            await published(queue, job)
            await (await soon(pulling, job)).ack()

    jetstream.run(body)


def test_ack_without_its_consumer_is_unavailable(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        await published(queue, "a")
        held = await get(queue)
        await connection.js.delete_consumer(names.work_stream, queue._consumers.name("cpu"))
        with pytest.raises(UnavailableError):
            await held.ack()
        again = await get(queue)
        assert (again.body, again.times_delivered) == (b"a", 1)
        await again.ack()

    jetstream.run(body)


@pytest.mark.parametrize("name", ["pyoco_workers_cpu", "pyoco-cpu", "made-by-hand"])
def test_existing_consumer_is_used_as_it_is(jetstream: JetStream, name: str) -> None:
    async def body(connection: Connection, names: Names) -> None:
        settings = ConsumerConfig(
            name=name, durable_name=name, filter_subject=names.work_subject("cpu"), max_deliver=2, ack_wait=7
        )
        await connection.js.add_consumer(names.work_stream, settings)
        queue = JetStreamWorkQueue(connection, names)
        await queue.prepare("cpu")
        await published(queue, "a", "b")
        await counted(queue, 2)
        await (await get(queue)).nak(0)
        await counted(JetStreamWorkQueue(connection, names), 1)  # the queue of a gateway, which never pulls
        assert (await get(queue)).is_last
        await counted(queue, 1)
        [found] = await connection.js.consumers_info(names.work_stream)
        assert (found.name, found.config.max_deliver, found.config.ack_wait) == (name, 2, 7)

    jetstream.run(body)


def test_concurrent_prepares_with_different_settings_create_one_consumer(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        wishes = [msgspec.structs.replace(names, max_deliver=number) for number in range(2, 12)]
        await asyncio.gather(*[JetStreamWorkQueue(connection, wish).prepare("cpu") for wish in wishes])
        [found] = await connection.js.consumers_info(names.work_stream)
        queue = JetStreamWorkQueue(connection, names)
        await published(queue, "a")
        for times in range(1, (found.config.max_deliver or 0) + 1):
            delivery = await get(queue)
            assert delivery.is_last == (times == found.config.max_deliver)
            await delivery.nak(0)

    jetstream.run(body)


def test_rebind_reads_changed_settings_of_the_consumer(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        await queue.prepare("cpu")
        found = await connection.js.consumer_info(names.work_stream, queue._consumers.name("cpu"))
        await connection.js.add_consumer(names.work_stream, found.config.evolve(max_deliver=1))
        await queue.rebind("cpu")
        await published(queue, "a")
        assert (await get(queue)).is_last

    jetstream.run(body)


def test_pull_respects_max_expires_and_max_waiting_of_the_consumer(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        name, subject = queue._consumers.name("cpu"), names.work_subject("cpu")
        limits = {"max_expires": 200_000_000, "max_waiting": 1}
        config = {"durable_name": name, "filter_subject": subject, "ack_policy": "explicit", **limits}
        create = f"$JS.API.CONSUMER.CREATE.{names.work_stream}.{name}.{subject}"
        request = {"stream_name": names.work_stream, "config": {"name": name, **config}}
        await connection.nc.request(create, msgspec.json.encode(request), timeout=2)
        assert await queue.pull("cpu", timeout_sec=0.5) is None
        pulls = [asyncio.create_task(get(queue)) for _ in range(3)]
        for job in ("a", "b", "c"):
            await published(queue, job)
        assert sorted([(await pull).body for pull in pulls]) == [b"a", b"b", b"c"]

    jetstream.run(body)


@pytest.mark.parametrize("subject", ["cpu", ">"])
def test_unsuitable_consumer_is_refused(jetstream: JetStream, subject: str) -> None:
    async def body(connection: Connection, names: Names) -> None:
        unfit = {
            "cpu": ConsumerConfig(
                name="pyoco_workers_cpu",
                durable_name="pyoco_workers_cpu",
                filter_subject=names.work_subject("cpu"),
                deliver_subject="elsewhere",
                ack_policy=AckPolicy.EXPLICIT,
            ),
            ">": ConsumerConfig(name="all", durable_name="all", filter_subject=f"{names.work_prefix}.>"),
        }
        await connection.js.add_consumer(names.work_stream, unfit[subject])
        queue = JetStreamWorkQueue(connection, names)
        with pytest.raises(ResourceMismatchError):
            await queue.prepare("cpu")
        with pytest.raises(ResourceMismatchError):
            await queue.pull("cpu", timeout_sec=1)

    jetstream.run(body)


def test_operations_are_unavailable_without_the_stream(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        await connection.js.delete_stream(names.work_stream)
        attempts = (
            lambda: queue.prepare("cpu"),
            lambda: queue.backlog("cpu"),
            lambda: published(queue, "a"),
            lambda: queue.pull("cpu", timeout_sec=0.2),
        )
        for attempt in attempts:
            with pytest.raises(UnavailableError):
                await attempt()

    jetstream.run(body)


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.PYOCO_WORK.pyoco-cpu.3.17.4.1700000000000000000.0",
        "$JS.ACK.hub.ACCOUNTHASH.PYOCO_WORK.pyoco-cpu.3.17.4.1700000000000000000.0",
        "$JS.ACK.hub.ACCOUNTHASH.PYOCO_WORK.pyoco-cpu.3.17.4.1700000000000000000.0.random",
    ],
)
def test_number_of_deliveries_is_parsed_from_the_ack_subject(reply: str) -> None:
    assert Pulled("pyoco.work.cpu", b"", None, reply).times_delivered == 3

"""Liveness requests to worker processes: which answered, which is disconnected, and when that is unknown."""

import asyncio
from urllib.parse import urlsplit

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.workers import JetStreamLiveness, JetStreamWorkerRegistry, answer_as
from pyoco_server.app.ports import WorkerRecord
from pyoco_server.app.ports.workers import Sign
from tests.adapters.conftest import JetStream
from tests.adapters.proxy import proxy_to
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import eventually
from tests.waiting import wait_until


def test_running_worker_answers_and_ended_worker_is_disconnected(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        liveness = JetStreamLiveness(connection, names)
        assert await liveness.ask("i1") is Sign.DISCONNECTED
        async with await connect(jetstream.server.url, name="worker") as worker:
            await answer_as("i1", worker, names)
            await worker.nc.flush()
            assert await liveness.ask("i1") is Sign.ANSWERED
            assert await liveness.ask("i2") is Sign.DISCONNECTED

        async def is_gone() -> bool:
            return await liveness.ask("i1") is Sign.DISCONNECTED

        await eventually(is_gone)

    jetstream.run(body)


def test_connected_worker_without_an_answer_is_unknown(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with (
            proxy_to(urlsplit(jetstream.server.url).port or 0) as proxy,
            await connect(proxy.url, name="worker") as worker,
        ):
            await answer_as("i1", worker, names)
            await worker.nc.flush()
            proxy.links[0].hold()
            assert await JetStreamLiveness(connection, names).ask("i1") is Sign.UNKNOWN

    jetstream.run(body)


def test_subscriber_receives_valid_worker_entries_as_they_are_written(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        received: list[WorkerRecord] = []
        unsubscribe = await JetStreamLiveness(connection, names).subscribe(received.append)
        await connection.nc.flush()
        async with await connect(jetstream.server.url, name="worker") as worker:
            registry = JetStreamWorkerRegistry(worker, names)
            await registry.update("w1", lambda _: {"worker_id": "w1", "instance_id": "i1"})
            await worker.publish(f"$KV.{names.workers_bucket}.w2", b"no entry")
            await registry.update("w1", lambda _: {"worker_id": "w1", "instance_id": "i2"})
            await wait_until(lambda: len(received) == 2)
        assert [record["instance_id"] for record in received] == ["i1", "i2"]
        unsubscribe()

    jetstream.run(body)


def test_workers_answer_again_after_a_restart_of_the_server(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        names = Names()
        async with (
            await connect(own_nats_server.url, name="gateway") as gateway,
            await connect(own_nats_server.url, name="worker") as worker,
        ):
            await provision(gateway, names)
            await answer_as("i1", worker, names)
            await worker.nc.flush()
            liveness = JetStreamLiveness(gateway, names)
            before = liveness.outages
            own_nats_server.kill()
            await wait_until(lambda: not gateway.is_connected)
            assert await liveness.ask("i1") is Sign.UNKNOWN
            await answer_as("i2", worker, names)  # the client subscribes when the server is back
            await asyncio.to_thread(own_nats_server.start)

            async def answers() -> bool:
                return [await liveness.ask(instance) for instance in ("i1", "i2")] == [Sign.ANSWERED] * 2

            await eventually(answers)
            assert liveness.outages == before + 1

    asyncio.run(body())

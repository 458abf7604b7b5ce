"""Asking worker processes whether they are there: who answers, who is gone, and what proves nothing."""

import asyncio
from urllib.parse import urlsplit

from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.liveness import JetStreamLiveness, answer_as
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.workers import JetStreamWorkerRegistry
from pyoco_server.app.ports import WorkerRecord
from pyoco_server.app.ports.liveness import Sign
from tests.adapters.conftest import JetStream
from tests.adapters.nats_server import NatsServer
from tests.adapters.proxy import proxy_to
from tests.gateway.stand import eventually
from tests.waiting import wait_until


def test_who_is_there_answers_and_who_is_gone_is_known_to_be(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        liveness = JetStreamLiveness(connection, names)
        assert await liveness.ask("i1") is Sign.NOBODY
        async with await connect(jetstream.server.url, name="worker") as worker:
            await answer_as("i1", worker, names)
            await worker.nc.flush()
            assert await liveness.ask("i1") is Sign.ANSWERED
            assert await liveness.ask("i2") is Sign.NOBODY

        async def is_gone() -> bool:
            return await liveness.ask("i1") is Sign.NOBODY

        await eventually(is_gone)

    jetstream.run(body)


def test_who_listens_and_does_not_answer_is_not_gone(jetstream: JetStream) -> None:
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


def test_entries_are_told_of_as_they_are_written(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        told: list[WorkerRecord] = []
        leave = await JetStreamLiveness(connection, names).subscribe(told.append)
        await connection.nc.flush()
        async with await connect(jetstream.server.url, name="worker") as worker:
            registry = JetStreamWorkerRegistry(worker, names)
            await registry.update("w1", lambda _: {"worker_id": "w1", "instance_id": "i1"})
            await worker.publish(f"$KV.{names.workers_bucket}.w2", b"no entry")
            await registry.update("w1", lambda _: {"worker_id": "w1", "instance_id": "i2"})
            await wait_until(lambda: len(told) == 2)
        assert [record["instance_id"] for record in told] == ["i1", "i2"]
        leave()

    jetstream.run(body)


def test_a_restart_of_the_server_is_an_outage_after_which_processes_answer_again(own_nats_server: NatsServer) -> None:
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
            await answer_as("i2", worker, names)  # told to the server when it is back
            await asyncio.to_thread(own_nats_server.start)

            async def answers() -> bool:
                return [await liveness.ask(instance) for instance in ("i1", "i2")] == [Sign.ANSWERED] * 2

            await eventually(answers)
            assert liveness.outages == before + 1

    asyncio.run(body())

"""Pulls recover from faults of the server, the connection and their requests; no job is lost."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.app.ports import TooLargeError, UnavailableError
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import JetStream
from tests.adapters.jetstream.pulling import RECOVERY_SEC, counted, get, published, soon, waiting_pull
from tests.adapters.proxy import Proxy, proxy_to
from tests.adapters.real_nats import NatsServer, names_for
from tests.waiting import PATIENCE_SEC, wait_until


async def connected_queue(url: str, names: Names) -> tuple[Connection, JetStreamWorkQueue]:
    connection = await connect(url, name="test", request_timeout_sec=0.5)
    return connection, JetStreamWorkQueue(connection, names)


# --- The server ------------------------------------------------------------------------------------------------------


def test_pull_survives_a_restart_of_the_server(own_nats_server: NatsServer) -> None:
    names = names_for("t")

    async def body() -> float:
        connection, queue = await connected_queue(own_nats_server.url, names)
        async with connection:
            await provision(connection, names)
            pulling = await waiting_pull(queue)
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
            await asyncio.to_thread(own_nats_server.start)
            other, publisher = await connected_queue(own_nats_server.url, names)
            async with other:
                await _patiently(lambda: published(publisher, "after"))
                began = time.monotonic()
                delivery = await soon(pulling, "after")
                took = time.monotonic() - began
                assert delivery.times_delivered == 1
                await delivery.ack()
                return took

    assert asyncio.run(body()) < RECOVERY_SEC


def test_jobs_in_flight_survive_a_restart_of_the_server_and_can_be_settled(own_nats_server: NatsServer) -> None:
    names = names_for("t", ack_wait_sec=0.5)

    async def body() -> None:
        connection, queue = await connected_queue(own_nats_server.url, names)
        async with connection:
            await provision(connection, names)
            await published(queue, "kept", "redelivered")
            kept, held = await get(queue), await get(queue)
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
            requests = connection.nc._requests
            for settle in (kept.ack, kept.term, kept.in_progress, lambda: kept.nak(1)):
                with pytest.raises(UnavailableError):
                    await settle()
            assert connection.nc._requests == requests  # nothing was sent whose answer would be waited for
            await asyncio.to_thread(own_nats_server.start)
            await _patiently(kept.ack)
            again = await get(queue)
            assert again.body == b"redelivered"
            assert again.times_delivered in {1, 2}  # a server that is killed may forget what it has just delivered
            await held.ack()
            assert await queue.pull("cpu", timeout_sec=0.8) is None

    asyncio.run(body())


def test_operations_without_a_server_fail_in_time(own_nats_server: NatsServer) -> None:
    names = names_for("t")

    async def body() -> None:
        connection, queue = await connected_queue(own_nats_server.url, names)
        async with connection:
            await provision(connection, names)
            pulling = await waiting_pull(queue, timeout_sec=0.6)
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
            began = time.monotonic()
            with pytest.raises(UnavailableError):
                await pulling
            with pytest.raises(UnavailableError):
                await queue.pull("cpu", timeout_sec=0.3)
            for attempt in (lambda: queue.prepare("gpu"), lambda: queue.backlog("cpu"), lambda: queue.rebind("cpu")):
                with pytest.raises(UnavailableError):
                    await attempt()
            with pytest.raises(UnavailableError):
                await published(queue, "a")
            assert time.monotonic() - began < 15
        with pytest.raises(UnavailableError):
            await queue.pull("cpu", timeout_sec=30)  # fails at once: the connection is closed

    asyncio.run(body())


async def _patiently(attempt: Callable[[], Awaitable[None]]) -> None:
    """Try until the server is ready again."""
    async with asyncio.timeout(PATIENCE_SEC):
        while True:
            try:
                return await attempt()
            except UnavailableError:
                await asyncio.sleep(0.02)


# --- The connection --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def behind_a_bad_network(
    jetstream: JetStream, names: Names | None = None
) -> AsyncIterator[tuple[Proxy, JetStreamWorkQueue]]:
    async with proxy_to(jetstream.server.port) as proxy:
        connection, queue = await connected_queue(proxy.url, names or jetstream.names)
        async with connection:
            yield proxy, queue


def test_pull_survives_a_broken_connection(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        # A job that the server sends into a broken connection is redelivered after the ack wait.
        hasty = msgspec.structs.replace(names, ack_wait_sec=1.0)
        good = JetStreamWorkQueue(connection, hasty)
        async with behind_a_bad_network(jetstream, hasty) as (proxy, queue):
            for round_number in range(3):
                pulling = await waiting_pull(queue)
                proxy.links[-1].client.close()
                await wait_until(lambda: not queue._connection.is_connected)
                await published(good, f"job{round_number}")
                delivery = await soon(pulling, f"job{round_number}")
                assert delivery.times_delivered <= 2  # twice if the server had not noticed the break yet
                await delivery.ack()

    jetstream.run(body)


def test_pull_without_answers_is_unavailable_after_its_timeout(jetstream: JetStream) -> None:
    async def body(_connection: Connection, _names: Names) -> None:
        async with behind_a_bad_network(jetstream) as (proxy, queue):
            pulling = await waiting_pull(queue, timeout_sec=0.5)
            proxy.swallows_answers = True
            began = time.monotonic()
            with pytest.raises(UnavailableError):
                await pulling
            with pytest.raises(UnavailableError):
                await queue.pull("cpu", timeout_sec=0.5)
            assert time.monotonic() - began < 15
            proxy.swallows_answers = False
            await published(queue, "after")
            await (await get(queue)).ack()

    jetstream.run(body)


def test_job_published_again_after_a_lost_answer_is_queued_once(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        good = JetStreamWorkQueue(connection, names)
        async with behind_a_bad_network(jetstream) as (proxy, queue):
            await published(queue, "before")
            proxy.swallows_answers = True
            with pytest.raises(UnavailableError):
                await published(queue, "unknown")
            proxy.swallows_answers = False
            await published(queue, "unknown")
            await counted(good, 2)

    jetstream.run(body)


# --- Requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebinds", [True, False], ids=["rebind", "by itself"])
def test_pull_request_that_the_server_lost_is_sent_again(jetstream: JetStream, rebinds: bool) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names, stall_sec=0.1)
        pulling = await waiting_pull(queue)
        assert not await queue.stalled("cpu")
        [channel] = queue._pulls._out
        assert channel.subscription is not None
        await connection.nc.withdraw(channel.subscription)
        await published(queue, "a")
        if rebinds:
            async with asyncio.timeout(2):
                while not await queue.stalled("cpu"):  # noqa: ASYNC110 only the server knows
                    await asyncio.sleep(0.01)
            assert not pulling.done()
            await queue.rebind("cpu")
        await (await soon(pulling, "a")).ack()
        assert not await queue.stalled("cpu")

    jetstream.run(body)


def test_jobs_beyond_max_ack_pending_are_no_stall(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, msgspec.structs.replace(names, max_ack_pending=1), stall_sec=0.05)
        assert not await queue.stalled("cpu")
        await published(queue, "a", "b")
        held = await get(queue)
        pulling = await waiting_pull(queue)
        await wait_until(lambda: queue._pulls.silent_for("pyoco_workers_cpu") > 0.05)
        assert not await queue.stalled("cpu")
        await held.ack()
        await soon(pulling, "b")

    jetstream.run(body)


def test_job_with_a_status_header_is_delivered_as_a_job(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        for status in ("100", "404", "408", "409", "503"):
            headers = {"Status": status, "Description": "Consumer Deleted"}
            await connection.js.publish(names.work_subject("cpu"), status.encode(), headers=headers)
            delivery = await get(queue)
            assert delivery.body == status.encode()
            await delivery.ack()

    jetstream.run(body)


def test_thousand_cancelled_pulls_lose_no_job(jetstream: JetStream) -> None:
    chance = random.Random(11)
    jobs = {f"job{number}" for number in range(300)}

    async def body(connection: Connection, names: Names) -> tuple[int, dict[str, int]]:
        queue = JetStreamWorkQueue(connection, names)
        await queue.prepare("cpu")
        got: dict[str, int] = {}
        cancels = 0

        async def impatient() -> None:
            nonlocal cancels
            while len(got) < len(jobs) or cancels < 1_000:
                pulling = asyncio.ensure_future(queue.pull("cpu", timeout_sec=1))
                await asyncio.wait([pulling], timeout=chance.uniform(0, 0.002))
                cancels += pulling.cancel()
                await asyncio.wait([pulling])
                delivery = None if pulling.cancelled() else pulling.result()
                if delivery is not None:
                    got[delivery.body.decode()] = delivery.times_delivered
                    await delivery.ack()

        async with asyncio.timeout(15):  # half the ack wait: a job that was not sent back would be missed
            await asyncio.gather(published(queue, *sorted(jobs)), *[impatient() for _ in range(4)])
        await queue.close()
        assert not queue._pulls._chores
        return cancels, got

    cancels, got = jetstream.run(body)
    assert cancels >= 1_000
    assert set(got) == jobs
    assert max(got.values()) <= 5  # cancelled pulls do not use up the deliveries


def test_close_sends_back_a_job_of_a_cancelled_pull(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        pulling = await waiting_pull(queue)
        [channel] = queue._pulls._out
        await published(queue, "a")
        await wait_until(lambda: channel.answer is not None or pulling.done())
        if not pulling.cancel():
            await (await pulling).nak(0)
        await asyncio.wait([pulling])
        await queue.close()
        again = await get(JetStreamWorkQueue(connection, names), timeout_sec=1)
        assert (again.body, again.times_delivered) == (b"a", 2)

    jetstream.run(body)


def test_two_hundred_pulls_wait_on_one_connection(jetstream: JetStream) -> None:
    tags = ["a", "b", "c", "d"]

    async def body(connection: Connection, names: Names) -> list[str]:
        queue = JetStreamWorkQueue(connection, msgspec.structs.replace(names, max_ack_pending=1_000))
        publisher = JetStreamWorkQueue(connection, names)
        got: list[str] = []

        async def work(tag: str) -> None:
            for _ in range(2):
                delivery = await get(queue, tag, timeout_sec=10)
                assert delivery.tag == tag
                got.append(delivery.body.decode())
                await delivery.ack()

        workers = [asyncio.create_task(work(tag)) for tag in tags for _ in range(50)]
        await wait_until(lambda: len(queue._pulls._out) == 200)
        await asyncio.gather(*[published(publisher, *[f"{tag}{n}" for n in range(100)], tag=tag) for tag in tags])
        await asyncio.gather(*workers)
        return got

    assert sorted(jetstream.run(body)) == sorted(f"{tag}{number}" for tag in tags for number in range(100))


# --- Invalid jobs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["", "a.b", "*", ">", "a b", "ä", "a\n"])
def test_tag_that_is_no_single_token_is_refused(jetstream: JetStream, tag: str) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        for attempt in (lambda: published(queue, "a", tag=tag), lambda: queue.prepare(tag), lambda: queue.backlog(tag)):
            with pytest.raises(InvalidInputError):
                await attempt()
        with pytest.raises(InvalidInputError):
            await queue.pull(tag, timeout_sec=1)
        assert await connection.js.consumers_info(names.work_stream) == []

    jetstream.run(body)


def test_too_large_job_is_refused_and_the_connection_stays_open(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        queue = JetStreamWorkQueue(connection, names)
        for size in (connection.max_payload, connection.max_payload + 1, 3 * connection.max_payload):
            with pytest.raises(TooLargeError):
                await queue.publish("cpu", b"x" * size, dedup_id=str(size))
        await published(queue, "a")
        await counted(queue, 1)

    jetstream.run(body)

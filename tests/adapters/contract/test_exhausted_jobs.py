"""The contract of exhausted jobs, in memory and on JetStream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.exhausted_jobs import JetStreamExhaustedJobs
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.work_queue import MemoryExhaustedJobs, MemoryWorkQueue
from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import Delivery, WorkQueue
from pyoco_server.app.ports.work_queue import ExhaustedJob, ExhaustedJobs
from tests.adapters.conftest import Backend
from tests.waiting import wait_until

R = TypeVar("R")
MAX_DELIVER = 2
LIMIT = 10


class Both(NamedTuple):
    """A queue, and the list of its exhausted jobs."""

    queue: WorkQueue
    exhausted: ExhaustedJobs


def attempt(backend: Backend, body: Callable[[Both], Awaitable[R]]) -> R:
    def in_memory() -> Both:
        queue = MemoryWorkQueue(SystemClock(), ack_wait_sec=5, max_deliver=MAX_DELIVER)
        return Both(queue, MemoryExhaustedJobs(queue))

    def on_jetstream(connection: Connection, names: Names) -> Both:
        limited = msgspec.structs.replace(names, ack_wait_sec=5.0, max_deliver=MAX_DELIVER)
        return Both(JetStreamWorkQueue(connection, limited), JetStreamExhaustedJobs(connection, limited))

    async def with_both(open_both: Callable[[], Awaitable[Both]]) -> R:
        return await body(await open_both())

    return backend.run(in_memory, on_jetstream, with_both)


async def get(queue: WorkQueue, tag: str = "cpu") -> Delivery:
    delivery = await queue.pull(tag, timeout_sec=30)
    assert delivery is not None, "no job came"
    return delivery


async def exhaust(queue: WorkQueue, job: str, tag: str = "cpu") -> Delivery:
    """Publish a job, exhaust its deliveries, and return the last one. There must be no other jobs of the tag."""
    await queue.publish(tag, job.encode(), dedup_id=job)
    deliveries = []
    for _ in range(MAX_DELIVER):
        deliveries.append(await get(queue, tag))
        assert deliveries[-1].body == job.encode()
        await deliveries[-1].nak(0)
    assert await queue.pull(tag, timeout_sec=0.1) is None  # the queue notices at the next pull
    return deliveries[-1]


async def found(exhausted: ExhaustedJobs, *bodies: bytes) -> list[ExhaustedJob]:
    """Return the exhausted jobs once they are exactly these: a server updates its counts after it has confirmed."""
    async with asyncio.timeout(5):
        jobs = await exhausted.look(LIMIT)
        while sorted(job.body for job in jobs) != sorted(bodies):
            await asyncio.sleep(0.01)
            jobs = await exhausted.look(LIMIT)
    return list(jobs)


def test_every_subscriber_is_notified_once(backend: Backend) -> None:
    async def body(both: Both) -> None:
        received: list[tuple[int, int]] = []
        by_another: list[tuple[int, int]] = []
        unsubscribe = await both.exhausted.subscribe(lambda *args: received.append(args))
        await both.exhausted.subscribe(lambda *args: by_another.append(args))
        await exhaust(both.queue, "a")
        await wait_until(lambda: received and by_another)
        [(number, times)] = received
        assert by_another == received
        job = await both.exhausted.get(number, times)
        assert job is not None
        assert (job.tag, job.body, job.times_delivered, job.is_certain) == ("cpu", b"a", MAX_DELIVER, True)
        assert job.subject.endswith(".work.cpu")
        unsubscribe()
        await exhaust(both.queue, "b")
        await wait_until(lambda: len(by_another) == 2)
        assert len(received) == 1

    attempt(backend, body)


def test_look_finds_jobs_without_a_subscriber(backend: Backend) -> None:
    async def body(both: Both) -> None:
        assert await both.exhausted.look(LIMIT) == []
        await exhaust(both.queue, "a", "cpu")
        await exhaust(both.queue, "b", "gpu")
        jobs = await found(both.exhausted, b"a", b"b")
        assert {(job.tag, job.body, job.times_delivered, job.is_certain) for job in jobs} == {
            ("cpu", b"a", MAX_DELIVER, True),
            ("gpu", b"b", MAX_DELIVER, True),
        }

    attempt(backend, body)


def test_waiting_and_in_flight_jobs_are_not_listed_as_certainly_exhausted(backend: Backend) -> None:
    async def body(both: Both) -> None:
        for job in ("out", "postponed", "waits"):
            await both.queue.publish("cpu", job.encode(), dedup_id=job)
        held = await get(both.queue)
        assert held.body == b"out"
        await (await get(both.queue)).nak(60)
        await both.queue.publish("unused", b"never pulled", dedup_id="never pulled")
        assert [job for job in await both.exhausted.look(LIMIT) if job.is_certain] == []
        await held.ack()

    attempt(backend, body)


def test_job_in_flight_is_never_listed_as_certainly_exhausted(backend: Backend) -> None:
    async def body(both: Both) -> None:
        await exhaust(both.queue, "exhausted")
        await both.queue.publish("cpu", b"held", dedup_id="held")
        held = await get(both.queue)
        assert held.body == b"held"
        jobs = await both.exhausted.look(LIMIT)
        assert b"exhausted" in [job.body for job in jobs]
        assert b"held" not in [job.body for job in jobs if job.is_certain]
        await held.ack()
        [job] = await found(both.exhausted, b"exhausted")
        assert job.is_certain

    attempt(backend, body)


def test_look_returns_at_most_the_limit_per_tag(backend: Backend) -> None:
    async def body(both: Both) -> None:
        for job in ("a", "b", "c"):
            await exhaust(both.queue, job)
        await found(both.exhausted, b"a", b"b", b"c")
        assert [job.body for job in await both.exhausted.look(2)] == [b"a", b"b"]

    attempt(backend, body)


@pytest.mark.parametrize("has_neighbours", [False, True], ids=["alone", "between others"])
def test_concurrent_removes_of_a_job_have_exactly_one_winner(backend: Backend, has_neighbours: bool) -> None:
    async def body(both: Both) -> None:
        around = ("before", "a", "after") if has_neighbours else ("a",)
        for name in around:
            await exhaust(both.queue, name)
        [job] = [job for job in await found(both.exhausted, *(name.encode() for name in around)) if job.body == b"a"]
        assert sorted(await asyncio.gather(both.exhausted.remove(job.number), both.exhausted.remove(job.number))) == [
            False,
            True,
        ]
        assert await both.exhausted.get(job.number, MAX_DELIVER) is None
        await found(both.exhausted, *(name.encode() for name in around if name != "a"))
        await both.queue.publish("cpu", b"next", dedup_id="next")
        await (await get(both.queue)).ack()

    attempt(backend, body)


def test_acknowledgement_after_the_last_delivery_removes_the_job(backend: Backend) -> None:
    async def body(both: Both) -> None:
        last = await exhaust(both.queue, "a")
        [job] = await found(both.exhausted, b"a")
        await last.ack()
        await found(both.exhausted)
        assert await both.exhausted.get(job.number, MAX_DELIVER) is None
        assert not await both.exhausted.remove(job.number)

    attempt(backend, body)

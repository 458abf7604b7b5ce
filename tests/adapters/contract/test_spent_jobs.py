"""What every queue does with jobs whose deliveries are used up, in memory and on JetStream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec
import pytest

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.spent_jobs import JetStreamSpentJobs
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.spent_jobs import MemorySpentJobs
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.app.ports import Delivery, WorkQueue
from pyoco_server.app.ports.work_queue import SpentJob, SpentJobs
from tests.adapters.conftest import Backend
from tests.waiting import wait_until

R = TypeVar("R")
MAX_DELIVER = 2
LIMIT = 10


class Both(NamedTuple):
    """A queue, and what becomes of its jobs in the end."""

    queue: WorkQueue
    spent: SpentJobs


def attempt(backend: Backend, body: Callable[[Both], Awaitable[R]]) -> R:
    def in_memory() -> Both:
        queue = MemoryWorkQueue(SystemClock(), ack_wait_sec=5, max_deliver=MAX_DELIVER)
        return Both(queue, MemorySpentJobs(queue))

    def on_jetstream(connection: Connection, names: Names) -> Both:
        limited = msgspec.structs.replace(names, ack_wait_sec=5.0, max_deliver=MAX_DELIVER)
        return Both(JetStreamWorkQueue(connection, limited), JetStreamSpentJobs(connection, limited))

    async def with_both(open_both: Callable[[], Awaitable[Both]]) -> R:
        return await body(await open_both())

    return backend.run(in_memory, on_jetstream, with_both)


async def get(queue: WorkQueue, tag: str = "cpu") -> Delivery:
    delivery = await queue.pull(tag, timeout_sec=5)
    assert delivery is not None, "no job came"
    return delivery


async def spend(queue: WorkQueue, job: str, tag: str = "cpu") -> Delivery:
    """Use up a job's deliveries; its last one. There must be no other jobs of the tag."""
    await queue.publish(tag, job.encode(), dedup_id=job)
    deliveries = []
    for _ in range(MAX_DELIVER):
        deliveries.append(await get(queue, tag))
        assert deliveries[-1].body == job.encode()
        await deliveries[-1].nak(0)
    assert await queue.pull(tag, timeout_sec=0.1) is None  # the queue finds out when somebody pulls
    return deliveries[-1]


async def found(spent: SpentJobs, *bodies: bytes) -> list[SpentJob]:
    """What looking finds, as soon as it is just this: a server counts a moment after it has confirmed."""
    async with asyncio.timeout(5):
        jobs = await spent.look(LIMIT)
        while sorted(job.body for job in jobs) != sorted(bodies):
            await asyncio.sleep(0.01)
            jobs = await spent.look(LIMIT)
    return list(jobs)


def test_whoever_listens_is_told_once(backend: Backend) -> None:
    async def body(both: Both) -> None:
        told: list[tuple[int, int]] = []
        heard_by_another: list[tuple[int, int]] = []
        leave = await both.spent.subscribe(lambda *said: told.append(said))
        await both.spent.subscribe(lambda *said: heard_by_another.append(said))
        await spend(both.queue, "a")
        await wait_until(lambda: told and heard_by_another)
        [(number, times)] = told
        assert heard_by_another == told
        job = await both.spent.get(number, times)
        assert job is not None
        assert (job.tag, job.body, job.times_delivered, job.is_certain) == ("cpu", b"a", MAX_DELIVER, True)
        assert job.subject.endswith(".work.cpu")
        leave()
        await spend(both.queue, "b")
        await wait_until(lambda: len(heard_by_another) == 2)
        assert len(told) == 1

    attempt(backend, body)


def test_what_nobody_was_told_of_is_found_by_looking(backend: Backend) -> None:
    async def body(both: Both) -> None:
        assert await both.spent.look(LIMIT) == []
        await spend(both.queue, "a", "cpu")
        await spend(both.queue, "b", "gpu")
        jobs = await found(both.spent, b"a", b"b")
        assert {(job.tag, job.body, job.times_delivered, job.is_certain) for job in jobs} == {
            ("cpu", b"a", MAX_DELIVER, True),
            ("gpu", b"b", MAX_DELIVER, True),
        }

    attempt(backend, body)


def test_what_waits_or_is_out_is_not_taken_for_spent(backend: Backend) -> None:
    async def body(both: Both) -> None:
        for job in ("out", "postponed", "waits"):
            await both.queue.publish("cpu", job.encode(), dedup_id=job)
        held = await get(both.queue)
        assert held.body == b"out"
        await (await get(both.queue)).nak(60)
        await both.queue.publish("nobody", b"never pulled", dedup_id="never pulled")
        assert [job for job in await both.spent.look(LIMIT) if job.is_certain] == []
        await held.ack()

    attempt(backend, body)


def test_beside_jobs_that_are_out_nothing_is_certain_that_may_be_one_of_them(backend: Backend) -> None:
    async def body(both: Both) -> None:
        await spend(both.queue, "spent")
        await both.queue.publish("cpu", b"held", dedup_id="held")
        held = await get(both.queue)
        assert held.body == b"held"
        jobs = await both.spent.look(LIMIT)
        assert b"spent" in [job.body for job in jobs]
        assert b"held" not in [job.body for job in jobs if job.is_certain]
        await held.ack()
        [spent] = await found(both.spent, b"spent")
        assert spent.is_certain

    attempt(backend, body)


def test_no_more_than_so_many_of_a_tag_are_found_at_once(backend: Backend) -> None:
    async def body(both: Both) -> None:
        for job in ("a", "b", "c"):
            await spend(both.queue, job)
        await found(both.spent, b"a", b"b", b"c")
        assert [job.body for job in await both.spent.look(2)] == [b"a", b"b"]

    attempt(backend, body)


@pytest.mark.parametrize("has_neighbours", [False, True], ids=["alone", "amid others"])
def test_only_one_takes_a_job_out_of_the_queue(backend: Backend, has_neighbours: bool) -> None:
    async def body(both: Both) -> None:
        around = ("before", "a", "after") if has_neighbours else ("a",)
        for name in around:
            await spend(both.queue, name)
        [job] = [job for job in await found(both.spent, *(name.encode() for name in around)) if job.body == b"a"]
        assert sorted(await asyncio.gather(both.spent.remove(job.number), both.spent.remove(job.number))) == [
            False,
            True,
        ]
        assert await both.spent.get(job.number, MAX_DELIVER) is None
        await found(both.spent, *(name.encode() for name in around if name != "a"))
        await both.queue.publish("cpu", b"next", dedup_id="next")
        await (await get(both.queue)).ack()

    attempt(backend, body)


def test_an_acknowledgement_after_the_last_delivery_counts(backend: Backend) -> None:
    async def body(both: Both) -> None:
        last = await spend(both.queue, "a")
        [job] = await found(both.spent, b"a")
        await last.ack()
        await found(both.spent)
        assert await both.spent.get(job.number, MAX_DELIVER) is None
        assert not await both.spent.remove(job.number)

    attempt(backend, body)

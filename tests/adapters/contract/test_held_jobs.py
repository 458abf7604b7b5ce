"""What every queue knows of jobs in workers' hands, in memory and on JetStream."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.held_jobs import JetStreamHeldJobs
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.held_jobs import MemoryHeldJobs
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.app.ports import Delivery, WorkQueue
from pyoco_server.app.ports.work_queue import HeldJobs
from tests.adapters.conftest import Backend

R = TypeVar("R")


class Both(NamedTuple):
    """A queue, and what is known of the jobs that are out."""

    queue: WorkQueue
    held: HeldJobs


def attempt(backend: Backend, body: Callable[[Both], Awaitable[R]]) -> R:
    def in_memory() -> Both:
        queue = MemoryWorkQueue(SystemClock(), ack_wait_sec=30)
        return Both(queue, MemoryHeldJobs(queue))

    def on_jetstream(connection: Connection, names: Names) -> Both:
        patient = msgspec.structs.replace(names, ack_wait_sec=30.0)
        return Both(JetStreamWorkQueue(connection, patient), JetStreamHeldJobs(connection, patient))

    async def with_both(open_both: Callable[[], Awaitable[Both]]) -> R:
        return await body(await open_both())

    return backend.run(in_memory, on_jetstream, with_both)


async def put(queue: WorkQueue, *jobs: str, tag: str = "cpu") -> None:
    for job in jobs:
        await queue.publish(tag, job.encode(), dedup_id=job)


async def get(queue: WorkQueue, tag: str = "cpu") -> Delivery:
    delivery = await queue.pull(tag, timeout_sec=5)
    assert delivery is not None, "no job came"
    return delivery


def test_what_is_out_is_known_and_what_waits_or_is_settled_is_not(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, held = both
        assert [*await held.look(["cpu"])] == []
        await put(queue, "a", "b", "c", "d")
        await put(queue, "g", tag="gpu")
        first, _, third = await get(queue), await get(queue), await get(queue)
        await get(queue, "gpu")
        await first.ack()
        assert [(job.tag, job.body) for job in await held.look(["cpu"])] == [("cpu", b"b"), ("cpu", b"c")]
        assert {job.body for job in await held.look(["cpu", "gpu", "none"])} == {b"b", b"c", b"g"}
        assert [*await held.look([])] == []
        await third.term()
        assert [job.body for job in await held.look(["cpu"])] == [b"b"]

    attempt(backend, body)


def test_a_job_that_is_given_back_is_delivered_again_at_once_and_counted(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, held = both
        await put(queue, "a", "b", "c")
        for _ in range(3):
            await get(queue)
        for job in await held.look(["cpu"]):
            if job.body != b"b":
                await held.give_back(job)
        back = [await get(queue), await get(queue)]
        assert {(delivery.body, delivery.times_delivered) for delivery in back} == {(b"a", 2), (b"c", 2)}
        assert await queue.pull("cpu", timeout_sec=0.1) is None

    attempt(backend, body)


def test_a_job_given_back_twice_before_anybody_has_it_comes_once(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, held = both
        await put(queue, "a")
        await get(queue)
        [job] = await held.look(["cpu"])
        await held.give_back(job)
        await held.give_back(job)
        assert (await get(queue)).times_delivered == 2
        assert await queue.pull("cpu", timeout_sec=0.1) is None

    attempt(backend, body)


def test_a_job_that_somebody_else_has_by_now_is_delivered_once_more(backend: Backend) -> None:
    """Which is why those who give jobs back first look whose they are, and only one of them does."""

    async def body(both: Both) -> None:
        queue, held = both
        await put(queue, "a")
        await get(queue)
        [job] = await held.look(["cpu"])
        await held.give_back(job)
        await get(queue)
        await held.give_back(job)
        assert (await get(queue)).times_delivered == 3

    attempt(backend, body)


def test_giving_back_what_was_settled_changes_nothing(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, held = both
        await put(queue, "a")
        delivery = await get(queue)
        [job] = await held.look(["cpu"])
        await delivery.ack()
        await held.give_back(job)
        assert await queue.pull("cpu", timeout_sec=0.1) is None

    attempt(backend, body)


def test_the_holder_may_still_settle_what_was_given_back(backend: Backend) -> None:
    """It was cut off, and not dead: what it says late is heard."""

    async def body(both: Both) -> None:
        queue, held = both
        await put(queue, "a")
        first = await get(queue)
        [job] = await held.look(["cpu"])
        await held.give_back(job)
        second = await get(queue)
        await first.ack()
        await second.ack()
        assert [*await held.look(["cpu"])] == []

    attempt(backend, body)

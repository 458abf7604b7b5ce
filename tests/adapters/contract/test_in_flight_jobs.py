"""The contract of the list of jobs in flight, in memory and on JetStream."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.in_flight_jobs import JetStreamInFlightJobs
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.work_queue import MemoryInFlightJobs, MemoryWorkQueue
from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import Delivery, WorkQueue
from pyoco_server.app.ports.work_queue import InFlightJobs
from tests.adapters.conftest import Backend

R = TypeVar("R")


class Both(NamedTuple):
    """A queue, and the list of its jobs in flight."""

    queue: WorkQueue
    in_flight: InFlightJobs


def attempt(backend: Backend, body: Callable[[Both], Awaitable[R]]) -> R:
    def in_memory() -> Both:
        queue = MemoryWorkQueue(SystemClock(), ack_wait_sec=30)
        return Both(queue, MemoryInFlightJobs(queue))

    def on_jetstream(connection: Connection, names: Names) -> Both:
        patient = msgspec.structs.replace(names, ack_wait_sec=30.0)
        return Both(JetStreamWorkQueue(connection, patient), JetStreamInFlightJobs(connection, patient))

    async def with_both(open_both: Callable[[], Awaitable[Both]]) -> R:
        return await body(await open_both())

    return backend.run(in_memory, on_jetstream, with_both)


async def publish(queue: WorkQueue, *jobs: str, tag: str = "cpu") -> None:
    for job in jobs:
        await queue.publish(tag, job.encode(), dedup_id=job)


async def get(queue: WorkQueue, tag: str = "cpu") -> Delivery:
    delivery = await queue.pull(tag, timeout_sec=30)
    assert delivery is not None, "no job came"
    return delivery


def test_look_returns_delivered_jobs_but_not_waiting_or_settled_ones(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, in_flight = both
        assert [*await in_flight.look(["cpu"])] == []
        await publish(queue, "a", "b", "c", "d")
        await publish(queue, "g", tag="gpu")
        first, _, third = await get(queue), await get(queue), await get(queue)
        await get(queue, "gpu")
        await first.ack()
        assert [(job.tag, job.body) for job in await in_flight.look(["cpu"])] == [("cpu", b"b"), ("cpu", b"c")]
        assert {job.body for job in await in_flight.look(["cpu", "gpu", "none"])} == {b"b", b"c", b"g"}
        assert [*await in_flight.look([])] == []
        await third.term()
        assert [job.body for job in await in_flight.look(["cpu"])] == [b"b"]

    attempt(backend, body)


def test_returned_job_is_delivered_again_at_once_and_counted(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, in_flight = both
        await publish(queue, "a", "b", "c")
        for _ in range(3):
            await get(queue)
        for job in await in_flight.look(["cpu"]):
            if job.body != b"b":
                await in_flight.give_back(job)
        back = [await get(queue), await get(queue)]
        assert {(delivery.body, delivery.times_delivered) for delivery in back} == {(b"a", 2), (b"c", 2)}
        assert await queue.pull("cpu", timeout_sec=0.1) is None

    attempt(backend, body)


def test_job_returned_twice_before_its_redelivery_is_delivered_once(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, in_flight = both
        await publish(queue, "a")
        await get(queue)
        [job] = await in_flight.look(["cpu"])
        await in_flight.give_back(job)
        await in_flight.give_back(job)
        assert (await get(queue)).times_delivered == 2
        assert await queue.pull("cpu", timeout_sec=0.1) is None

    attempt(backend, body)


def test_returning_a_job_that_was_redelivered_meanwhile_delivers_it_once_more(backend: Backend) -> None:
    """The queue cannot distinguish the deliveries, so the caller must check first which worker has the job."""

    async def body(both: Both) -> None:
        queue, in_flight = both
        await publish(queue, "a")
        await get(queue)
        [job] = await in_flight.look(["cpu"])
        await in_flight.give_back(job)
        await get(queue)
        await in_flight.give_back(job)
        assert (await get(queue)).times_delivered == 3

    attempt(backend, body)


def test_returning_a_settled_job_changes_nothing(backend: Backend) -> None:
    async def body(both: Both) -> None:
        queue, in_flight = both
        await publish(queue, "a")
        delivery = await get(queue)
        [job] = await in_flight.look(["cpu"])
        await delivery.ack()
        await in_flight.give_back(job)
        assert await queue.pull("cpu", timeout_sec=0.1) is None

    attempt(backend, body)


def test_first_worker_may_still_settle_a_returned_job(backend: Backend) -> None:
    """The worker was disconnected, not dead: its late acknowledgement counts."""

    async def body(both: Both) -> None:
        queue, in_flight = both
        await publish(queue, "a")
        first = await get(queue)
        [job] = await in_flight.look(["cpu"])
        await in_flight.give_back(job)
        second = await get(queue)
        await first.ack()
        await second.ack()
        assert [*await in_flight.look(["cpu"])] == []

    attempt(backend, body)

"""The contract of the work queue, in memory and on JetStream, with its corner cases."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import Delivery, WorkQueue
from tests.adapters.conftest import Backend

R = TypeVar("R")

ACK_WAIT_SEC = 0.3
QUIET_SEC = 0.1
"""How long to wait for a job that must not come."""
AT_ONCE_SEC = 10.0
SOON_SEC = 30.0


def attempt(
    backend: Backend,
    body: Callable[[WorkQueue], Awaitable[R]],
    *,
    ack_wait_sec: float = ACK_WAIT_SEC,
    max_deliver: int = 20,
    max_ack_pending: int = 200,
) -> R:
    def in_memory() -> WorkQueue:
        return MemoryWorkQueue(
            SystemClock(), ack_wait_sec=ack_wait_sec, max_deliver=max_deliver, max_ack_pending=max_ack_pending
        )

    def on_jetstream(connection: Connection, names: Names) -> WorkQueue:
        limits = {"ack_wait_sec": ack_wait_sec, "max_deliver": max_deliver, "max_ack_pending": max_ack_pending}
        return JetStreamWorkQueue(connection, msgspec.structs.replace(names, **limits))

    async def with_queue(open_queue: Callable[[], Awaitable[WorkQueue]]) -> R:
        return await body(await open_queue())

    return backend.run(in_memory, on_jetstream, with_queue)


async def publish(queue: WorkQueue, *jobs: str, tag: str = "cpu") -> None:
    for job in jobs:
        await queue.publish(tag, job.encode(), dedup_id=job)


async def get(queue: WorkQueue, tag: str = "cpu", *, timeout_sec: float = SOON_SEC) -> Delivery:
    delivery = await queue.pull(tag, timeout_sec=timeout_sec)
    assert delivery is not None, "no job came"
    return delivery


async def nothing(queue: WorkQueue, tag: str = "cpu", *, timeout_sec: float = QUIET_SEC) -> None:
    delivery = await queue.pull(tag, timeout_sec=timeout_sec)
    assert delivery is None, f"{delivery.body!r} came"


async def counted(queue: WorkQueue, expected: int, tag: str = "cpu") -> None:
    """Wait until the backlog has this size: a server updates its counts after it has confirmed."""
    async with asyncio.timeout(SOON_SEC):
        while await queue.backlog(tag) != expected:  # noqa: ASYNC110 only the queue knows
            await asyncio.sleep(0.01)


def test_jobs_are_delivered_in_order_and_removed_by_their_ack(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await queue.prepare("cpu")
        await publish(queue, "a", "b", "c")
        await counted(queue, 3)
        for expected in (b"a", b"b", b"c"):
            delivery = await get(queue)
            assert delivery.body == expected
            assert delivery.times_delivered == 1
            assert not delivery.is_last
            await delivery.ack()
        await counted(queue, 0)
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)

    attempt(backend, body)


def test_delivery_has_its_tag_and_subject(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a", tag="gpu-1")
        delivery = await get(queue, "gpu-1")
        assert delivery.tag == "gpu-1"
        assert delivery.subject.endswith(".work.gpu-1")

    attempt(backend, body)


def test_job_waits_for_the_first_pull_of_its_tag(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "early")
        await counted(queue, 1)
        await (await get(queue)).ack()
        await counted(queue, 0)

    attempt(backend, body)


def test_prepare_again_changes_nothing(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        await queue.prepare("cpu")
        held = await get(queue)
        await asyncio.gather(*[queue.prepare("cpu") for _ in range(5)])
        assert held.times_delivered == 1
        await nothing(queue)

    attempt(backend, body)


@pytest.mark.parametrize("timeout_sec", [0.0, 0.2])
def test_pull_ends_after_its_timeout(backend: Backend, timeout_sec: float) -> None:
    async def body(queue: WorkQueue) -> float:
        await queue.prepare("cpu")
        began = asyncio.get_running_loop().time()
        await nothing(queue, timeout_sec=timeout_sec)
        return asyncio.get_running_loop().time() - began

    took = attempt(backend, body)
    assert timeout_sec <= took < timeout_sec + SOON_SEC


def test_pull_with_timeout_zero_returns_an_available_job(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> bytes:
        await publish(queue, "a")
        return (await get(queue, timeout_sec=0)).body

    assert attempt(backend, body) == b"a"


def test_waiting_pull_gets_a_new_job_at_once(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await queue.prepare("cpu")
        for job in ("a", "b", "c"):
            waiting = asyncio.ensure_future(get(queue, timeout_sec=60))
            await asyncio.sleep(0)
            await publish(queue, job)
            async with asyncio.timeout(AT_ONCE_SEC):
                await (await waiting).ack()

    attempt(backend, body)


def test_pull_gets_only_jobs_of_its_tag(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "c", tag="cpu")
        await publish(queue, "g", tag="gpu")
        await nothing(queue, "other")
        assert (await get(queue, "gpu")).body == b"g"
        assert (await get(queue, "cpu")).body == b"c"

    attempt(backend, body)


def test_concurrent_pulls_get_each_job_once(backend: Backend) -> None:
    jobs = [f"job{number}" for number in range(60)]

    async def body(queue: WorkQueue) -> list[str]:
        got: list[str] = []

        async def work() -> None:
            while (delivery := await queue.pull("cpu", timeout_sec=0.5)) is not None:
                got.append(delivery.body.decode())
                await delivery.ack()

        await asyncio.gather(publish(queue, *jobs), *[work() for _ in range(8)])
        return got

    assert sorted(attempt(backend, body, ack_wait_sec=5)) == sorted(jobs)


def test_unsettled_job_is_redelivered_until_its_last_delivery(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        held = [await get(queue) for _ in range(3)]
        assert [delivery.times_delivered for delivery in held] == [1, 2, 3]
        assert [delivery.is_last for delivery in held] == [False, False, True]
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)
        await counted(queue, 0)
        await held[0].ack()  # late, and fine

    attempt(backend, body, max_deliver=3)


def test_nak_of_the_last_delivery_does_not_redeliver_the_job(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a", "b")
        for _ in range(2):
            await (await get(queue)).nak(0)
        assert (await get(queue)).body == b"b"
        await nothing(queue)

    attempt(backend, body, max_deliver=2, ack_wait_sec=5)


def test_job_with_a_limit_of_one_delivery_is_not_redelivered(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        assert (await get(queue)).is_last
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)

    attempt(backend, body, max_deliver=1)


def test_redelivered_job_comes_before_new_jobs(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "old", "new")
        await (await get(queue)).nak(0)
        again = await get(queue)
        assert (again.body, again.times_delivered) == (b"old", 2)

    attempt(backend, body)


def test_nak_redelivers_the_job_after_the_delay(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> float:
        await publish(queue, "a")
        await (await get(queue)).nak(0.3)
        began = asyncio.get_running_loop().time()
        again = await get(queue)
        assert again.times_delivered == 2
        return asyncio.get_running_loop().time() - began

    assert attempt(backend, body, ack_wait_sec=600) > 0.25


def test_terminated_job_is_not_redelivered(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        await (await get(queue)).term()
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)

    attempt(backend, body)


def test_job_reported_in_progress_is_not_redelivered(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        delivery = await get(queue)
        for _ in range(5):
            await nothing(queue, timeout_sec=ACK_WAIT_SEC / 3)
            await delivery.in_progress()
        again = await get(queue)
        assert again.times_delivered == 2

    attempt(backend, body)


def test_late_ack_removes_a_job_that_was_delivered_to_another_worker(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        first = await get(queue)
        second = await get(queue)
        assert second.times_delivered == 2
        assert first.times_delivered == 1
        await first.ack()
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)
        await second.ack()
        await second.in_progress()
        await second.nak(0)
        await nothing(queue)

    attempt(backend, body)


def test_publish_with_a_used_dedup_id_is_ignored(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await queue.publish("cpu", b"first", dedup_id="one")
        await queue.publish("cpu", b"again", dedup_id="one")
        await queue.publish("gpu", b"elsewhere", dedup_id="one")
        await queue.publish("cpu", b"second", dedup_id="two")
        await counted(queue, 2)
        await counted(queue, 0, "gpu")
        first = await get(queue)
        await first.ack()
        await queue.publish("cpu", b"after it was done", dedup_id="one")
        second = await get(queue)
        assert [first.body, second.body] == [b"first", b"second"]
        await nothing(queue)

    attempt(backend, body, ack_wait_sec=5)


def test_jobs_in_flight_are_limited_by_max_ack_pending(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a", "b", "c")
        first, _second = await get(queue), await get(queue)
        await nothing(queue)
        await nothing(queue, timeout_sec=0)
        waiting = asyncio.ensure_future(get(queue))
        await first.ack()
        assert (await waiting).body == b"c"

    attempt(backend, body, max_ack_pending=2, ack_wait_sec=5)


def test_cancelled_pull_loses_no_job(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await queue.prepare("cpu")
        for job in ("a", "b", "c"):
            cancelled = asyncio.ensure_future(queue.pull("cpu", timeout_sec=5))
            await asyncio.sleep(0.02)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            await publish(queue, job)
            delivery = await get(queue, timeout_sec=AT_ONCE_SEC)
            assert (delivery.body, delivery.times_delivered) == (job.encode(), 1)

    attempt(backend, body, ack_wait_sec=30)


def test_pulls_cancelled_at_random_moments_lose_no_job(backend: Backend) -> None:
    jobs = {f"job{number}" for number in range(200)}
    chance = random.Random(7)
    # The plain client may leave a job undelivered until its ack wait is over (ADR 0024). The others never do: their
    # limit is less than the ack wait.
    is_plain = backend.jetstream is not None and backend.jetstream.plain
    ack_wait_sec, limit_sec, max_deliver = (1, 60, 50) if is_plain else (10, 8, 5)

    async def body(queue: WorkQueue) -> set[str]:
        await queue.prepare("cpu")
        got: set[str] = set()

        async def impatient() -> None:
            while got != jobs:
                pulling = asyncio.ensure_future(queue.pull("cpu", timeout_sec=1))
                await asyncio.wait([pulling], timeout=chance.uniform(0, 0.004))
                pulling.cancel()
                await asyncio.wait([pulling])
                delivery = None if pulling.cancelled() else pulling.result()
                if delivery is not None:
                    got.add(delivery.body.decode())
                    await delivery.ack()

        async with asyncio.timeout(limit_sec):
            await asyncio.gather(publish(queue, *sorted(jobs)), *[impatient() for _ in range(4)])
        return got

    assert attempt(backend, body, ack_wait_sec=ack_wait_sec, max_deliver=max_deliver) == jobs


@pytest.mark.parametrize("beats", [False, True])
@pytest.mark.parametrize("delay_sec", [0.0, 0.05])
def test_nak_of_an_expired_delivery_does_not_redeliver_the_job(backend: Backend, delay_sec: float, beats: bool) -> None:
    """Not even after an in-progress report of the expired delivery, which the queue accepted."""

    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        lost = await get(queue)
        await asyncio.sleep(ACK_WAIT_SEC)
        mine = await get(queue)
        assert mine.times_delivered == 2
        if beats:
            await lost.in_progress()
        await lost.nak(delay_sec)
        await nothing(queue)
        await mine.ack()
        await counted(queue, 0)

    attempt(backend, body)

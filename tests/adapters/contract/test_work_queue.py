"""What every queue does, in memory and on JetStream, down to the corners one would not expect."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.app.ports import Delivery, WorkQueue
from tests.adapters.conftest import Backend

R = TypeVar("R")

ACK_WAIT_SEC = 0.3
QUIET_SEC = 0.1
"""How long to look for something that should not be there."""
AT_ONCE_SEC = 1.0
SOON_SEC = 5.0


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
    """The backlog is so large, or is about to be: a server counts a moment after it has confirmed."""
    async with asyncio.timeout(SOON_SEC):
        while await queue.backlog(tag) != expected:  # noqa: ASYNC110 only the queue knows
            await asyncio.sleep(0.01)


def test_jobs_come_in_order_and_go_when_acknowledged(backend: Backend) -> None:
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


def test_a_delivery_knows_where_it_comes_from(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a", tag="gpu-1")
        delivery = await get(queue, "gpu-1")
        assert delivery.tag == "gpu-1"
        assert delivery.subject.endswith(".work.gpu-1")

    attempt(backend, body)


def test_a_job_waits_for_the_first_who_pulls_its_tag(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "early")
        await counted(queue, 1)
        await (await get(queue)).ack()
        await counted(queue, 0)

    attempt(backend, body)


def test_preparing_again_changes_nothing(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        await queue.prepare("cpu")
        held = await get(queue)
        await asyncio.gather(*[queue.prepare("cpu") for _ in range(5)])
        assert held.times_delivered == 1
        await nothing(queue)

    attempt(backend, body)


@pytest.mark.parametrize("timeout_sec", [0.0, 0.2])
def test_a_pull_ends_in_time(backend: Backend, timeout_sec: float) -> None:
    async def body(queue: WorkQueue) -> float:
        await queue.prepare("cpu")
        began = asyncio.get_running_loop().time()
        await nothing(queue, timeout_sec=timeout_sec)
        return asyncio.get_running_loop().time() - began

    took = attempt(backend, body)
    assert timeout_sec <= took < timeout_sec + 0.3


def test_a_pull_that_does_not_wait_finds_what_is_there(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> bytes:
        await publish(queue, "a")
        return (await get(queue, timeout_sec=0)).body

    assert attempt(backend, body) == b"a"


def test_who_waits_gets_a_job_at_once(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await queue.prepare("cpu")
        for job in ("a", "b", "c"):
            waiting = asyncio.ensure_future(get(queue, timeout_sec=5))
            await asyncio.sleep(0)
            await publish(queue, job)
            async with asyncio.timeout(AT_ONCE_SEC):
                await (await waiting).ack()

    attempt(backend, body)


def test_tags_do_not_mix(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "c", tag="cpu")
        await publish(queue, "g", tag="gpu")
        await nothing(queue, "other")
        assert (await get(queue, "gpu")).body == b"g"
        assert (await get(queue, "cpu")).body == b"c"

    attempt(backend, body)


def test_each_job_goes_to_one_of_those_who_pull(backend: Backend) -> None:
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


def test_a_job_nobody_settles_comes_back_until_its_last_delivery(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        held = [await get(queue) for _ in range(3)]
        assert [delivery.times_delivered for delivery in held] == [1, 2, 3]
        assert [delivery.is_last for delivery in held] == [False, False, True]
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)
        await counted(queue, 0)
        await held[0].ack()  # late, and fine

    attempt(backend, body, max_deliver=3)


def test_a_last_delivery_that_is_refused_is_the_last_all_the_same(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a", "b")
        for _ in range(2):
            await (await get(queue)).nak(0)
        assert (await get(queue)).body == b"b"
        await nothing(queue)

    attempt(backend, body, max_deliver=2, ack_wait_sec=5)


def test_only_one_delivery_at_all(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        assert (await get(queue)).is_last
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)

    attempt(backend, body, max_deliver=1)


def test_what_comes_back_goes_before_what_is_new(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "old", "new")
        await (await get(queue)).nak(0)
        again = await get(queue)
        assert (again.body, again.times_delivered) == (b"old", 2)

    attempt(backend, body)


def test_a_refused_job_comes_back_after_the_delay(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> float:
        await publish(queue, "a")
        await (await get(queue)).nak(0.3)
        began = asyncio.get_running_loop().time()
        again = await get(queue)
        assert again.times_delivered == 2
        return asyncio.get_running_loop().time() - began

    assert 0.25 < attempt(backend, body, ack_wait_sec=5) < 1.5


def test_a_terminated_job_never_comes_back(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        await (await get(queue)).term()
        await nothing(queue, timeout_sec=ACK_WAIT_SEC + QUIET_SEC)

    attempt(backend, body)


def test_work_in_progress_does_not_come_back(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a")
        delivery = await get(queue)
        for _ in range(5):
            await nothing(queue, timeout_sec=ACK_WAIT_SEC / 3)
            await delivery.in_progress()
        again = await get(queue)
        assert again.times_delivered == 2

    attempt(backend, body)


def test_a_late_acknowledgement_counts_whoever_has_the_job_by_then(backend: Backend) -> None:
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


def test_the_same_id_is_the_same_job(backend: Backend) -> None:
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


def test_no_more_than_so_many_are_out_at_once(backend: Backend) -> None:
    async def body(queue: WorkQueue) -> None:
        await publish(queue, "a", "b", "c")
        first, _second = await get(queue), await get(queue)
        await nothing(queue)
        await nothing(queue, timeout_sec=0)
        waiting = asyncio.ensure_future(get(queue))
        await first.ack()
        assert (await waiting).body == b"c"

    attempt(backend, body, max_ack_pending=2, ack_wait_sec=5)


def test_a_cancelled_pull_takes_no_job_with_it(backend: Backend) -> None:
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


def test_pulls_cancelled_at_any_moment_lose_nothing(backend: Backend) -> None:
    jobs = {f"job{number}" for number in range(200)}
    chance = random.Random(7)

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

        async with asyncio.timeout(8):  # below the ack wait: none went missing for that long
            await asyncio.gather(publish(queue, *sorted(jobs)), *[impatient() for _ in range(4)])
        return got

    assert attempt(backend, body, ack_wait_sec=10, max_deliver=5) == jobs


@pytest.mark.parametrize("beats", [False, True])
@pytest.mark.parametrize("delay_sec", [0.0, 0.05])
def test_who_has_lost_a_job_cannot_take_it_from_whoever_has_it_now(
    backend: Backend, delay_sec: float, beats: bool
) -> None:
    """Not even if they went on saying that they are at it, and nobody contradicted."""

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

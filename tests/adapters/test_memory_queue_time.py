"""The queue in memory uses the clock it is given, so that simulated hours take no time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.testing import VirtualClock

R = TypeVar("R")


def attempt(body: Callable[[MemoryWorkQueue, VirtualClock], Awaitable[R]], *, max_deliver: int = 20) -> R:
    async def within_seconds() -> R:
        clock = VirtualClock()
        async with asyncio.timeout(10):
            return await body(MemoryWorkQueue(clock, max_deliver=max_deliver), clock)

    return asyncio.run(within_seconds())


def test_job_is_redelivered_after_its_ack_wait() -> None:
    async def body(queue: MemoryWorkQueue, clock: VirtualClock) -> list[float]:
        begin = clock.now()
        moments: list[float] = []
        await queue.publish("cpu", b"a", dedup_id="a")
        while (delivery := await queue.pull("cpu", timeout_sec=3_600)) is not None:
            moments.append((clock.now() - begin).total_seconds())
            if delivery.times_delivered == 2:
                await clock.sleep(20)
                await delivery.in_progress()
            if delivery.times_delivered == 3:
                await delivery.nak(500)
        return moments

    assert attempt(body, max_deliver=4) == [0, 30, 80, 580]


def test_pull_ends_after_its_timeout() -> None:
    async def body(queue: MemoryWorkQueue, clock: VirtualClock) -> timedelta:
        begin = clock.now()
        assert await queue.pull("cpu", timeout_sec=86_400) is None
        return clock.now() - begin

    assert attempt(body) == timedelta(days=1)


def test_dedup_id_may_be_used_again_after_the_window() -> None:
    async def body(queue: MemoryWorkQueue, clock: VirtualClock) -> list[int]:
        backlogs: list[int] = []
        for pause in (0, 119, 2, 60):
            await clock.sleep(pause)
            await queue.publish("cpu", b"a", dedup_id="a")
            backlogs.append(await queue.backlog("cpu"))
        return backlogs

    assert attempt(body) == [1, 1, 2, 2]


def test_waiting_pulls_get_jobs_in_order() -> None:
    async def body(queue: MemoryWorkQueue, clock: VirtualClock) -> list[int]:
        served: list[int] = []

        async def wait(number: int) -> None:
            await clock.sleep(number)
            assert await queue.pull("cpu", timeout_sec=1_000)
            served.append(number)

        async def publish() -> None:
            await clock.sleep(100)
            for number in range(5):
                await queue.publish("cpu", b"job", dedup_id=str(number))

        await asyncio.gather(publish(), *[wait(number) for number in (3, 1, 4, 0, 2)])
        return served

    assert attempt(body) == [0, 1, 2, 3, 4]


def test_queue_in_memory_never_stalls() -> None:
    async def body(queue: MemoryWorkQueue, clock: VirtualClock) -> None:
        pulling = asyncio.ensure_future(queue.pull("cpu", timeout_sec=50))
        await clock.sleep(10)
        assert not await queue.stalled("cpu")
        await queue.rebind("cpu")
        assert await pulling is None

    attempt(body)

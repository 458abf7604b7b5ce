"""Short functions that publish jobs to a queue on JetStream and pull them."""

import asyncio

from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamDelivery, JetStreamWorkQueue
from tests.waiting import PATIENCE_SEC, wait_until

RECOVERY_SEC = 15.0
"""Less than a pull waits for its job here, and than the ack wait: the job comes because the pull has recovered."""


async def get(queue: JetStreamWorkQueue, tag: str = "cpu", *, timeout_sec: float = 5.0) -> JetStreamDelivery:
    delivery = await queue.pull(tag, timeout_sec=timeout_sec)
    assert delivery is not None, "no job came"
    return delivery


async def published(queue: JetStreamWorkQueue, *jobs: str, tag: str = "cpu") -> None:
    for job in jobs:
        await queue.publish(tag, job.encode(), dedup_id=job)


async def counted(queue: JetStreamWorkQueue, expected: int) -> None:
    """Wait until the backlog has this size: the server updates its counts after it has confirmed."""
    async with asyncio.timeout(PATIENCE_SEC):
        while await queue.backlog("cpu") != expected:  # noqa: ASYNC110 only the queue knows
            await asyncio.sleep(0.01)


async def waiting_pull(queue: JetStreamWorkQueue, *, timeout_sec: float = 20.0) -> asyncio.Task[JetStreamDelivery]:
    """Start a pull, and return it when its request has reached the server."""
    await queue.prepare("cpu")
    pulling = asyncio.create_task(get(queue, timeout_sec=timeout_sec))
    await wait_until(lambda: queue._pulls._out)
    await queue._connection.nc.flush()
    return pulling


async def soon(pulling: asyncio.Task[JetStreamDelivery], expected: str) -> JetStreamDelivery:
    async with asyncio.timeout(RECOVERY_SEC):
        delivery = await pulling
    assert delivery.body == expected.encode()
    return delivery

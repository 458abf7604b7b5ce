"""A wake-up that was not confirmed is queued again until it is, in memory and on JetStream."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import TooLargeError, UnavailableError, WorkQueue
from pyoco_server.app.runs import job as waking
from pyoco_server.app.runs.job import Job, WakeUpQueue, decode_job
from pyoco_server.testing import VirtualClock
from tests.adapters.conftest import Backend
from tests.adapters.real_nats import NatsServer, names_for
from tests.waiting import wait_until

LOST, UNANSWERED = "lost", "unanswered"
SOON_SEC = 10.0


class Unsteady:
    """A queue whose next publishes are lost, or not answered; all are answered once no fault is left."""

    def __init__(self, inner: WorkQueue, *faults: str) -> None:
        self.inner = inner
        self.faults = deque(faults)
        self.tries = 0
        self.error: Exception = UnavailableError("no answer")

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        self.tries += 1
        fault = self.faults.popleft() if self.faults else None
        if fault != LOST:
            await self.inner.publish(tag, body, dedup_id=dedup_id)
        if fault is not None:
            raise self.error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def a_job(run_id: str = "r1", position: int = 7) -> Job:
    return Job(run_id=run_id, flow_name="f", tag="cpu", submitted_at=1.0, log_position=position, wake=True)


def attempt(backend: Backend, body: Callable[[WorkQueue], Awaitable[None]]) -> None:
    def in_memory() -> WorkQueue:
        return MemoryWorkQueue(SystemClock())

    def on_jetstream(connection: Connection, names: Names) -> WorkQueue:
        return JetStreamWorkQueue(connection, names)

    async def with_queue(open_queue: Callable[[], Awaitable[WorkQueue]]) -> None:
        await body(await open_queue())

    backend.run(in_memory, on_jetstream, with_queue)


async def the_only_job(queue: WorkQueue) -> Job:
    """Return the only job of the queue."""
    delivery = await queue.pull("cpu", timeout_sec=SOON_SEC)
    assert delivery is not None, "no job came"
    await delivery.ack()
    assert await queue.backlog("cpu") == 0
    return decode_job(delivery.body)


@pytest.mark.parametrize("faults", [[], [LOST], [UNANSWERED], [LOST, LOST, UNANSWERED], [UNANSWERED, UNANSWERED]])
def test_wake_up_is_queued_once_after_failures_of_the_first_tries(backend: Backend, faults: list[str]) -> None:
    async def body(queue: WorkQueue) -> None:
        unsteady = Unsteady(queue, *faults)
        wake_ups = WakeUpQueue(unsteady, SystemClock())
        if faults:
            with pytest.raises(UnavailableError):
                await wake_ups.send(a_job())
            assert unsteady.tries == 1, "the caller waits for the first try only"
        else:
            await wake_ups.send(a_job())
        await wait_until(lambda: unsteady.tries == len(faults) + 1)
        await wait_until(lambda: not wake_ups._retrying)
        assert await the_only_job(queue) == a_job()

    attempt(backend, body)


def test_cancelled_caller_does_not_drop_the_wake_up(backend: Backend) -> None:
    """A gateway stops waiting when a request takes too long because the queue does not answer."""

    async def body(queue: WorkQueue) -> None:
        stuck = asyncio.Event()

        class Stuck(Unsteady):
            @override
            async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
                await stuck.wait()
                await super().publish(tag, body, dedup_id=dedup_id)

        wake_ups = WakeUpQueue(Stuck(queue, LOST), SystemClock())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wake_ups.send(a_job()), 0.05)
        stuck.set()
        assert await the_only_job(queue) == a_job()

    attempt(backend, body)


def test_wake_up_is_queued_soon_after_an_outage(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        names = names_for("woken")
        async with await connect(own_nats_server.url, name="test") as connection:
            await provision(connection, names)
            queue = JetStreamWorkQueue(connection, names)
            await queue.prepare("cpu")
            own_nats_server.kill()
            wake_ups = WakeUpQueue(queue, SystemClock())
            with pytest.raises(UnavailableError):
                await wake_ups.send(a_job())
            own_nats_server.start()
            await wait_until(lambda: not wake_ups._retrying)
            assert await the_only_job(queue) == a_job()
            await queue.close()

    asyncio.run(body())


def test_wake_up_that_keeps_failing_is_left_to_the_reconciler(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        clock = VirtualClock()
        began = clock.now()
        unsteady = Unsteady(MemoryWorkQueue(clock), *[LOST] * 1_000)
        wake_ups = WakeUpQueue(unsteady, clock)
        with pytest.raises(UnavailableError):
            await wake_ups.send(a_job())
        await wait_until(lambda: not wake_ups._retrying)
        assert timedelta(0) <= clock.now() - began - waking.PATIENCE < timedelta(seconds=10)
        assert 10 < unsteady.tries < 40

    asyncio.run(body())
    assert "wake_left_to_sweep" in [record.__dict__.get("action") for record in caplog.records]


def test_wake_up_refused_by_the_queue_is_not_retried() -> None:
    async def body() -> None:
        unsteady = Unsteady(MemoryWorkQueue(SystemClock()), LOST)
        unsteady.error = TooLargeError("too large")
        wake_ups = WakeUpQueue(unsteady, SystemClock())
        with pytest.raises(TooLargeError):
            await wake_ups.send(a_job())
        await wait_until(lambda: not wake_ups._retrying)
        assert unsteady.tries == 1

    asyncio.run(body())


def test_wake_ups_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "MOST", 2)

    async def body() -> None:
        unsteady = Unsteady(MemoryWorkQueue(SystemClock()), *[LOST] * 3)
        wake_ups = WakeUpQueue(unsteady, SystemClock())
        for number in range(3):
            with pytest.raises(UnavailableError):
                await wake_ups.send(a_job(f"r{number}"))
        await wait_until(lambda: not wake_ups._retrying)
        assert await unsteady.backlog("cpu") == 2

    asyncio.run(body())

"""A wake-up that was not confirmed is queued again until it is, in memory and on JetStream."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.app import waking
from pyoco_server.app.jobs import Job, decode_job
from pyoco_server.app.ports import TooLargeError, UnavailableError, WorkQueue
from pyoco_server.app.waking import WakeUps
from pyoco_server.testing import VirtualClock
from tests.adapters.conftest import Backend
from tests.adapters.nats_server import NatsServer, names_for
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
    """The one job there is."""
    delivery = await queue.pull("cpu", timeout_sec=SOON_SEC)
    assert delivery is not None, "no job came"
    await delivery.ack()
    assert await queue.backlog("cpu") == 0
    return decode_job(delivery.body)


@pytest.mark.parametrize("faults", [[], [LOST], [UNANSWERED], [LOST, LOST, UNANSWERED], [UNANSWERED, UNANSWERED]])
def test_it_is_there_once_whatever_became_of_the_first_tries(backend: Backend, faults: list[str]) -> None:
    async def body(queue: WorkQueue) -> None:
        unsteady = Unsteady(queue, *faults)
        wake_ups = WakeUps(unsteady, SystemClock())
        if faults:
            with pytest.raises(UnavailableError):
                await wake_ups.send(a_job())
            assert unsteady.tries == 1, "whoever asks waits for the first try only"
        else:
            await wake_ups.send(a_job())
        await wait_until(lambda: unsteady.tries == len(faults) + 1)
        await wait_until(lambda: not wake_ups._under_way)
        assert await the_only_job(queue) == a_job()

    attempt(backend, body)


def test_whoever_gives_up_waiting_does_not_give_up_the_wake_up(backend: Backend) -> None:
    """As a gateway does when a request takes too long: the queue answers nobody for the moment."""

    async def body(queue: WorkQueue) -> None:
        stuck = asyncio.Event()

        class Stuck(Unsteady):
            @override
            async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
                await stuck.wait()
                await super().publish(tag, body, dedup_id=dedup_id)

        wake_ups = WakeUps(Stuck(queue, LOST), SystemClock())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wake_ups.send(a_job()), 0.05)
        stuck.set()
        assert await the_only_job(queue) == a_job()

    attempt(backend, body)


def test_a_server_that_was_away_has_it_soon_after_it_is_back(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        names = names_for("woken")
        async with await connect(own_nats_server.url, name="test") as connection:
            await provision(connection, names)
            queue = JetStreamWorkQueue(connection, names)
            await queue.prepare("cpu")
            own_nats_server.kill()
            wake_ups = WakeUps(queue, SystemClock())
            with pytest.raises(UnavailableError):
                await wake_ups.send(a_job())
            own_nats_server.start()
            await wait_until(lambda: not wake_ups._under_way, timeout=20)
            assert await the_only_job(queue) == a_job()
            await queue.close()

    asyncio.run(body())


def test_in_the_end_it_is_left_to_the_sweep(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        clock = VirtualClock()
        began = clock.now()
        unsteady = Unsteady(MemoryWorkQueue(clock), *[LOST] * 1_000)
        wake_ups = WakeUps(unsteady, clock)
        with pytest.raises(UnavailableError):
            await wake_ups.send(a_job())
        await wait_until(lambda: not wake_ups._under_way)
        assert timedelta(0) <= clock.now() - began - waking.PATIENCE < timedelta(seconds=10)
        assert 10 < unsteady.tries < 40

    asyncio.run(body())
    assert "wake_left_to_sweep" in [record.__dict__.get("action") for record in caplog.records]


def test_a_job_the_queue_refuses_is_not_tried_again() -> None:
    async def body() -> None:
        unsteady = Unsteady(MemoryWorkQueue(SystemClock()), LOST)
        unsteady.error = TooLargeError("too large")
        wake_ups = WakeUps(unsteady, SystemClock())
        with pytest.raises(TooLargeError):
            await wake_ups.send(a_job())
        await wait_until(lambda: not wake_ups._under_way)
        assert unsteady.tries == 1

    asyncio.run(body())


def test_only_so_many_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "MOST", 2)

    async def body() -> None:
        unsteady = Unsteady(MemoryWorkQueue(SystemClock()), *[LOST] * 3)
        wake_ups = WakeUps(unsteady, SystemClock())
        for number in range(3):
            with pytest.raises(UnavailableError):
                await wake_ups.send(a_job(f"r{number}"))
        await wait_until(lambda: not wake_ups._under_way)
        assert await unsteady.backlog("cpu") == 2

    asyncio.run(body())

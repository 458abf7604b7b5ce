"""The ports of simulated processes: those of ``tests/worker/faulty.py`` over the network, and what the checks note."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.adapters.memory.work_queue import MemoryDelivery, MemoryWorkQueue
from pyoco_server.app.ports import Delivery, FeedState, SnapshotChange, UnavailableError
from pyoco_server.app.ports.run_index import Announced
from pyoco_server.core import Event
from pyoco_server.core.payloads import NodeStarted, NodeSucceeded
from tests.invariants import ENDS
from tests.sim.loop import Process, SimLoop
from tests.sim.network import QUICK_SEC, Fate, Network, at_once
from tests.worker.faulty import FaultyDelivery, FaultyLog, FaultyQueue, FaultySnapshots

EARLIEST_SEC: Final = 1.2
"""The queue never repeats a delivery sooner than this, so no worker takes over a run more quickly."""

WAKE_FAULTS: Final = (Fate.LOST, Fate.LOST, Fate.UNANSWERED, Fate.ERRED, Fate.GHOST)
_A_MOMENT: Final = 0.001


class SimLog(FaultyLog):
    """Notes which executions have ended, and the attempts at their nodes."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.ended: set[str] = set()
        """Executions whose end is in the log."""
        self.succeeded: dict[tuple[str, str], int] = {}
        """The attempt with which each node succeeded."""
        self.begun: dict[tuple[str, str], int] = {}
        """The newest attempt of each node."""

    @override
    def appended(self, execution_id: str, commit: Sequence[Event]) -> None:
        for event in commit:
            if event.type in ENDS:
                self.ended.add(execution_id)
            elif isinstance(event.payload, NodeSucceeded):
                self.succeeded[execution_id, event.payload.node_id] = event.payload.attempt or 0
            elif isinstance(event.payload, NodeStarted):
                self.begun[execution_id, event.payload.node_id] = event.payload.attempt


class SimSnapshots(FaultySnapshots):
    """Calls ``on_regress`` when an older snapshot replaces a newer one."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.on_regress: Callable[[str], None] = lambda _details: None
        self._forbidden: set[str] = set()

    @override
    async def stored(
        self, run_id: str, body: bytes, *, position: int, revision: int | None, is_urgent: bool
    ) -> int | None:
        if revision == 0 and run_id in self._forbidden:  # the server refuses a late message for its revision
            return None
        before = await self.inner.read(run_id)
        written = await super().stored(run_id, body, position=position, revision=revision, is_urgent=is_urgent)
        stored = await self.inner.read(run_id)
        if before is not None and stored is not None and stored.position < before.position:
            self.on_regress(f"{run_id}: {stored.position} is written over {before.position}")
        return written

    @override
    async def forbidden(self, run_id: str) -> bool:
        is_free = await super().forbidden(run_id)
        if is_free:
            self._forbidden.add(run_id)
        return is_free


class SimFeed:
    """Serves the SnapshotFeed port for one process: notifications come late, and some are lost."""

    def __init__(self, network: Network, loop: SimLoop, snapshots: MemorySnapshots, inner: MemorySnapshotFeed) -> None:
        self._network = network
        self._loop = loop
        self._inner = inner
        self._process = loop.current()
        self._woken: asyncio.Future[None] | None = None
        self._has_changed = False
        snapshots.listen(lambda _: network.notify(self._process, self._changed))

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        return await self._network.call("feed.read", lambda: self._inner.read(after=after, limit=limit))

    async def state(self) -> FeedState:
        return await self._network.call("feed.state", self._inner.state)

    async def wait(self, timeout_sec: float) -> None:
        if not self._has_changed:
            self._woken = self._loop.create_future()
            timer = self._loop.call_later(timeout_sec, self._changed)
            await self._woken
            timer.cancel()
        self._has_changed = False

    def listen(self, on_announced: Announced) -> None:
        self._inner.listen(lambda run_id, body: self._network.notify(self._process, on_announced, run_id, body))

    def _changed(self) -> None:
        self._has_changed = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class _RunOf(msgspec.Struct):
    run_id: str = ""
    wake: bool = False


class SimQueue(FaultyQueue):
    """The seed decides which waiting pull gets a job; the process that pulled may have died."""

    def __init__(self, network: Network, loop: SimLoop, inner: MemoryWorkQueue, chance: random.Random) -> None:
        super().__init__(inner, network)
        self.repeat = 0.0
        """The share of deliveries that are repeated before their ack wait is over."""
        self.wake_loss = 0.0
        """The share of wake-ups that are lost, or have no answer."""
        self.deliveries: dict[str, int] = {}
        """The largest number of deliveries of a job, by run."""
        self._network = network
        self._loop = loop
        self._chance = chance
        self._waiting: dict[str, list[tuple[Process, asyncio.Future[Delivery | None]]]] = {}

    @override
    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        async def publish() -> None:
            await self.inner.publish(tag, body, dedup_id=dedup_id)
            self._look_later(tag, 0.0)

        job = msgspec.json.decode(body, type=_RunOf)  # not the dedup id, which may be random
        is_hit = job.wake and self.wake_loss and self._chance.random() < self.wake_loss
        fate = WAKE_FAULTS[int(self._chance.random() * len(WAKE_FAULTS))] if is_hit else None
        await self._network.call("queue.publish", publish, job.run_id, fate=fate)

    @override
    async def pull(self, tag: str, *, timeout_sec: float) -> Delivery | None:
        network = self._network
        if network.is_over:
            raise asyncio.CancelledError
        process = self._loop.current()
        answer: asyncio.Future[Delivery | None] = self._loop.create_future()
        if process.name in network.cut_off:
            self._loop.server_later(min(timeout_sec, 0.5), _refuse, answer)
            return await answer
        self._loop.server_later(QUICK_SEC * self._chance.random(), self._wait, tag, process, answer)
        timer = self._loop.call_later(timeout_sec + 2 * QUICK_SEC, _nothing, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def left(self) -> list[str]:
        """Return all jobs: queued, in flight, or exhausted."""
        lanes = self.inner._lanes.values()
        jobs = [job for lane in lanes for job in (*lane.fresh, *lane.out)] + [*self.inner.exhausted.values()]
        return [f"{job.body.decode()} (delivered {job.times_delivered} times)" for job in jobs]

    @override
    def took_effect(self, delivery: FaultyDelivery, delay_sec: float) -> None:
        self._look_later(delivery.tag, delay_sec)

    # --- On the server -----------------------------------------------------------------------------------------------

    def _wait(self, tag: str, process: Process, answer: "asyncio.Future[Delivery | None]") -> None:
        if not answer.done():
            self._waiting.setdefault(tag, []).append((process, answer))
            self._look(tag)

    def _look_later(self, tag: str, delay: float) -> None:
        self._loop.server_later(delay + _A_MOMENT, self._look, tag)

    def _look(self, tag: str) -> None:
        """Deliver queued jobs to the waiting workers."""
        waiting = self._waiting[tag] = [each for each in self._waiting.get(tag, []) if not each[1].done()]
        while waiting:
            found = at_once(self.inner.pull(tag, timeout_sec=0.0))
            if found is None:
                return
            self._hand_out(found, *waiting.pop(int(self._chance.random() * len(waiting))))

    def _hand_out(self, found: MemoryDelivery, process: Process, answer: "asyncio.Future[Delivery | None]") -> None:
        delivery = FaultyDelivery(found, self)
        run_id, times = msgspec.json.decode(found.body, type=_RunOf).run_id, found.times_delivered
        self.deliveries[run_id] = max(self.deliveries.get(run_id, 0), times)
        self._network.note(f"is given the job of {run_id}, time {times}", process)
        self._look_later(found.tag, self.inner.ack_wait_sec)
        if self._chance.random() < self.repeat:
            early = EARLIEST_SEC + self._chance.random() * (self.inner.ack_wait_sec - EARLIEST_SEC)
            self._loop.server_later(early, self._come_back, found)
        if self._chance.random() >= self._network.rates.get(Fate.UNANSWERED, 0.0):  # otherwise the network loses it
            self._loop.server_later(QUICK_SEC * self._chance.random(), _give, answer, delivery)

    def _come_back(self, found: MemoryDelivery) -> None:
        at_once(found.nak(0.0))
        self._look_later(found.tag, 0.0)


def _give(answer: "asyncio.Future[Delivery | None]", delivery: Delivery) -> None:
    if not answer.done():
        answer.set_result(delivery)


def _nothing(answer: "asyncio.Future[Delivery | None]") -> None:
    if not answer.done():
        answer.set_result(None)


def _refuse(answer: "asyncio.Future[Delivery | None]") -> None:
    if not answer.done():
        answer.set_exception(UnavailableError("pull: no answer"))

"""The ports of simulated processes: the adapters in memory behind a faulty network."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import (
    MemoryDeadLetters,
    MemoryGraphRegistry,
    MemoryOutputStore,
    MemoryWorkerRegistry,
)
from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.adapters.memory.work_queue import MemoryDelivery, MemoryExhaustedJobs, MemoryWorkQueue
from pyoco_server.app.ports import (
    Delivery,
    FeedState,
    OnAppend,
    SnapshotChange,
    StoredDeadLetter,
    StoredSnapshot,
    UnavailableError,
    Unsubscribe,
    WorkerRecord,
)
from pyoco_server.app.ports.run_index import Announced
from pyoco_server.app.ports.work_queue import ExhaustedJob, OnExhausted
from pyoco_server.core import Event
from pyoco_server.core.payloads import NodeStarted, NodeSucceeded
from tests.invariants import ENDS
from tests.sim.loop import Process, SimLoop
from tests.sim.network import QUICK_SEC, Fate, Network, at_once

EARLIEST_SEC: Final = 1.2
"""The queue never repeats a delivery sooner than this, so no worker takes over a run more quickly."""

WAKE_FAULTS: Final = (Fate.LOST, Fate.LOST, Fate.UNANSWERED, Fate.ERRED, Fate.GHOST)
_A_MOMENT: Final = 0.001


class SimLog:
    """Serves the EventLog port."""

    def __init__(self, network: Network, loop: SimLoop) -> None:
        self.inner = MemoryEventLog()
        self.ended: set[str] = set()
        """Executions whose end is in the log."""
        self.succeeded: dict[tuple[str, str], int] = {}
        """The attempt with which each node succeeded."""
        self.begun: dict[tuple[str, str], int] = {}
        """The newest attempt of each node."""
        self._network = network
        self._loop = loop

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        async def append() -> int:
            position = await self.inner.append(execution_id, commit, after=after, quiet=quiet)
            self._take_note(execution_id, commit)
            return position

        name = f"append {execution_id} after {after}: {', '.join(event.type.value for event in commit)}"
        return await self._network.call(name, append)

    def _take_note(self, execution_id: str, commit: Sequence[Event]) -> None:
        for event in commit:
            if event.type in ENDS:
                self.ended.add(execution_id)
            elif isinstance(event.payload, NodeSucceeded):
                self.succeeded[execution_id, event.payload.node_id] = event.payload.attempt or 0
            elif isinstance(event.payload, NodeStarted):
                self.begun[execution_id, event.payload.node_id] = event.payload.attempt

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        name = f"read {execution_id} after {after}"
        return await self._network.call(name, lambda: self.inner.read(execution_id, after=after), reads=True)

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        process = self._loop.current()
        return await self.inner.subscribe(
            execution_id, lambda position: self._network.notify(process, on_append, position)
        )

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        process = self._loop.current()
        return await self.inner.subscribe_all(
            lambda run_id, position: self._network.notify(process, on_append, run_id, position)
        )


class SimSnapshots:
    """Serves the Snapshots port."""

    def __init__(self, network: Network) -> None:
        self.inner = MemorySnapshots()
        self.on_regress: Callable[[str], None] = lambda _details: None
        self._network = network
        self._forbidden: set[str] = set()

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        async def write() -> int | None:
            if revision == 0 and run_id in self._forbidden:  # the server refuses a late message for its revision
                return None
            before = await self.inner.read(run_id)
            written = await self.inner.write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)
            stored = await self.inner.read(run_id)
            if before is not None and stored is not None and stored.position < before.position:
                self.on_regress(f"{run_id}: {stored.position} is written over {before.position}")
            return written

        return await self._network.call(f"snapshot {run_id} at {position}", write)

    async def sync(self) -> None:
        """Do nothing: each write is stored when its call returns."""

    async def read(self, run_id: str) -> StoredSnapshot | None:
        return await self._network.call(f"look at {run_id}", lambda: self.inner.read(run_id), reads=True)

    async def forbid(self, run_id: str) -> bool:
        async def forbid() -> bool:
            is_free = await self.inner.forbid(run_id)
            if is_free:
                self._forbidden.add(run_id)
            return is_free

        return await self._network.call(f"forbid snapshot {run_id}", forbid)

    async def delete(self, run_id: str) -> None:
        await self._network.call(f"delete snapshot {run_id}", lambda: self.inner.delete(run_id))


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
        return await self._network.call("feed", lambda: self._inner.read(after=after, limit=limit), reads=True)

    async def state(self) -> FeedState:
        return await self._network.call("feed state", self._inner.state, reads=True)

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


class SimDelivery:
    """Serves the Delivery port."""

    def __init__(self, queue: "SimQueue", inner: MemoryDelivery) -> None:
        self._queue = queue
        self._inner = inner
        self.run_id = msgspec.json.decode(inner.body, type=_RunOf).run_id

    @property
    def tag(self) -> str:
        return self._inner.tag

    @property
    def subject(self) -> str:
        return self._inner.subject

    @property
    def body(self) -> bytes:
        return self._inner.body

    @property
    def times_delivered(self) -> int:
        return self._inner.times_delivered

    @property
    def is_last(self) -> bool:
        return self._inner.is_last

    async def ack(self) -> None:
        await self._queue.settle(f"ack {self.run_id}", self._inner.ack, 0.0)

    async def nak(self, delay_sec: float) -> None:
        await self._queue.settle(f"nak {self.run_id} {delay_sec:g}", lambda: self._inner.nak(delay_sec), delay_sec)

    async def term(self) -> None:
        await self._queue.settle(f"term {self.run_id}", self._inner.term, 0.0)

    async def in_progress(self) -> None:
        wait_sec = self._queue.inner.ack_wait_sec
        await self._queue.settle(f"in progress {self.run_id}", self._inner.in_progress, wait_sec)


class SimQueue:
    """Serves the WorkQueue port. The seed decides which waiting pull gets a job; its process may have died."""

    def __init__(self, network: Network, loop: SimLoop, inner: MemoryWorkQueue, chance: random.Random) -> None:
        self.inner = inner
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

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        async def publish() -> None:
            await self.inner.publish(tag, body, dedup_id=dedup_id)
            self._look_later(tag, 0.0)

        job = msgspec.json.decode(body, type=_RunOf)  # not the dedup id, which may be random
        is_hit = job.wake and self.wake_loss and self._chance.random() < self.wake_loss
        fate = WAKE_FAULTS[int(self._chance.random() * len(WAKE_FAULTS))] if is_hit else None
        await self._network.call(f"publish a job of {job.run_id}", publish, fate=fate)

    async def prepare(self, tag: str) -> None:
        await self._network.call(f"prepare {tag}", lambda: self.inner.prepare(tag), reads=True)

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

    async def backlog(self, tag: str) -> int:
        return await self._network.call(f"backlog {tag}", lambda: self.inner.backlog(tag), reads=True)

    async def stalled(self, tag: str) -> bool:
        return await self._network.call(f"stalled {tag}", lambda: self.inner.stalled(tag), reads=True)

    async def rebind(self, tag: str) -> None:
        await self.inner.rebind(tag)

    def left(self) -> list[str]:
        """Return all jobs: queued, in flight, or exhausted."""
        lanes = self.inner._lanes.values()
        jobs = [job for lane in lanes for job in (*lane.fresh, *lane.out)] + [*self.inner.exhausted.values()]
        return [f"{job.body.decode()} (delivered {job.times_delivered} times)" for job in jobs]

    async def settle(self, name: str, call: Callable[[], Any], look_sec: float) -> None:
        """Settle a delivery, and let the queue look for jobs when that takes effect."""

        async def settle() -> None:
            await call()
            self._look_later("default", look_sec)

        await self._network.call(name, settle)

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
        delivery = SimDelivery(self, found)
        run_id, times = delivery.run_id, found.times_delivered
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


class SimExhaustedJobs:
    """Serves the ExhaustedJobs port."""

    def __init__(self, network: Network, loop: SimLoop, queue: MemoryWorkQueue) -> None:
        self._inner = MemoryExhaustedJobs(queue)
        self._network = network
        self._loop = loop

    async def subscribe(self, on_exhausted: OnExhausted) -> Unsubscribe:
        process = self._loop.current()
        return await self._inner.subscribe(
            lambda number, times: self._network.notify(process, on_exhausted, number, times)
        )

    async def get(self, number: int, times_delivered: int) -> ExhaustedJob | None:
        return await self._network.call(
            f"exhausted job {number}", lambda: self._inner.get(number, times_delivered), reads=True
        )

    async def look(self, limit: int) -> Sequence[ExhaustedJob]:
        return await self._network.call("exhausted jobs", lambda: self._inner.look(limit), reads=True)

    async def remove(self, number: int) -> bool:
        return await self._network.call(f"remove exhausted job {number}", lambda: self._inner.remove(number))


class SimLetters:
    """Serves the DeadLetters port."""

    def __init__(self, network: Network) -> None:
        self.inner = MemoryDeadLetters()
        self._network = network

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        await self._network.call(f"dead letter {entry.get('run_id')}", lambda: self.inner.publish(tag, entry))

    async def count(self) -> int:
        return await self.inner.count()

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        return await self.inner.newest(limit)

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        return await self.inner.get(sequence)


class SimRegistry:
    """Serves the WorkerRegistry port."""

    def __init__(self, network: Network) -> None:
        self.inner = MemoryWorkerRegistry()
        self._network = network

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        return await self._network.call(f"presence {worker_id}", lambda: self.inner.update(worker_id, change))

    async def get(self, worker_id: str) -> WorkerRecord | None:
        return await self.inner.get(worker_id)

    async def all(self) -> Sequence[WorkerRecord]:
        return await self.inner.all()


class SimGraphs:
    """Serves the GraphRegistry port."""

    def __init__(self, network: Network) -> None:
        self.inner = MemoryGraphRegistry()
        self._network = network

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        return await self._network.call(f"register {graph_id}", lambda: self.inner.put(graph_id, encoded))

    async def get(self, graph_id: str) -> bytes | None:
        return await self._network.call(f"graph {graph_id}", lambda: self.inner.get(graph_id), reads=True)


class SimOutputs:
    """Serves the OutputStore port."""

    def __init__(self, network: Network) -> None:
        self.inner = MemoryOutputStore()
        self._network = network

    async def put(self, name: str, data: bytes) -> None:
        await self._network.call(f"store output {name}", lambda: self.inner.put(name, data))

    async def get(self, name: str) -> bytes | None:
        return await self._network.call(f"fetch output {name}", lambda: self.inner.get(name), reads=True)

    async def delete(self, name: str) -> None:
        await self._network.call(f"forget output {name}", lambda: self.inner.delete(name))


def _give(answer: "asyncio.Future[Delivery | None]", delivery: Delivery) -> None:
    if not answer.done():
        answer.set_result(delivery)


def _nothing(answer: "asyncio.Future[Delivery | None]") -> None:
    if not answer.done():
        answer.set_result(None)


def _refuse(answer: "asyncio.Future[Delivery | None]") -> None:
    if not answer.done():
        answer.set_exception(UnavailableError("pull: no answer"))

"""The ports over the adapters in memory, with faults: the one implementation of that.

Every call that a process makes to a store passes through a strategy (:class:`Faults`), which knows it by the names of
port and method: ``queue.publish``. :class:`Trouble` is the strategy of tests that plan faults one by one; the simulator
has a network (``tests/sim/network.py``), and the tests of one log have their own (``tests/app/runtime/faulty_log.py``).
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from enum import Enum, auto, unique
from typing import Any, Protocol, TypeVar

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import (
    MemoryDeadLetters,
    MemoryGraphRegistry,
    MemoryOutputStore,
    MemoryWorkerRegistry,
)
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.adapters.memory.work_queue import MemoryDelivery, MemoryExhaustedJobs, MemoryWorkQueue, QueuedJob
from pyoco_server.app.ports import (
    Delivery,
    NotStoredError,
    OnAppend,
    StoredDeadLetter,
    StoredSnapshot,
    TooLargeError,
    UnavailableError,
    Unsubscribe,
    WorkerRecord,
)
from pyoco_server.app.ports.work_queue import ExhaustedJob, OnExhausted
from pyoco_server.core import Event

R = TypeVar("R")
Call = Callable[[], Coroutine[Any, Any, R]]


class Faults(Protocol):
    """Decides the outcome of each call to a store, and what becomes of each notification."""

    async def call(self, name: str, call: Call[R], about: str = "") -> R:
        """Make the call or not, and return its answer or raise; ``about`` says what it is about, for a trace."""
        ...

    def relayed(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return what the store notifies in place of this listener."""
        ...


# --- Faults that a test plans ----------------------------------------------------------------------------------------


@unique
class Fault(Enum):
    """The outcome of a call."""

    NONE = auto()
    NOT_DONE = auto()
    """It does not arrive, and there is no answer."""
    UNANSWERED = auto()
    """It is done, but the answer is lost."""
    TOO_LARGE = auto()
    """It is refused for its size."""
    REFUSED = auto()
    """It is refused: nothing was stored."""
    BROKEN = auto()
    """It raises an error that the port does not document, before anything is done."""
    BROKEN_AFTER = auto()
    """The same, after everything is done."""


class UndocumentedError(Exception):
    """An error that no port documents."""


class Trouble:
    """Faults as a test plans them; without a plan every call is done."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The names of all calls, in order."""
        self.meanwhile: dict[str, Callable[[], Awaitable[object]]] = {}
        """Called once, just before the next call of that name."""
        self.before_answer: dict[str, Callable[[], Awaitable[object]]] = {}
        """Called once, after the next call of that name is done and before it is answered."""
        self.otherwise: Callable[[], Fault] = lambda: Fault.NONE
        """The outcome of calls without a plan."""
        self.is_silent = False
        """While true, notifications are lost."""
        self._planned: dict[str, deque[Fault]] = {}
        self._always: dict[str, Fault] = {}

    def next(self, name: str, *faults: Fault) -> None:
        """Plan the outcomes of the next calls of that name."""
        self._planned.setdefault(name, deque()).extend(faults)

    def always(self, name: str, fault: Fault) -> None:
        """Set the outcome of all calls of that name, until it is set again."""
        self._always[name] = fault

    def relayed(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return a listener that receives nothing while the notifications are lost."""

        def notify(*args: object) -> None:
            if not self.is_silent:
                listener(*args)

        return notify

    async def call(self, name: str, call: Call[R], about: str = "") -> R:  # noqa: ARG002 there is no trace
        """Make a call with the outcome that is planned for it."""
        self.calls.append(name)
        meanwhile = self.meanwhile.pop(name, None)
        if meanwhile is not None:
            await meanwhile()
        planned = self._planned.get(name)
        fault = planned.popleft() if planned else self._always.get(name, self.otherwise())
        if fault is Fault.TOO_LARGE:
            raise TooLargeError(f"{name}: too large")
        if fault is Fault.REFUSED:
            raise NotStoredError(f"{name}: refused")
        if fault is Fault.BROKEN:
            raise UndocumentedError(name)
        if fault is Fault.NOT_DONE:
            raise UnavailableError(f"{name}: no answer")
        answer = await call()
        done = self.before_answer.pop(name, None)
        if done is not None:
            await done()
        if fault is Fault.BROKEN_AFTER:
            raise UndocumentedError(name)
        if fault is Fault.UNANSWERED:
            raise UnavailableError(f"{name}: no answer")
        return answer


# --- The ports -------------------------------------------------------------------------------------------------------


class FaultyLog:
    """Serves the EventLog port."""

    def __init__(self, faults: Faults, inner: MemoryEventLog | None = None) -> None:
        self.inner = inner if inner is not None else MemoryEventLog()
        self.offered: list[Sequence[Event]] = []
        """All commits that were to be appended, with or without success."""
        self._faults = faults

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        self.offered.append(commit)

        async def append() -> int:
            position = await self.inner.append(execution_id, commit, after=after, quiet=quiet)
            self.appended(execution_id, commit)
            return position

        about = f"{execution_id} after {after}: {', '.join(event.type.value for event in commit)}"
        return await self._faults.call("log.append", append, about)

    def appended(self, execution_id: str, commit: Sequence[Event]) -> None:
        """Take note of a commit that is in the log now."""

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        return await self._faults.call(
            "log.read", lambda: self.inner.read(execution_id, after=after), f"{execution_id} after {after}"
        )

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        relayed = self._faults.relayed(on_append)
        return await self._faults.call("log.subscribe", lambda: self.inner.subscribe(execution_id, relayed))

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        return await self.inner.subscribe_all(self._faults.relayed(on_append))


class FaultySnapshots:
    """Serves the Snapshots port, and remembers every body that was written."""

    def __init__(self, faults: Faults) -> None:
        self.inner = MemorySnapshots()
        self.written: list[bytes] = []
        self._faults = faults

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        async def write() -> int | None:
            taken = await self.stored(run_id, body, position=position, revision=revision, is_urgent=is_urgent)
            if taken is not None:
                self.written.append(body)
            return taken

        return await self._faults.call("snapshots.write", write, f"{run_id} at {position}")

    async def stored(
        self, run_id: str, body: bytes, *, position: int, revision: int | None, is_urgent: bool
    ) -> int | None:
        """Store what has arrived at the store."""
        return await self.inner.write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)

    def lose(self, run_ids: Collection[str]) -> None:
        """Lose snapshots and marks as a file system can: no change says so."""
        for run_id in run_ids:
            self.inner._stored.pop(run_id, None)
            self.inner._changes.pop(run_id, None)
            self.inner._forbidden.discard(run_id)

    async def sync(self) -> None:
        await self._faults.call("snapshots.sync", self.inner.sync)

    async def read(self, run_id: str) -> StoredSnapshot | None:
        return await self._faults.call("snapshots.read", lambda: self.inner.read(run_id), run_id)

    async def forbid(self, run_id: str) -> bool:
        return await self._faults.call("snapshots.forbid", lambda: self.forbidden(run_id), run_id)

    async def forbidden(self, run_id: str) -> bool:
        """Forbid a first write, now that this has arrived at the store."""
        return await self.inner.forbid(run_id)

    async def delete(self, run_id: str) -> None:
        await self._faults.call("snapshots.delete", lambda: self.inner.delete(run_id), run_id)


class FaultyDelivery:
    """Serves the Delivery port, and reports to its queue how it was settled."""

    def __init__(self, inner: MemoryDelivery, queue: "FaultyQueue") -> None:
        self._inner = inner
        self._queue = queue

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
        await self._queue.settle(self, "ack", self._inner.ack)

    async def nak(self, delay_sec: float) -> None:
        await self._queue.settle(self, "nak", lambda: self._inner.nak(delay_sec), delay_sec)

    async def term(self) -> None:
        await self._queue.settle(self, "term", self._inner.term)

    async def in_progress(self) -> None:
        await self._queue.settle(self, "in_progress", self._inner.in_progress, self._queue.inner.ack_wait_sec)


class FaultyQueue:
    """Serves the WorkQueue port; ``settled`` lists how deliveries were settled, in order."""

    def __init__(self, inner: MemoryWorkQueue, faults: Faults) -> None:
        self.inner = inner
        self.settled: list[str] = []
        self._faults = faults

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        await self._faults.call("queue.publish", lambda: self.inner.publish(tag, body, dedup_id=dedup_id), dedup_id)

    async def prepare(self, tag: str) -> None:
        await self._faults.call("queue.prepare", lambda: self.inner.prepare(tag), tag)

    async def pull(self, tag: str, *, timeout_sec: float) -> Delivery | None:
        found = await self._faults.call("queue.pull", lambda: self.inner.pull(tag, timeout_sec=timeout_sec), tag)
        return None if found is None else FaultyDelivery(found, self)

    async def backlog(self, tag: str) -> int:
        return await self._faults.call("queue.backlog", lambda: self.inner.backlog(tag), tag)

    async def stalled(self, tag: str) -> bool:
        return await self._faults.call("queue.stalled", lambda: self.inner.stalled(tag), tag)

    def lose(self, is_lost: Callable[[QueuedJob], bool]) -> list[QueuedJob]:
        """Lose jobs, with what the queue remembers to recognise them, and return them."""
        lost = [job for job in self.inner.jobs() if is_lost(job)]
        for job in lost:
            lane = self.inner._lane(job.tag)
            if job in lane.fresh:
                lane.fresh.remove(job)
            self.inner.settle(job)
        self.inner._seen.clear()
        return lost

    async def rebind(self, tag: str) -> None:
        await self.inner.rebind(tag)

    async def settle(self, delivery: FaultyDelivery, how: str, call: Call[None], delay_sec: float = 0.0) -> None:
        """Settle a delivery; its job comes back after ``delay_sec``, if it does."""

        async def settle() -> None:
            await call()
            self.took_effect(delivery, delay_sec)

        await self._faults.call(f"delivery.{how}", settle, f"{delivery.body!r:.80} {delay_sec:g}")
        if how != "in_progress":
            self.settled.append(f"nak {delay_sec:g}" if how == "nak" else how)

    def took_effect(self, delivery: FaultyDelivery, delay_sec: float) -> None:
        """Take note that the store has settled a delivery."""


class FaultyExhaustedJobs:
    """Serves the ExhaustedJobs port."""

    def __init__(self, queue: MemoryWorkQueue, faults: Faults) -> None:
        self._inner = MemoryExhaustedJobs(queue)
        self._faults = faults

    async def subscribe(self, on_exhausted: OnExhausted) -> Unsubscribe:
        return await self._inner.subscribe(self._faults.relayed(on_exhausted))

    async def get(self, number: int, times_delivered: int) -> ExhaustedJob | None:
        return await self._faults.call("exhausted.get", lambda: self._inner.get(number, times_delivered), str(number))

    async def look(self, limit: int) -> Sequence[ExhaustedJob]:
        return await self._faults.call("exhausted.look", lambda: self._inner.look(limit))

    async def remove(self, number: int) -> bool:
        return await self._faults.call("exhausted.remove", lambda: self._inner.remove(number), str(number))


class FaultyLetters:
    """Serves the DeadLetters port."""

    def __init__(self, faults: Faults) -> None:
        self.inner = MemoryDeadLetters()
        self._faults = faults

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        await self._faults.call("letters.publish", lambda: self.inner.publish(tag, entry), str(entry.get("run_id")))

    async def count(self) -> int:
        return await self.inner.count()

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        return await self.inner.newest(limit)

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        return await self.inner.get(sequence)


class FaultyRegistry:
    """Serves the WorkerRegistry port."""

    def __init__(self, faults: Faults) -> None:
        self.inner = MemoryWorkerRegistry()
        self._faults = faults

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        return await self._faults.call("registry.update", lambda: self.inner.update(worker_id, change), worker_id)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        return await self.inner.get(worker_id)

    async def all(self) -> Sequence[WorkerRecord]:
        return await self.inner.all()


class FaultyGraphs:
    """Serves the GraphRegistry port."""

    def __init__(self, faults: Faults) -> None:
        self.inner = MemoryGraphRegistry()
        self._faults = faults

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        return await self._faults.call("graphs.put", lambda: self.inner.put(graph_id, encoded), graph_id)

    async def get(self, graph_id: str) -> bytes | None:
        return await self._faults.call("graphs.get", lambda: self.inner.get(graph_id), graph_id)


class FaultyOutputs:
    """Serves the OutputStore port."""

    def __init__(self, faults: Faults) -> None:
        self.inner = MemoryOutputStore()
        self._faults = faults

    async def put(self, name: str, data: bytes) -> None:
        await self._faults.call("outputs.put", lambda: self.inner.put(name, data), name)

    async def get(self, name: str) -> bytes | None:
        return await self._faults.call("outputs.get", lambda: self.inner.get(name), name)

    async def delete(self, name: str) -> None:
        await self._faults.call("outputs.delete", lambda: self.inner.delete(name), name)

"""The ports in memory, with faults that a test plans: calls that fail, or whose answer is lost."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto, unique
from typing import Any, TypeVar

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryDeadLetters, MemoryWorkerRegistry
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
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
from pyoco_server.core import Event

R = TypeVar("R")


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
    """Decides the outcome of each call, by the name of the port and the method: ``queue.publish``."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The names of all calls, in order."""
        self.meanwhile: dict[str, Callable[[], Awaitable[object]]] = {}
        """Called once, just before the next call of that name."""
        self.before_answer: dict[str, Callable[[], Awaitable[object]]] = {}
        """Called once, after the next call of that name is done and before it is answered."""
        self.otherwise: Callable[[], Fault] = lambda: Fault.NONE
        """The outcome of calls without a plan."""
        self._planned: dict[str, deque[Fault]] = {}
        self._always: dict[str, Fault] = {}

    def next(self, name: str, *faults: Fault) -> None:
        """Plan the outcomes of the next calls of that name."""
        self._planned.setdefault(name, deque()).extend(faults)

    def always(self, name: str, fault: Fault) -> None:
        """Set the outcome of all calls of that name, until it is set again."""
        self._always[name] = fault

    async def through(self, name: str, call: Callable[[], Awaitable[R]]) -> R:
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


class FaultyLog:
    """Serves the EventLog port; a silent one reports no appends."""

    def __init__(self, trouble: Trouble) -> None:
        self.inner = MemoryEventLog()
        self.silent = False
        self.offered: list[Sequence[Event]] = []
        """All commits that were to be appended, with or without success."""
        self._trouble = trouble

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        self.offered.append(commit)
        return await self._trouble.through(
            "log.append", lambda: self.inner.append(execution_id, commit, after=after, quiet=quiet)
        )

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        return await self._trouble.through("log.read", lambda: self.inner.read(execution_id, after=after))

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        def notify(position: int) -> None:
            if not self.silent:
                on_append(position)

        return await self._trouble.through("log.subscribe", lambda: self.inner.subscribe(execution_id, notify))

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        return await self.inner.subscribe_all(on_append)


class FaultySnapshots:
    """Serves the Snapshots port, and remembers every body that was written."""

    def __init__(self, trouble: Trouble) -> None:
        self.inner = MemorySnapshots()
        self.written: list[bytes] = []
        self._trouble = trouble

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        async def call() -> int | None:
            taken = await self.inner.write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)
            if taken is not None:
                self.written.append(body)
            return taken

        return await self._trouble.through("snapshots.write", call)

    async def sync(self) -> None:
        await self._trouble.through("snapshots.sync", self.inner.sync)

    async def read(self, run_id: str) -> StoredSnapshot | None:
        return await self._trouble.through("snapshots.read", lambda: self.inner.read(run_id))

    async def forbid(self, run_id: str) -> bool:
        return await self._trouble.through("snapshots.forbid", lambda: self.inner.forbid(run_id))

    async def delete(self, run_id: str) -> None:
        await self._trouble.through("snapshots.delete", lambda: self.inner.delete(run_id))


class FaultyDelivery:
    """Serves the Delivery port, and writes down how it was settled."""

    def __init__(self, inner: Delivery, trouble: Trouble, settled: list[str]) -> None:
        self._inner = inner
        self._trouble = trouble
        self._settled = settled

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
        await self._trouble.through("delivery.ack", self._inner.ack)
        self._settled.append("ack")

    async def nak(self, delay_sec: float) -> None:
        await self._trouble.through("delivery.nak", lambda: self._inner.nak(delay_sec))
        self._settled.append(f"nak {delay_sec:g}")

    async def term(self) -> None:
        await self._trouble.through("delivery.term", self._inner.term)
        self._settled.append("term")

    async def in_progress(self) -> None:
        await self._trouble.through("delivery.in_progress", self._inner.in_progress)


class FaultyQueue:
    """Serves the WorkQueue port; ``settled`` lists how deliveries were settled, in order."""

    def __init__(self, inner: MemoryWorkQueue, trouble: Trouble) -> None:
        self.inner = inner
        self.settled: list[str] = []
        self._trouble = trouble

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        await self._trouble.through("queue.publish", lambda: self.inner.publish(tag, body, dedup_id=dedup_id))

    async def prepare(self, tag: str) -> None:
        await self._trouble.through("queue.prepare", lambda: self.inner.prepare(tag))

    async def pull(self, tag: str, *, timeout_sec: float) -> Delivery | None:
        found = await self._trouble.through("queue.pull", lambda: self.inner.pull(tag, timeout_sec=timeout_sec))
        return None if found is None else FaultyDelivery(found, self._trouble, self.settled)

    async def backlog(self, tag: str) -> int:
        return await self.inner.backlog(tag)

    async def stalled(self, tag: str) -> bool:
        return await self._trouble.through("queue.stalled", lambda: self.inner.stalled(tag))

    async def rebind(self, tag: str) -> None:
        await self.inner.rebind(tag)


class FaultyLetters:
    """Serves the DeadLetters port."""

    def __init__(self, trouble: Trouble) -> None:
        self.inner = MemoryDeadLetters()
        self._trouble = trouble

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        await self._trouble.through("letters.publish", lambda: self.inner.publish(tag, entry))

    async def count(self) -> int:
        return await self.inner.count()

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        return await self.inner.newest(limit)

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        return await self.inner.get(sequence)


class FaultyRegistry:
    """Serves the WorkerRegistry port."""

    def __init__(self, trouble: Trouble) -> None:
        self.inner = MemoryWorkerRegistry()
        self._trouble = trouble

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        return await self._trouble.through("registry.update", lambda: self.inner.update(worker_id, change))

    async def get(self, worker_id: str) -> WorkerRecord | None:
        return await self.inner.get(worker_id)

    async def all(self) -> Sequence[WorkerRecord]:
        return await self.inner.all()

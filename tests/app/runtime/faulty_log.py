"""An event log in memory with every fault that the port allows, as a test plans them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum, auto, unique

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.ports import LogConflictError, OnAppend, TooLargeError, UnavailableError, Unsubscribe
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.core import Event, Graph
from tests.build import EXECUTION, T0, Ids


@unique
class Fault(Enum):
    """The outcome of an append."""

    NONE = auto()
    LOST_ACK = auto()
    """It is written, but the answer is lost."""
    NOT_SENT = auto()
    """It is not written, and there is no answer."""
    LATE = auto()
    """There is no answer; it is written with the next append or read, if the log has not moved on by then."""
    OVERTAKEN = auto()
    """Another writer appends first."""


class Gate:
    """Callers wait here while it is closed."""

    def __init__(self) -> None:
        self.waiting = 0
        self._passes: asyncio.Semaphore | None = None

    def close(self) -> None:
        self._passes = asyncio.Semaphore(0)

    def let_one_pass(self) -> None:
        if self._passes is not None:
            self._passes.release()

    def open(self) -> None:
        for _ in range(self.waiting):
            self.let_one_pass()
        self._passes = None

    async def go_through(self) -> None:
        if self._passes is not None:
            self.waiting += 1
            try:
                await self._passes.acquire()
            finally:
                self.waiting -= 1


class FaultyLog:
    """Serves the EventLog port from memory, with faults."""

    def __init__(self, *, largest: int | None = None) -> None:
        self.inner = MemoryEventLog()
        self.faults: deque[Fault] = deque()
        """The faults of the next appends, in order."""
        self.unreadable = 0
        """How many of the next reads fail."""
        self.fails_to_read: Callable[[], bool] = lambda: False
        """Further reads fail while this returns true."""
        self.requests, self.answers = Gate(), Gate()
        """``requests`` holds appends and reads back before they are done, ``answers`` before they return."""
        self.turns: Callable[[], int] = lambda: 0
        """How many turns of the event loop pass before an operation, and after it."""
        self.is_delayed = False
        """While true, late appends do not arrive."""
        self.overtake: Callable[[], Awaitable[object]] | None = None
        self.commits: list[list[str]] = []
        """The event ids of each commit that was written through this log."""
        self._largest = largest
        self._late: tuple[Sequence[Event], int] | None = None

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        fault = self.faults.popleft() if self.faults else Fault.NONE
        await self._turn()
        await self.requests.go_through()
        await self._arrive_late(execution_id)
        if self._largest is not None and len(commit) > self._largest:
            raise TooLargeError(f"{len(commit)} events are too many")
        if fault is Fault.OVERTAKEN and self.overtake is not None:
            await self.overtake()
        if fault is Fault.LATE:
            self._late = (commit, after)
        if fault in {Fault.LATE, Fault.NOT_SENT}:
            raise UnavailableError("the log did not answer")
        position = await self._write(execution_id, commit, after, quiet=quiet)
        await self._turn()
        await self.answers.go_through()
        if fault is Fault.LOST_ACK:
            raise UnavailableError("the log did not answer")
        return position

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        await self._turn()
        await self.requests.go_through()
        await self._arrive_late(execution_id)
        if self.unreadable or self.fails_to_read():
            self.unreadable = max(self.unreadable - 1, 0)
            raise UnavailableError("the log cannot be read")
        found = await self.inner.read(execution_id, after=after)
        await self._turn()
        await self.answers.go_through()
        return found

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        return await self.inner.subscribe(execution_id, on_append)

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        return await self.inner.subscribe_all(on_append)

    async def all(self) -> list[Event]:
        """Return all events of the log, without faults."""
        events, _ = await self.inner.read(EXECUTION)
        return [*events]

    async def _write(self, execution_id: str, commit: Sequence[Event], after: int, *, quiet: bool = False) -> int:
        position = await self.inner.append(execution_id, commit, after=after, quiet=quiet)
        self.commits.append([event.event_id for event in commit])
        return position

    async def _arrive_late(self, execution_id: str) -> None:
        if self._late is not None and not self.is_delayed:
            (commit, after), self._late = self._late, None
            try:
                await self._write(execution_id, commit, after)
            except LogConflictError:  # too late
                return

    async def _turn(self) -> None:
        for _ in range(self.turns()):
            await asyncio.sleep(0)


class StillClock:
    """Time does not pass."""

    def now(self) -> datetime:
        return T0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"unexpected sleep of {seconds} s")


def execution_on(log: FaultyLog | MemoryEventLog, graph: Graph, new_id: Ids) -> Execution:
    """Return the execution :data:`EXECUTION` on the log, for a test to drive."""
    return Execution(EXECUTION, graph, log=log, clock=StillClock(), new_id=new_id)

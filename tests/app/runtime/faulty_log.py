"""An event log in memory with every fault that the port allows, as a test plans them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum, auto, unique
from typing import Any, TypeVar

from typing_extensions import override

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.ports import EventLog, LogConflictError, TooLargeError, UnavailableError
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.core import Event, Graph
from tests.build import EXECUTION, T0, Ids
from tests.worker.faulty import Call, FaultyLog

R = TypeVar("R")


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


class LimitedLog(MemoryEventLog):
    """Refuses commits that are too large."""

    largest: int | None = None

    @override
    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        if self.largest is not None and len(commit) > self.largest:
            raise TooLargeError(f"{len(commit)} events are too many")
        return await super().append(execution_id, commit, after=after, quiet=quiet)


class PlannedLog(FaultyLog):
    """A log that is its own strategy: faults of appends and reads, and gates that hold them."""

    def __init__(self, *, largest: int | None = None) -> None:
        self.limited = LimitedLog()
        self.limited.largest = largest
        super().__init__(self, self.limited)
        self.commits: list[list[str]] = []
        """The event ids of each commit that was written through this log."""
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
        self._late: Call[Any] | None = None

    @override
    def appended(self, execution_id: str, commit: Sequence[Event]) -> None:
        self.commits.append([event.event_id for event in commit])

    def relayed(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Lose no notification."""
        return listener

    async def call(self, name: str, call: Call[R], about: str = "") -> R:  # noqa: ARG002 there is no trace
        """Append or read, as planned."""
        if name == "log.append":
            return await self._append(call, self.faults.popleft() if self.faults else Fault.NONE)
        return await (self._read(call) if name == "log.read" else call())

    async def _append(self, call: Call[R], fault: Fault) -> R:
        await self._turn()
        await self.requests.go_through()
        await self._arrive_late()
        if fault is Fault.OVERTAKEN and self.overtake is not None:
            await self.overtake()
        if fault is Fault.LATE:
            self._late = call
        if fault in {Fault.LATE, Fault.NOT_SENT}:
            raise UnavailableError("the log did not answer")
        position = await call()
        await self._turn()
        await self.answers.go_through()
        if fault is Fault.LOST_ACK:
            raise UnavailableError("the log did not answer")
        return position

    async def _read(self, call: Call[R]) -> R:
        await self._turn()
        await self.requests.go_through()
        await self._arrive_late()
        if self.unreadable or self.fails_to_read():
            self.unreadable = max(self.unreadable - 1, 0)
            raise UnavailableError("the log cannot be read")
        found = await call()
        await self._turn()
        await self.answers.go_through()
        return found

    async def all(self) -> list[Event]:
        """Return all events of the log, without faults."""
        events, _ = await self.inner.read(EXECUTION)
        return [*events]

    async def _arrive_late(self) -> None:
        if self._late is not None and not self.is_delayed:
            call, self._late = self._late, None
            with contextlib.suppress(LogConflictError, TooLargeError):  # too late, or never acceptable
                await call()

    async def _turn(self) -> None:
        for _ in range(self.turns()):
            await asyncio.sleep(0)


class StillClock:
    """Time does not pass."""

    def now(self) -> datetime:
        return T0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"unexpected sleep of {seconds} s")


def execution_on(log: EventLog, graph: Graph, new_id: Ids) -> Execution:
    """Return the execution :data:`EXECUTION` on the log, for a test to drive."""
    return Execution(EXECUTION, graph, log=log, clock=StillClock(), new_id=new_id)

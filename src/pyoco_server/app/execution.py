"""One execution as this process knows it: its graph, its state, and its place in the log.

Every change goes through :meth:`Execution.decide`: work out what to write from the newest known state, append it if the
log has not moved on, and if it has, read what others wrote and work it out again. So a decision is never based on
anything but the log it is appended to.
"""

import asyncio
from collections.abc import Callable, Sequence

from pyoco_server.app.ports import Clock, EventLog, LogConflictError, NewId
from pyoco_server.core import CancelMode, Command, Event, ExecutionState, Graph, advance, fold, initial_state

Decision = Callable[[ExecutionState], list[Event]]
Listener = Callable[[Sequence[Event], ExecutionState], None]


class Execution:
    """A cursor on one log, through which commands are given."""

    def __init__(self, execution_id: str, graph: Graph, *, log: EventLog, clock: Clock, new_id: NewId) -> None:
        self.execution_id = execution_id
        self.graph = graph
        self.state = initial_state(execution_id)
        self.clock = clock
        self.new_id = new_id
        self._log = log
        self._position = 0
        self._lock = asyncio.Lock()
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Be told of every commit, one's own and those of others, in the order of the log."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Be told no more."""
        self._listeners.remove(listener)

    async def load(self) -> Sequence[Event]:
        """Read what is in the log and not known yet, and return it."""
        async with self._lock:
            return await self._catch_up()

    async def do(
        self,
        command: Command,
        *,
        observed: bool = False,
        cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    ) -> list[Event]:
        """Give a command; CommandRejected if a guard refuses it."""

        def decision(state: ExecutionState) -> list[Event]:
            return advance(
                self.graph,
                state,
                command,
                now=self.clock.now(),
                new_id=self.new_id,
                observed=observed,
                cancel_mode=cancel_mode,
            )

        return await self.decide(decision)

    async def decide(self, decision: Decision) -> list[Event]:
        """Write what ``decision`` makes of the newest state; it may be asked again if others write first."""
        async with self._lock:
            while True:
                commit = decision(self.state)
                if not commit:
                    return commit
                try:
                    self._position = await self._log.append(self.execution_id, commit, after=self._position)
                except LogConflictError:
                    await self._catch_up()
                    continue
                self._take(commit)
                return commit

    async def _catch_up(self) -> Sequence[Event]:
        events, self._position = await self._log.read(self.execution_id, after=self._position)
        self._take(events)
        return events

    def _take(self, events: Sequence[Event]) -> None:
        self.state = fold(events, self.state)
        for listener in [*self._listeners]:
            listener(events, self.state)

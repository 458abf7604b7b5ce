"""One execution as this process knows it: its graph, its state, and its position in the log.

Every change goes through :meth:`Execution.decide`, a compare-and-set loop: compute what to write from the newest known
state, append it at the known position, and if another process has appended first, read its commits and compute again.
So a decision is never based on anything but the log it is appended to.

Decisions that arrive during an append gather, and the next append writes them all as one commit: a hundred tasks that
end at once cost a few commits, not a hundred.

An append with an unknown outcome (the log did not answer, or the caller was cancelled) stays *in doubt* until the log
moves on: the next read recognises the commit by the id of its first event, and its callers get the answer they would
have got.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from pyoco_server.app.ports import (
    Clock,
    EventLog,
    LogConflictError,
    NewId,
    TooLargeError,
    UnavailableError,
    Unsubscribe,
)
from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    Command,
    Commit,
    Event,
    ExecutionState,
    Graph,
    commit,
    fail,
    fold,
    initial_state,
    orchestrate,
)
from pyoco_server.core.commands import CancelExecution, FailNode, ReportNodeProgress, ResumeNode
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.flows.forms import check_answer

Decision = Callable[[ExecutionState], Commit]
Listener = Callable[[Sequence[Event], ExecutionState], None]
FollowUps = Callable[[Sequence[Event], ExecutionState], Iterable[Command]]

AT_ONCE: Final = 64
"""How many decisions share a commit at most: enough to be cheap, few enough to stay well below the message limit."""

_CANCEL, _FAILURE, _OTHERWISE, _PROGRESS = range(4)
"""The order of decisions that share a commit: cancel wins, and nothing waits for progress reports."""


class _Pending:
    """A decision that a caller waits for."""

    __slots__ = ("decision", "error", "events", "is_settled", "urgency")

    def __init__(self, decision: Decision, urgency: int) -> None:
        self.decision = decision
        self.urgency = urgency
        self.is_settled = False
        self.events: list[Event] = []
        self.error: Exception | None = None


class _Answer(NamedTuple):
    """The answer that a caller gets if the commit is in the log."""

    pending: _Pending
    events: list[Event]
    error: Exception | None


class Execution:
    """A cursor on one log: commands are given through it, and listeners are called with every commit."""

    def __init__(self, execution_id: str, graph: Graph, *, log: EventLog, clock: Clock, new_id: NewId) -> None:
        self.execution_id = execution_id
        self.graph = graph
        self.state = initial_state(execution_id)
        self.clock = clock
        self.new_id = new_id
        self.follow_ups: FollowUps | None = None
        """Returns commands that a commit makes possible; they join it. Set while this process drives the run."""
        self.position = 0
        """The position in the log that :attr:`state` includes."""
        self.is_sole_owner = False
        """No other process can own the execution, so none need be notified of what is appended."""
        self._log = log
        self._lock = asyncio.Lock()
        self._pending: list[_Pending] = []
        self._in_doubt: dict[str, list[_Answer]] = {}
        self._must_read = False
        self._listeners: list[Listener] = []
        self._news = 0
        self._looking: asyncio.Task[None] | None = None

    # --- Listeners ---------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Have the listener called with every commit, of this process and of others, in the order of the log."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """No longer call the listener."""
        self._listeners.remove(listener)

    def forget_listeners(self) -> None:
        """Call no listener any more. It breaks reference cycles, so that nothing is left for the garbage collector."""
        self._listeners.clear()

    async def follow(self) -> Unsubscribe:
        """Read what other processes append as soon as they have; return what ends that."""
        return await self._log.subscribe(self.execution_id, self._appended)

    def _appended(self, position: int) -> None:
        self._news = max(self._news, position)
        self._look_if_news()

    def _look_if_news(self) -> None:
        if self._news <= self.position or self._lock.locked():  # the holder of the lock calls this when it is done
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name=f"{self.execution_id} news")

    async def _look(self) -> None:
        with contextlib.suppress(UnavailableError):  # callers that must not miss anything also read periodically
            async with self._lock:
                seen = 0
                while self._news > max(self.position, seen):  # more may come while we read
                    seen = self._news
                    await self._catch_up()

    # --- Reading and writing -----------------------------------------------------------------------------------------

    def begin_at(self, events: Sequence[Event], position: int) -> None:
        """Begin with events that were read from the log already, or are known to be there."""
        self.position = position
        self._take(events, fold(events, self.state))

    async def load(self) -> Sequence[Event]:
        """Read the log from the known position on, and return what is new."""
        try:
            async with self._lock:
                return await self._catch_up()
        finally:
            self._look_if_news()

    async def do(
        self,
        command: Command,
        *,
        observed: bool = False,
        cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    ) -> list[Event]:
        """Give a command; CommandRejected if a guard refuses it."""

        def decision(state: ExecutionState) -> Commit:
            return self.step(state, command, observed=observed, cancel_mode=cancel_mode)

        return await self.decide(decision, urgency=_urgency(command))

    def step(
        self,
        state: ExecutionState,
        command: Command,
        *,
        now: datetime | None = None,
        observed: bool = False,
        cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    ) -> Commit:
        """Compute what a command leads to from ``state``, without writing it.

        CommandRejected if a guard refuses it; AnswerError if it resumes a wait with what its form does not take. A
        deadline's default is not checked again: it was when the flow was read.
        """
        made = commit(
            self.graph,
            state,
            command,
            now=now or self.clock.now(),
            new_id=self.new_id,
            observed=observed,
            cancel_mode=cancel_mode,
        )
        if isinstance(command, ResumeNode) and made.events and command.actor.kind is not ActorKind.SCHEDULER:
            check_answer(command.node_id, state.nodes[command.node_id].prompt, command.extra.get("input"))
        return made

    def ended_now(self, state: ExecutionState) -> Commit:
        """A decision: the requested cancel ends now, whether or not nodes are still at work."""
        now, mode = self.clock.now(), CancelMode.IMMEDIATE
        events = orchestrate(self.graph, state, now=now, new_id=self.new_id, cancel_mode=mode)
        return Commit(events, fold(events, state) if events else state)

    def failing(self, actor: Actor, reason: str, error: JsonObject, *, only_at: int | None = None) -> Decision:
        """A decision: the run fails, unless it has ended or a cancel was first; no flow is needed for it.

        ``only_at``: not if the state has another version than this one.
        """

        def decision(state: ExecutionState) -> Commit:
            if only_at is not None and state.version != only_at:
                return Commit([], state)
            events = fail(state, reason=reason, error=error, actor=actor, now=self.clock.now(), new_id=self.new_id)
            return Commit(events, fold(events, state) if events else state)

        return decision

    async def decide(self, decision: Decision, *, urgency: int = _OTHERWISE) -> list[Event]:
        """Append what ``decision`` returns for the newest state, and return it; called again after a lost append.

        UnavailableError if the log does not answer: the commit may be in the log all the same.
        """
        mine = _Pending(decision, urgency)
        self._pending.append(mine)
        try:
            async with self._lock:
                while not mine.is_settled:
                    await self._write(self._next_batch(mine))
        finally:
            if mine in self._pending:
                self._pending.remove(mine)
            self._look_if_news()
        if mine.error is not None:
            raise mine.error
        return mine.events

    def _next_batch(self, mine: _Pending) -> list[_Pending]:
        if len(self._pending) == 1:
            return [mine]
        return sorted(self._pending, key=lambda pending: pending.urgency)[:AT_ONCE]

    async def _write(self, batch: Sequence[_Pending]) -> None:
        """Write all of ``batch`` as one commit and settle it; if the log does not answer, all callers get the error."""
        try:
            await self._write_together(batch)
        except UnavailableError as error:
            for pending in batch:
                if not pending.is_settled:
                    pending.events, pending.error = [], error
        self._settle(batch)

    async def _write_together(self, batch: Sequence[_Pending]) -> None:
        if self._must_read:
            await self._catch_up()
        while True:
            events, state = self._decide_all(batch)
            if not events:
                return
            try:
                self.position = await self._log.append(
                    self.execution_id, events, after=self.position, quiet=self.is_sole_owner
                )
            except LogConflictError:
                await self._catch_up()
            except TooLargeError as error:
                await self._write_separately(batch, error)
                return
            except UnavailableError:
                if not await self._resolve_outcome(events, batch):
                    raise
            except BaseException:  # cancelled, most likely
                self._put_in_doubt(events, batch)
                raise
            else:
                self._in_doubt.clear()
                self._settle(batch)
                self._take(events, state)
                return

    async def _resolve_outcome(self, events: Sequence[Event], batch: Sequence[_Pending]) -> bool:
        """Resolve an append without an answer: is the commit, or another in its place, in the log by now?"""
        first = next(index for index, pending in enumerate(batch) if pending.events)
        self._settle(batch[:first])  # these were refused on a state that is known to be in the log
        self._put_in_doubt(events, batch)
        position = self.position
        await self._catch_up()
        return self.position != position  # else it may still be on its way

    def _put_in_doubt(self, events: Sequence[Event], batch: Sequence[_Pending]) -> None:
        answers = [_Answer(pending, pending.events, pending.error) for pending in batch if not pending.is_settled]
        self._in_doubt[events[0].event_id] = answers
        self._must_read = True

    async def _write_separately(self, batch: Sequence[_Pending], error: TooLargeError) -> None:
        """Write each decision by itself, since together they are too large; one that is too large alone is refused."""
        waiting = [pending for pending in batch if not pending.is_settled]
        if len(waiting) == 1:
            waiting[0].events, waiting[0].error = [], error
            return
        for pending in waiting:
            await self._write([pending])

    def _decide_all(self, batch: Sequence[_Pending]) -> Commit:
        state, written = self.state, list[Event]()
        for pending in batch:
            if pending.is_settled:
                continue
            pending.events, pending.error = [], None
            try:
                pending.events, state = self._with_follow_ups(pending.decision(state))
            except Exception as error:  # noqa: BLE001 a refusal belongs to its own caller, not to the others
                pending.error = error
            written = pending.events if not written else written + pending.events
        return Commit(written, state)

    def _with_follow_ups(self, made: Commit) -> Commit:
        if self.follow_ups is None or not made.events:
            return made
        events, state = made
        for command in self.follow_ups(events, state):
            more = self.step(state, command, now=events[-1].occurred_at, observed=True)
            events, state = events + more.events, more.state
        return Commit(events, state)

    def _settle(self, batch: Sequence[_Pending]) -> None:
        for pending in batch:
            pending.is_settled = True
            if pending in self._pending:  # its caller may have been cancelled
                self._pending.remove(pending)

    async def _catch_up(self) -> Sequence[Event]:
        events, position = await self._log.read(self.execution_id, after=self.position)
        state = fold(events, self.state)
        self.position, self._must_read = position, False
        if events:
            self._resolve(events[0].event_id)
        self._take(events, state)
        return events

    def _resolve(self, event_id: str) -> None:
        """The log has moved on: of the commits in doubt, only the one that begins with this event is in it."""
        for pending, events, error in self._in_doubt.pop(event_id, ()):
            if not pending.is_settled:
                pending.events, pending.error = events, error
                self._settle([pending])
        self._in_doubt.clear()

    def _take(self, events: Sequence[Event], state: ExecutionState) -> None:
        self.state = state
        for listener in [*self._listeners]:
            listener(events, state)


def _urgency(command: Command) -> int:
    match command:
        case CancelExecution():
            return _CANCEL
        case FailNode():
            return _FAILURE
        case ReportNodeProgress():
            return _PROGRESS
        case _:  # in the order in which they came
            return _OTHERWISE

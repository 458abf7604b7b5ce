"""Creates runs from their input, and retracts those that were not accepted.

This is the one place where the log of a run begins, for submissions and for runs that another program made. An
execution on a registered graph is created by a command (:mod:`.commands`) and retracted here.

**The log is the acceptance.** A log that has begun is a run, whatever became of its snapshot and its job: any process
that finds it recreates both (:meth:`.run_log.RunLog.restore`). Only the submission that began the log, and that is
answered with an error, may close it. It is closed with a cancel instead of being removed, so that a job that was queued
although the queue did not answer is recognised and dropped. A submitter that cannot close the log yet leaves a mark in
place of the snapshot; who finds the mark closes the log.

A submission under an Idempotency-Key shares its run with every other request under that key. Another request answers
with success when the run's snapshot is there, or when the log has moved on. So the submitter may retract the run only
while neither has happened: it first leaves the mark, which no first snapshot replaces, then closes the log by
compare-and-set.
"""

import asyncio
import itertools
import logging
from typing import Final, NamedTuple

from pyoco_server.app.ports import (
    Clock,
    EventLog,
    LogConflictError,
    NewId,
    NotStoredError,
    TooLargeError,
    UnavailableError,
)
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.snapshots.status import NOT_ACCEPTED, was_retracted
from pyoco_server.app.snapshots.writer import SnapshotWriter
from pyoco_server.core import Actor, ActorKind, CancelMode, Commit, Event, ExecutionState, Graph, fold, graph_from_log
from pyoco_server.core.commands import CancelExecution
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
_SUBMITTER: Final = Actor(ActorKind.SYSTEM, "submit")
_FIRST_PAUSES_SEC: Final = [0.1] * 20
_PAUSE_SEC: Final = 1.0
"""Pause between attempts to retract in the background: shorter than a gateway waits before it restores a run."""
_MOST_TRIES: Final = 5
"""How often a log is read again to find out whether it was closed."""


class Creation:
    """The creation of a run, under way: its first event, and how much of it may be stored."""

    __slots__ = ("created", "graph", "is_shared", "may_be_there", "run_id")

    def __init__(self, created: Event, *, is_shared: bool, graph: Graph | None = None) -> None:
        """``graph``: the execution's graph, if the first event does not contain all of it."""
        self.run_id = created.execution_id
        self.created = created
        self.graph = graph if graph is not None else graph_from_log([created])
        self.is_shared = is_shared
        """Whether other requests may create the same run."""
        self.may_be_there = True
        """False once it is known that the log has nothing."""


class _End(NamedTuple):
    """How a log ends after an attempt to close it."""

    state: ExecutionState
    position: int
    is_accepted: bool
    """Whether the log is that of this creation, and its run was accepted."""


class RunCreator:
    """Begins logs, and closes those of runs that were not accepted; in the background if that fails at first."""

    def __init__(self, *, log: EventLog, writer: SnapshotWriter, clock: Clock, new_id: NewId) -> None:
        self._log = log
        self._writer = writer
        self._clock = clock
        self._new_id = new_id
        self._retracting: set[asyncio.Task[None]] = set()

    def prepare(
        self, run_id: str, given: RunInput, actor: Actor, *, is_shared: bool = False, correlation_id: str | None = None
    ) -> Creation:
        """Return the creation of a run with this input; nothing is stored yet."""
        created = given.creation_event(
            run_id, actor, now=self._clock.now(), new_id=self._new_id, correlation_id=correlation_id
        )
        return Creation(created, is_shared=is_shared)

    async def begin(self, creation: Creation) -> int:
        """Append the first event and return its position; LogConflictError if the log has begun.

        After any error the caller must :meth:`retract` the creation.
        """
        try:
            return await self._log.append(creation.run_id, [creation.created], after=0, quiet=True)
        except (LogConflictError, NotStoredError, TooLargeError):
            creation.may_be_there = False
            raise

    async def adopt(self, run_id: str, given: RunInput, actor: Actor) -> tuple[Event, int] | None:
        """Begin the log of a run that another program made, and return its first event with the position.

        None if the log has begun already.
        """
        created = self.prepare(run_id, given, actor).created
        try:
            return created, await self._log.append(run_id, [created], after=0)
        except LogConflictError:
            _log.debug("another process created the run", extra={"action": "run_created_elsewhere", "run_id": run_id})
            return None

    async def retract(self, creation: Creation) -> int | None:
        """Retract a creation; None if it is retracted, or will be as soon as the log can be reached.

        A run that was accepted although an answer was missing is left alone, as a shared one may have been; then the
        result is where its log ends.
        """
        if not creation.may_be_there:
            return None
        is_done, position = await self._try(creation)
        if not is_done:
            run_id = creation.run_id
            log_error(_log, "ERR-PYOCO-0004", action="submit_cleanup_failed", level=logging.WARNING, run_id=run_id)
            later = asyncio.create_task(self._retract_later(creation), name=f"{run_id} retracted")
            self._retracting.add(later)
            later.add_done_callback(self._retracting.discard)
        return position

    async def _retract_later(self, creation: Creation) -> None:
        for pause_sec in itertools.chain(_FIRST_PAUSES_SEC, itertools.repeat(_PAUSE_SEC)):
            await self._clock.sleep(pause_sec)
            is_done, _ = await self._try(creation)
            if is_done:
                return

    async def _try(self, creation: Creation) -> tuple[bool, int | None]:
        """Return whether the run's outcome is settled, and where its log ends if it was accepted."""
        retracting = self._retract_shared(creation) if creation.is_shared else self._retract_own(creation)
        [end] = await asyncio.gather(retracting, return_exceptions=True)
        return not isinstance(end, BaseException), end if isinstance(end, int) else None

    async def _retract_own(self, creation: Creation) -> int | None:
        try:
            end = await self._close_log(creation)
        except Exception:
            await self._writer.prevent(creation.run_id)
            raise
        if end.is_accepted:  # a worker has ended it already
            return end.position
        await self._writer.prevent(creation.run_id)
        return None

    async def _retract_shared(self, creation: Creation) -> int | None:
        is_seen = not await self._writer.prevent_first(creation.run_id)
        end = await self._close_log(creation, is_seen=is_seen)
        if was_retracted(end.state):
            await self._writer.remove(creation.run_id)
            return None
        return end.position if end.is_accepted else None

    async def _close_log(self, creation: Creation, *, is_seen: bool = False) -> _End:
        """Close the log with a cancel, unless the run was accepted."""
        run_id, created, first = creation.run_id, creation.created, list[str]()
        execution = Execution(run_id, creation.graph, log=self._log, clock=self._clock, new_id=self._new_id)
        execution.subscribe(lambda events, _: first.extend([event.event_id for event in events if not first][:1]))
        await execution.load()
        cancel = CancelExecution(execution_id=run_id, actor=_SUBMITTER, reason=NOT_ACCEPTED)

        def is_accepted(state: ExecutionState) -> bool:
            """Return whether the run was accepted, or is another request's and not ours to close."""
            return creation.is_shared and (is_seen or first[0] != created.event_id or state.version > 1)

        def closing(state: ExecutionState) -> Commit:
            if not state.exists:
                # The creation may still arrive. It would come after this commit, and be refused.
                ended = execution.step(fold([created]), cancel, cancel_mode=CancelMode.IMMEDIATE)
                return Commit([created, *ended.events], ended.state)
            if is_accepted(state):
                return Commit([], state)
            return execution.step(state, cancel, cancel_mode=CancelMode.IMMEDIATE)

        for _ in range(_MOST_TRIES):
            try:
                await execution.decide(closing)
            except TooLargeError:
                if execution.state.exists:
                    raise
                # What is too large to be closed was too large to be stored.
                return _End(execution.state, execution.position, is_accepted=False)
            # After an unknown outcome, the creation is mistaken for the commit that closes: both begin with one event.
            if execution.state.is_terminal or is_accepted(execution.state):
                break
        else:
            raise UnavailableError(f"the log of '{run_id}' could not be closed")
        is_ours = first[0] == created.event_id and not was_retracted(execution.state)
        return _End(execution.state, execution.position, is_accepted=is_ours)

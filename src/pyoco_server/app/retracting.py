"""Retracts submissions: a submission that is not answered with success leaves no run.

The log of a submission that failed is closed with a cancel instead of being removed, so that a job that was queued all
the same (its outcome was unknown) is recognised and dropped.

A submission under an Idempotency-Key shares its run with every other request under that key. Another request answers
with success when the run's snapshot is there, or when the log has moved on. So the submitter may retract the run only
while neither has happened: it first makes sure that no snapshot can appear, then closes the log by compare-and-set.
"""

import asyncio
import itertools
import logging
from typing import Final, NamedTuple

from pyoco_server.app.execution import Execution
from pyoco_server.app.ports import Clock, EventLog, NewId, Snapshots, TooLargeError, UnavailableError
from pyoco_server.core import Actor, ActorKind, CancelMode, Commit, Event, ExecutionState, Graph, fold, graph_from_log
from pyoco_server.core.commands import CancelExecution
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
NOT_ACCEPTED: Final = "the submission was not accepted"
_SUBMITTER: Final = Actor(ActorKind.SYSTEM, "submit")
_FIRST_PAUSES_SEC: Final = (*[0.1] * 20, *[1.0] * 10)
_PAUSE_SEC: Final = 10.0
"""Between attempts to retract in the background: short ones first, to be quicker than a worker, then for ever."""
_MOST_TRIES: Final = 5
"""How often a log is read again to find out whether it was closed."""


def was_taken_back(state: ExecutionState) -> bool:
    """Was the run never accepted? Then there is nothing to be seen of it but its log."""
    return state.is_terminal and state.cancel_reason == NOT_ACCEPTED


class Attempt:
    """A submission under way."""

    __slots__ = ("created", "graph", "is_shared", "may_be_seen", "may_be_there", "run_id")

    def __init__(self, created: Event, *, is_shared: bool, graph: Graph | None = None) -> None:
        """``graph``: that of the execution, if the first event does not say all of it."""
        self.run_id = created.execution_id
        self.created = created
        self.graph = graph if graph is not None else graph_from_log([created])
        self.is_shared = is_shared
        """May other requests submit the same run?"""
        self.may_be_there = True
        """May the log have it? False once it is known that nothing was stored."""
        self.may_be_seen = False
        """May there be a snapshot?"""


class _End(NamedTuple):
    """How a log ends after an attempt to close it."""

    state: ExecutionState
    position: int
    is_accepted: bool
    """Is it the log of this submission, and was the run accepted all the same?"""


class Retraction:
    """Retracts submissions, in the background if that does not succeed at once."""

    def __init__(self, *, log: EventLog, snapshots: Snapshots, clock: Clock, new_id: NewId) -> None:
        self._log = log
        self._snapshots = snapshots
        self._clock = clock
        self._new_id = new_id
        self._under_way: set[asyncio.Task[None]] = set()

    async def retract(self, attempt: Attempt) -> int | None:
        """Retract a submission; None if it is retracted, or will be as soon as that is possible.

        If the run was accepted all the same, as a shared one may have been, it is left alone; then the result is where
        its log ends.
        """
        if not attempt.may_be_there:
            return None
        is_done, position = await self._try(attempt)
        if not is_done:
            run_id = attempt.run_id
            log_error(_log, "ERR-PYOCO-0004", action="submit_cleanup_failed", level=logging.WARNING, run_id=run_id)
            later = asyncio.create_task(self._retract_later(attempt), name=f"{run_id} retracted")
            self._under_way.add(later)
            later.add_done_callback(self._under_way.discard)
        return position

    async def _retract_later(self, attempt: Attempt) -> None:
        for pause_sec in itertools.chain(_FIRST_PAUSES_SEC, itertools.repeat(_PAUSE_SEC)):
            await self._clock.sleep(pause_sec)
            is_done, _ = await self._try(attempt)
            if is_done:
                return

    async def _try(self, attempt: Attempt) -> tuple[bool, int | None]:
        """Whether it is settled what becomes of the run, and where its log ends if it was accepted."""
        retracting = self._retract_shared(attempt) if attempt.is_shared else self._retract_own(attempt)
        [end] = await asyncio.gather(retracting, return_exceptions=True)
        return not isinstance(end, BaseException), end if isinstance(end, int) else None

    async def _retract_own(self, attempt: Attempt) -> int | None:
        try:
            end = await self._close_log(attempt)
        except Exception:
            await self._remove_snapshot(attempt)
            raise
        if end.is_accepted:  # a worker was quick enough to end it
            return end.position
        await self._remove_snapshot(attempt)
        return None

    async def _retract_shared(self, attempt: Attempt) -> int | None:
        is_seen = attempt.may_be_seen and not await self._snapshots.forbid(attempt.run_id)
        end = await self._close_log(attempt, is_seen=is_seen)
        if was_taken_back(end.state):
            await self._snapshots.delete(attempt.run_id)
            return None
        return end.position if end.is_accepted else None

    async def _remove_snapshot(self, attempt: Attempt) -> None:
        """Also one that was written without an answer, and is still on its way."""
        if not await self._snapshots.forbid(attempt.run_id):
            await self._snapshots.delete(attempt.run_id)

    async def _close_log(self, attempt: Attempt, *, is_seen: bool = False) -> _End:
        """Close the log with a cancel, unless the run was accepted."""
        run_id, created, first = attempt.run_id, attempt.created, list[str]()
        execution = Execution(run_id, attempt.graph, log=self._log, clock=self._clock, new_id=self._new_id)
        execution.subscribe(lambda events, _: first.extend([event.event_id for event in events if not first][:1]))
        await execution.load()
        cancel = CancelExecution(execution_id=run_id, actor=_SUBMITTER, reason=NOT_ACCEPTED)

        def is_accepted(state: ExecutionState) -> bool:
            """Or another request's: then it is not ours to close."""
            return attempt.is_shared and (is_seen or first[0] != created.event_id or state.version > 1)

        def closing(state: ExecutionState) -> Commit:
            if not state.exists:
                # The creation may still be on its way: it would come after this one, and be refused.
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
                # What is too large to be closed was too large to be there.
                return _End(execution.state, execution.position, is_accepted=False)
            # After an unknown outcome, the creation is mistaken for the commit that closes: both begin with one event.
            if execution.state.is_terminal or is_accepted(execution.state):
                break
        else:
            raise UnavailableError(f"the log of '{run_id}' could not be closed")
        is_ours = first[0] == created.event_id and not was_taken_back(execution.state)
        return _End(execution.state, execution.position, is_accepted=is_ours)

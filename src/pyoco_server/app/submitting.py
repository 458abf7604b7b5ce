"""Submitting a run: it is accepted when its log, its snapshot and its job are there, and not before."""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from pyoco_server.app.execution import Execution
from pyoco_server.app.jobs import Job, encode_job, new_job
from pyoco_server.app.ports import (
    Clock,
    EventLog,
    ForeignSnapshotError,
    NewId,
    Snapshots,
    TooLargeError,
    UnavailableError,
    WorkQueue,
)
from pyoco_server.app.projection import RunProjection
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.snapshot_size import fitted
from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    Commit,
    Event,
    ExecutionState,
    fold,
    graph_from_log,
    handle,
    initial_state,
)
from pyoco_server.core.commands import CancelExecution, CreateExecution
from pyoco_server.core.wire import JsonObject
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
NOT_ACCEPTED: Final = "the submission was not accepted"
SLOW_SEC: Final = 10.0
"""Well below the time after which a log without a snapshot is taken for one that was never accepted."""
_SUBMITTER = Actor(ActorKind.SYSTEM, "submit")
_TRY_AGAIN_SEC: Final = (*[0.1] * 20, *[1.0] * 10, *[10.0] * 5)
"""The pauses between attempts to take back what was not accepted."""


def was_taken_back(state: ExecutionState) -> bool:
    """Was the run never accepted? Then there is nothing to be seen of it but its log."""
    return state.is_terminal and state.cancel_reason == NOT_ACCEPTED


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A run somebody wants."""

    flow_name: str
    params: JsonObject = {}
    params_kind: str = "json"
    tag: str = "default"
    tags: tuple[str, ...] | None = None
    """Shown, and searched by; the tag alone unless given."""
    workflow_yaml: str | None = None
    tenant_id: str | None = None
    api_key_id: str | None = None

    def input(self, now: datetime) -> RunInput:
        """As the log keeps it."""
        yaml = self.workflow_yaml.encode() if self.workflow_yaml is not None else None
        return RunInput(
            flow_name=self.flow_name,
            params=self.params,
            params_kind=self.params_kind,
            tag=self.tag,
            tags=self.tags if self.tags is not None else (self.tag,),
            submitted_at=now.timestamp(),
            tenant_id=self.tenant_id,
            api_key_id=self.api_key_id,
            workflow_yaml=self.workflow_yaml,
            workflow_yaml_sha256=hashlib.sha256(yaml).hexdigest() if yaml is not None else None,
            workflow_yaml_bytes=len(yaml) if yaml is not None else None,
        )


class Submitter:
    """Takes submissions."""

    def __init__(
        self,
        *,
        log: EventLog,
        snapshots: Snapshots,
        queue: WorkQueue,
        clock: Clock,
        new_id: NewId,
        max_snapshot_bytes: int,
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._queue = queue
        self._clock = clock
        self._new_id = new_id
        self._max_snapshot_bytes = max_snapshot_bytes
        self._taking_back: set[asyncio.Task[None]] = set()

    async def submit(
        self,
        submission: Submission,
        actor: Actor,
        *,
        run_id: str | None = None,
        is_shared: bool = False,
        correlation_id: str | None = None,
    ) -> JsonObject:
        """Accept a run and return its first snapshot.

        UnavailableError if it could not be made sure that it was accepted; then whatever got through is cancelled, at
        once or as soon as the log can be reached. ``is_shared``: others may submit a run of the same ``run_id``; then
        what they may have been told of is left alone.
        """
        attempt = _Attempt(run_id or self._new_id(), is_shared=is_shared)
        given = submission.input(self._clock.now())
        created = self._created(attempt.run_id, given, actor, correlation_id)
        try:
            position = await self._log.append(attempt.run_id, [created], after=0, quiet=True)
            snapshot = await self._announce(attempt, given, created, position)
            await self._refuse_if_closed(attempt, created)
        except (UnavailableError, asyncio.CancelledError):
            if not attempt.is_visible:
                await asyncio.shield(self._take_back(attempt, created))
            raise
        except TooLargeError:
            await asyncio.shield(self._take_back(attempt, created))
            raise
        return snapshot

    async def _refuse_if_closed(self, attempt: "_Attempt", created: Event) -> None:
        """Whoever stood still for long amid a submission may have been given up: what was closed is not accepted."""
        if (self._clock.now() - created.occurred_at).total_seconds() < SLOW_SEC:
            return
        events, _ = await self._log.read(attempt.run_id)
        if was_taken_back(fold(events)):
            raise UnavailableError("the submission took so long that it was given up; submit again")

    def _created(self, run_id: str, given: RunInput, actor: Actor, correlation_id: str | None) -> Event:
        create = CreateExecution(
            execution_id=run_id,
            actor=actor,
            correlation_id=correlation_id,
            graph_id=given.flow_name,
            input=given.to_json(),
        )
        state = initial_state(run_id)
        now = self._clock.now()
        [created] = handle(state, create, now=now, new_id=self._new_id, graph_ids={given.flow_name})
        return created

    async def _announce(self, attempt: "_Attempt", given: RunInput, created: Event, position: int) -> JsonObject:
        """Write the snapshot, then queue the job, which tells its worker where the snapshot is.

        Where others may submit the same run, a snapshot means to them that the run was accepted: from then on it is not
        taken back.
        """
        run_id = attempt.run_id
        projection = RunProjection(run_id)
        projection.listen([created], fold([created]))
        snapshot = projection.snapshot(position=position)
        body = fitted(snapshot, self._max_snapshot_bytes)
        attempt.is_visible = attempt.is_shared
        try:
            revision = await self._snapshots.write(run_id, body, position=position, revision=0, is_urgent=False)
        except ForeignSnapshotError:  # another program saw ours, and changed it: the worker of the job looks
            revision = None
        await self._queue_job(new_job(run_id, given, created=created, position=position, revision=revision))
        await self._snapshots.sync()
        return snapshot

    async def queue_again(self, created: Event, given: RunInput, position: int) -> None:
        """Make sure that a run that has just been created has its job; ``position`` is where its log ends."""
        await self._queue_job(new_job(created.execution_id, given, created=created, position=position))

    async def _queue_job(self, job: Job) -> None:
        await self._queue.publish(job.tag, encode_job(job), dedup_id=f"{job.run_id}:{job.log_position}")

    async def _take_back(self, attempt: "_Attempt", created: Event) -> None:
        """Close the log with a cancel, so that a job that slipped through is recognised and dropped."""
        if not await self._has_taken_back(attempt, created):
            run_id = attempt.run_id
            log_error(_log, "ERR-PYOCO-0004", action="submit_cleanup_failed", level=logging.WARNING, run_id=run_id)
            later = asyncio.create_task(self._take_back_later(attempt, created), name=f"{run_id} taken back")
            self._taking_back.add(later)
            later.add_done_callback(self._taking_back.discard)

    async def _take_back_later(self, attempt: "_Attempt", created: Event) -> None:
        """Most likely the log is away for a moment, and the job with it: try to be there before a worker is."""
        for pause_sec in _TRY_AGAIN_SEC:
            await self._clock.sleep(pause_sec)
            if await self._has_taken_back(attempt, created):
                return

    async def _has_taken_back(self, attempt: "_Attempt", created: Event) -> bool:
        undoing = (
            [self._undo_shared(attempt, created)]
            if attempt.is_shared
            else [self._close_log(attempt, created), self._snapshots.delete(attempt.run_id)]
        )
        undone: Sequence[Any] = await asyncio.gather(*undoing, return_exceptions=True)
        # What is too large to be closed was too large to be there.
        return not [end for end in undone if isinstance(end, BaseException) and not isinstance(end, TooLargeError)]

    async def _undo_shared(self, attempt: "_Attempt", created: Event) -> None:
        """The snapshot may be that of a run somebody else has submitted: it goes only if the log is closed."""
        if was_taken_back(await self._close_log(attempt, created)):
            await self._snapshots.delete(attempt.run_id)

    async def _close_log(self, attempt: "_Attempt", created: Event) -> ExecutionState:
        run_id, first = attempt.run_id, list[str]()
        execution = Execution(run_id, graph_from_log([created]), log=self._log, clock=self._clock, new_id=self._new_id)
        execution.subscribe(lambda events, _: first.extend([event.event_id for event in events if not first][:1]))
        await execution.load()
        cancel = CancelExecution(execution_id=run_id, actor=_SUBMITTER, reason=NOT_ACCEPTED)

        def closing(state: ExecutionState) -> Commit:
            if not state.exists:
                # The creation may still be on its way: it would come after this one, and be refused.
                ended = execution.step(fold([created]), cancel, cancel_mode=CancelMode.IMMEDIATE)
                return Commit([created, *ended.events], ended.state)
            if attempt.is_shared and (first[0] != created.event_id or state.version > 1):
                return Commit([], state)  # somebody else's, or somebody has gone on with it: it was accepted
            return execution.step(state, cancel, cancel_mode=CancelMode.IMMEDIATE)

        await execution.decide(closing)
        return execution.state


class _Attempt:
    """A submission under way."""

    __slots__ = ("is_shared", "is_visible", "run_id")

    def __init__(self, run_id: str, *, is_shared: bool) -> None:
        self.run_id = run_id
        self.is_shared = is_shared
        """May others submit the same run?"""
        self.is_visible = False
        """May others have seen it, and answered for it?"""

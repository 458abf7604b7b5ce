"""Submitting a run: it is accepted when its log, its snapshot and its job are there, and not before."""

import asyncio
import contextlib
import hashlib
from datetime import datetime
from typing import Final

import msgspec

from pyoco_server.app.jobs import Job, encode_job, new_job
from pyoco_server.app.ports import (
    Clock,
    EventLog,
    ForeignSnapshotError,
    LogConflictError,
    NewId,
    NotStoredError,
    Snapshots,
    TooLargeError,
    UnavailableError,
    WorkQueue,
)
from pyoco_server.app.projection import RunProjection
from pyoco_server.app.retracting import Attempt, Retraction, was_taken_back
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.snapshot_size import fitted
from pyoco_server.core import Actor, Event, fold, handle, initial_state
from pyoco_server.core.commands import CreateExecution
from pyoco_server.core.wire import JsonObject

SLOW_SEC: Final = 10.0
"""Well below the time after which a log without a snapshot is taken for one that was never accepted."""


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
        self._retraction = Retraction(log=log, snapshots=snapshots, clock=clock, new_id=new_id)

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

        Whatever is raised, the run was not accepted: what got through is retracted, at once or as soon as the log can
        be reached. UnavailableError: try again. ``is_shared``: other requests may submit a run of the same ``run_id``;
        then a run that one of them may have answered for is left alone.
        """
        given = submission.input(self._clock.now())
        created = self._created(run_id or self._new_id(), given, actor, correlation_id)
        attempt = Attempt(created, is_shared=is_shared)
        try:
            return await self._accept(attempt, given)
        except asyncio.CancelledError:
            await asyncio.shield(self._retraction.retract(attempt))
            raise
        except Exception:
            position = await asyncio.shield(self._retraction.retract(attempt))
            if position is None:
                raise
            return _first_snapshot(created, position)  # read back: it was accepted, although no answer came

    async def _accept(self, attempt: Attempt, given: RunInput) -> JsonObject:
        try:
            position = await self._log.append(attempt.run_id, [attempt.created], after=0, quiet=True)
        except (LogConflictError, NotStoredError, TooLargeError):
            attempt.may_be_there = False
            raise
        snapshot = await self._announce(attempt, given, position)
        await self._refuse_if_closed(attempt)
        return snapshot

    async def _refuse_if_closed(self, attempt: Attempt) -> None:
        """A process that was paused amid a submission may find its log closed: then the run was not accepted."""
        if (self._clock.now() - attempt.created.occurred_at).total_seconds() < SLOW_SEC:
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

    async def _announce(self, attempt: Attempt, given: RunInput, position: int) -> JsonObject:
        """Write the snapshot and queue the job.

        The job tells its worker where the snapshot is. Not so where other requests may submit the same run: to them a
        snapshot proves that the run was accepted, so it is written last.
        """
        run_id, created = attempt.run_id, attempt.created
        snapshot = _first_snapshot(created, position)
        body = fitted(snapshot, self._max_snapshot_bytes)
        if attempt.is_shared:
            await self.queue_again(created, given, position)
            attempt.may_be_seen = True
            # A worker of another program may have the job and have written a snapshot: then it is known to others.
            with contextlib.suppress(ForeignSnapshotError):
                await self._snapshots.write(run_id, body, position=position, revision=0)
            return snapshot
        try:
            revision = await self._snapshots.write(run_id, body, position=position, revision=0, is_urgent=False)
        except ForeignSnapshotError:  # another program has changed the snapshot: the worker that gets the job reads it
            revision = None
        await self._queue_job(new_job(run_id, given, created=created, position=position, revision=revision))
        await self._snapshots.sync()
        return snapshot

    async def queue_again(self, created: Event, given: RunInput, position: int) -> None:
        """Make sure that a run that has just been created has its job; ``position`` is where its log ends."""
        await self._queue_job(new_job(created.execution_id, given, created=created, position=position))

    async def _queue_job(self, job: Job) -> None:
        await self._queue.publish(job.tag, encode_job(job), dedup_id=f"{job.run_id}:{job.log_position}")


def _first_snapshot(created: Event, position: int) -> JsonObject:
    projection = RunProjection(created.execution_id)
    projection.listen([created], fold([created]))
    return projection.snapshot(position=position)

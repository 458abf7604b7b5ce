"""Submits runs: a run is accepted when its log, its snapshot and its job are stored, and not before.

The same request again gives the same run, with nothing stored for it: the run's id is derived from the request's
Idempotency-Key. A second request finds that the log of that id has begun, and compares what it began with. A
submission that was retracted has closed its log; then the key stands for the next id of its sequence.
"""

import asyncio
import hashlib
import uuid
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import ClassVar, Final, Protocol

import msgspec

from pyoco_server.app.ports import (
    Clock,
    EventLog,
    LogConflictError,
    NewId,
    Snapshots,
    UnavailableError,
    WorkQueue,
)
from pyoco_server.app.runs.creation import Creation, RunCreator
from pyoco_server.app.runs.job import new_job, queue_job
from pyoco_server.app.runs.run_log import OpenRun, RunLog, RunNotFoundError
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.app.snapshots.writer import SnapshotWriter
from pyoco_server.core import Actor, Event, fold
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import PyocoServerError

_NAMESPACE: Final = uuid.UUID("6f1d3a52-6a0e-4b0e-9c1e-0d5f6f7c2b11")
_TRIES: Final = 16


class IdempotencyKeyError(PyocoServerError):
    """The key was used for another request."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


class QuotaReachedError(PyocoServerError):
    """A tenant has reached one of its quotas; it may submit again after ``retry_after_sec``."""

    quota: ClassVar[str]
    retry_after_sec: ClassVar[int] = 1


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a run."""

    flow_name: str
    params: JsonObject = {}
    params_kind: str = "json"
    tag: str = "default"
    tags: tuple[str, ...] | None = None
    """Tags for display and search; ``tag`` alone unless given."""
    workflow_yaml: str | None = None
    tenant_id: str | None = None
    api_key_id: str | None = None

    def input(self, now: datetime) -> RunInput:
        """Return the run's input as the log keeps it."""
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


class Quota(Protocol):
    """Makes room for submissions."""

    def submission(self) -> AbstractAsyncContextManager[None]:
        """Make room for a submission that is made inside; QuotaReachedError if there is none."""
        ...


class Submitter:
    """Accepts submissions, each as a run of its own."""

    def __init__(
        self,
        *,
        log: EventLog,
        snapshots: Snapshots,
        queue: WorkQueue,
        clock: Clock,
        new_id: NewId,
        max_snapshot_bytes: int,
        quota: Quota | None = None,
    ) -> None:
        """``quota`` is that of the tenant whose runs are submitted; without it, there is none."""
        self._quota = quota
        self._log = log
        self._writer = SnapshotWriter(snapshots, max_bytes=max_snapshot_bytes)
        self._queue = queue
        self._clock = clock
        self._new_id = new_id
        self._creator = RunCreator(log=log, writer=self._writer, clock=clock, new_id=new_id)

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

        Whatever is raised, the run was not accepted: what was stored of it is retracted, at once or as soon as the log
        can be reached. UnavailableError: try again. ``is_shared``: other requests may submit a run of the same
        ``run_id``; then a run that another request may have answered for is left alone.
        """
        if self._quota is None:
            return await self._submit(submission, actor, run_id, is_shared=is_shared, correlation_id=correlation_id)
        async with self._quota.submission():
            return await self._submit(submission, actor, run_id, is_shared=is_shared, correlation_id=correlation_id)

    async def _submit(
        self, submission: Submission, actor: Actor, run_id: str | None, *, is_shared: bool, correlation_id: str | None
    ) -> JsonObject:
        given = submission.input(self._clock.now())
        creation = self._creator.prepare(
            run_id or self._new_id(), given, actor, is_shared=is_shared, correlation_id=correlation_id
        )
        try:
            return await self._accept(creation, given)
        except asyncio.CancelledError:
            await asyncio.shield(self._creator.retract(creation))
            raise
        except Exception:
            position = await asyncio.shield(self._creator.retract(creation))
            if position is None:
                raise
            return _first_snapshot(creation.created, position)  # read back: accepted, although an answer was missing

    async def _accept(self, creation: Creation, given: RunInput) -> JsonObject:
        position = await self._creator.begin(creation)
        return await self._announce(creation, given, position)

    async def _announce(self, creation: Creation, given: RunInput, position: int) -> JsonObject:
        """Write the snapshot and queue the job.

        The job contains the snapshot's revision. Where other requests may submit the same run it does not: to them a
        snapshot proves that the run was accepted, so it is written last.
        """
        run_id, created = creation.run_id, creation.created
        snapshot = _first_snapshot(created, position)
        if creation.is_shared:
            await queue_job(self._queue, new_job(run_id, given, created=created, position=position))
            await self._writer.write_first(snapshot)
            return snapshot
        revision = await self._writer.write_first(snapshot, is_urgent=False)  # None: the worker reads the snapshot
        await queue_job(self._queue, new_job(run_id, given, created=created, position=position, revision=revision))
        await self._writer.sync()
        return snapshot


def _first_snapshot(created: Event, position: int) -> JsonObject:
    projection = RunProjection(created.execution_id)
    projection.listen([created], fold([created]))
    return projection.snapshot(position=position)


class IdempotentSubmitter:
    """Submits runs under Idempotency-Keys; any number of them may work on one log."""

    def __init__(self, submitter: Submitter, run_log: RunLog) -> None:
        self._submitter = submitter
        self._run_log = run_log

    async def submit(
        self,
        submission: Submission,
        actor: Actor,
        *,
        key: str | None,
        run_id: str | None = None,
        correlation_id: str | None = None,
    ) -> JsonObject:
        """Submit a run unless the key has one already, and return its first snapshot, so that answers are alike.

        IdempotencyKeyError if the key stands for another request. Without a key, every submission is a run of its own,
        under ``run_id`` if that is given.
        """
        if key is None:
            return await self._submitter.submit(submission, actor, run_id=run_id, correlation_id=correlation_id)
        for generation in range(_TRIES):
            run_id = str(uuid.uuid5(_NAMESPACE, f"{submission.tenant_id or ''}\n{generation}\n{key}"))
            try:
                return await self._submitter.submit(
                    submission, actor, run_id=run_id, is_shared=True, correlation_id=correlation_id
                )
            except LogConflictError:
                found = await self._accepted(run_id)
            except QuotaReachedError:  # the first answer is given again, whatever the tenant has submitted since
                if not await self._has_begun(run_id):
                    raise
                found = await self._accepted(run_id)
            if found is None:
                continue
            if not _is_same(found, submission):
                raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was used for another request; use a new one")
            return found.snapshot_after(1)
        raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was tried {_TRIES} times in vain; use a new one")

    async def _has_begun(self, run_id: str) -> bool:
        try:
            await self._run_log.open(run_id)
        except RunNotFoundError:
            return False
        return True

    async def _accepted(self, run_id: str) -> OpenRun | None:
        """Return the run with this id, with all that its submitter may have left undone; None if it was retracted."""
        try:
            return await self._run_log.restore(run_id)
        except RunNotFoundError as error:
            raise UnavailableError("the log has the same request already, and cannot be read; try again") from error


def _is_same(found: OpenRun, submission: Submission) -> bool:
    """Return whether the request is the same one of the same tenant, whichever of its keys and whenever."""
    given = found.projection.input
    wanted = submission.input(found.execution.clock.now())
    return msgspec.structs.replace(wanted, submitted_at=given.submitted_at, api_key_id=given.api_key_id) == given

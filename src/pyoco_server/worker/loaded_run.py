"""Loads a run when its job arrives: from the job, from the log, and from the snapshot that its last owner wrote."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyoco_server.app.ports import Delivery, EventLog, SnapshotReader, head_of
from pyoco_server.app.runs.creation import RunCreator
from pyoco_server.app.runs.job import Job
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.run import RunServices
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.snapshots.codec import json_object
from pyoco_server.app.snapshots.foreign import adopt_claim
from pyoco_server.app.snapshots.projection import RELEASED_AT
from pyoco_server.app.snapshots.status import has_owner
from pyoco_server.app.snapshots.writer import SnapshotWriter
from pyoco_server.core import Actor, ActorKind, Event, ExecutionState, fold, graph_from_log, initial_state
from pyoco_server.core.json_codec import JsonObject

_EXTERNAL: Final = Actor(ActorKind.EXTERNAL, "queue")

YOUNG_SEC: Final = 3.0
"""The first delivery of a job no older than this is begun without reading its snapshot: a cancel that a foreign gateway
wrote meanwhile is seen by a gateway of ours, or at the first heartbeat or task boundary."""


class LoadedRun(NamedTuple):
    """A run as it stood when its log was read."""

    events: Sequence[Event]
    position: int
    state: ExecutionState
    is_executed_elsewhere: bool = False
    """Does a foreign worker, which does not use the log, execute the run now?"""
    revision: int | None = None
    """The revision of the snapshot, if it was read and no other program's claim in it is missing in the log."""


class RunLookup:
    """Loads runs, and reads who owns them."""

    def __init__(
        self,
        log: EventLog,
        snapshots: SnapshotReader,
        writer: SnapshotWriter,
        services: RunServices,
        *,
        fresh_sec: float,
    ) -> None:
        """``fresh_sec``: an owner whose last heartbeat is no older than that is alive."""
        self._log = log
        self._snapshots = snapshots
        self._services = services
        self._fresh_sec = fresh_sec
        self._creator = RunCreator(log=log, writer=writer, clock=services.clock, new_id=services.new_id)

    async def of(self, job: Job, delivery: Delivery) -> LoadedRun | None:
        """Load a new run from its job, any other from its log; create the run of a foreign producer's job.

        What another program wrote into the snapshot is in the log before this returns. None if the run had a log once
        and has none any more: there is nothing to resume.
        """
        created = job.creation()
        is_first = delivery.times_delivered == 1
        if created is not None and job.log_position is not None and is_first and self._is_young(job):
            return LoadedRun([created], job.log_position, fold([created]), revision=job.snapshot_revision)
        if job.log_position is None:
            return await self._with_claims(await self.read_or_create(job.run_id, job.input()))
        known = await self.read(job.run_id)
        return await self._with_claims(known) if known.events else None

    def _is_young(self, job: Job) -> bool:
        return self._services.clock.now().timestamp() - job.submitted_at < YOUNG_SEC

    async def _with_claims(self, known: LoadedRun) -> LoadedRun:
        """Append to the log what another program claims in the snapshot."""
        run_id, services = known.state.execution_id, self._services
        stored = await self._snapshots.read(run_id)
        if stored is None:
            return known
        if not head_of(stored.body).is_foreign:
            return known._replace(revision=stored.revision if stored.position <= known.position else None)
        execution = Execution(
            run_id, graph_from_log(known.events), log=self._log, clock=services.clock, new_id=services.new_id
        )
        events = list(known.events)
        execution.begin_at(known.events, known.position)
        execution.subscribe(lambda more, _: events.extend(more))
        now = services.clock.now().timestamp()
        is_alive = await adopt_claim(execution, stored, now=now, fresh_sec=self._fresh_sec)
        return LoadedRun(events, execution.position, execution.state, is_alive, stored.revision)

    async def read(self, run_id: str) -> LoadedRun:
        """Load the run from its log, which may be empty."""
        events, position = await self._log.read(run_id)
        return LoadedRun(events, position, fold(events) if events else initial_state(run_id))

    async def read_or_create(self, run_id: str, given: RunInput) -> LoadedRun:
        """Load the run from its log; if it has none, create it."""
        while True:
            known = await self.read(run_id)
            if known.events:
                return known
            created = await self._creator.adopt(run_id, given, _EXTERNAL)
            if created is not None:
                event, position = created
                return LoadedRun([event], position, fold([event]))

    async def look_whether_owned(self, run_id: str) -> bool:
        """Read from the snapshot whether a live worker drives the run."""
        snapshot, now = await self._snapshot(run_id), self._services.clock.now().timestamp()
        return has_owner(snapshot, now=now, fresh_sec=self._fresh_sec)

    async def look_whether_released(self, known: LoadedRun) -> bool:
        """Read whether the last worker that had the run parked it or handed it back, rather than vanished."""
        snapshot = await self._snapshot(known.state.execution_id)
        return bool(known.state.nodes) and snapshot.get(RELEASED_AT) == known.position

    async def _snapshot(self, run_id: str) -> JsonObject:
        stored = await self._snapshots.read(run_id)
        return (json_object(stored.body) if stored is not None else None) or {}

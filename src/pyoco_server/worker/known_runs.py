"""What is known of a run when its job arrives: by the job, by the log, and by what its last worker said."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyoco_server.app.execution import Execution
from pyoco_server.app.foreign_snapshots import foreign_snapshot
from pyoco_server.app.jobs import Job
from pyoco_server.app.ports import Delivery, EventLog, LogConflictError, Snapshots, StoredSnapshot
from pyoco_server.app.projection import LET_GO_AT
from pyoco_server.app.run import RunServices
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.snapshot_reading import json_object, number
from pyoco_server.core import Actor, ActorKind, Event, ExecutionState, fold, graph_from_log, handle, initial_state
from pyoco_server.core.commands import CreateExecution
from pyoco_server.core.wire import JsonObject

_EXTERNAL: Final = Actor(ActorKind.EXTERNAL, "queue")

YOUNG_SEC: Final = 3.0
"""The first delivery of a job no older than this is begun without a look at its snapshot: a cancel that another gateway
wrote meanwhile is seen by a gateway of ours, or at the first heartbeat or task boundary."""


class Known(NamedTuple):
    """A run as it stood when its log was read."""

    events: Sequence[Event]
    position: int
    state: ExecutionState
    is_executed_elsewhere: bool = False
    """Does a worker that knows nothing of the log execute the run now?"""
    revision: int | None = None
    """The revision of the snapshot, if it was read and no other program's claim in it is missing in the log."""


class KnownRuns:
    """Finds out about runs."""

    def __init__(self, log: EventLog, snapshots: Snapshots, services: RunServices, *, fresh_sec: float) -> None:
        """``fresh_sec``: a heartbeat no older than that is a sign of life."""
        self._log = log
        self._snapshots = snapshots
        self._services = services
        self._fresh_sec = fresh_sec

    async def of(self, job: Job, delivery: Delivery) -> Known | None:
        """A new run is known from its job; of any other, the log is read; one of a foreign producer is created.

        What another program wrote into the snapshot is in the log before this returns. None if the run had a log once
        and has none any more: there is nothing to go on with.
        """
        created = job.creation()
        is_first = delivery.times_delivered == 1
        if created is not None and job.log_position is not None and is_first and self._is_young(job):
            return Known([created], job.log_position, fold([created]), revision=job.snapshot_revision)
        if job.log_position is None:
            return await self._with_claims(await self.read_or_create(job.run_id, job.input()))
        known = await self.read(job.run_id)
        return await self._with_claims(known) if known.events else None

    def _is_young(self, job: Job) -> bool:
        return self._services.clock.now().timestamp() - job.submitted_at < YOUNG_SEC

    async def _with_claims(self, known: Known) -> Known:
        """Append to the log what another program claims in the snapshot."""
        run_id, services = known.state.execution_id, self._services
        stored = await self._snapshots.read(run_id)
        foreign = foreign_snapshot(stored)
        if stored is None:
            return known
        if foreign is None:
            return known._replace(revision=stored.revision if stored.position <= known.position else None)
        execution = Execution(
            run_id, graph_from_log(known.events), log=self._log, clock=services.clock, new_id=services.new_id
        )
        events = list(known.events)
        execution.begin_at(known.events, known.position)
        execution.subscribe(lambda more, _: events.extend(more))
        is_alive = foreign.shows_life(services.clock.now().timestamp(), self._fresh_sec)
        decision = foreign.decision(execution, is_alive=is_alive)
        if decision is not None and not known.state.is_terminal:
            await execution.decide(decision)
        return Known(events, execution.position, execution.state, is_alive, stored.revision)

    async def read(self, run_id: str) -> Known:
        """The run by its log, which may be empty."""
        events, position = await self._log.read(run_id)
        return Known(events, position, fold(events) if events else initial_state(run_id))

    async def read_or_create(self, run_id: str, given: RunInput) -> Known:
        """The run by its log; if it has none, it is begun."""
        while True:
            known = await self.read(run_id)
            if known.events:
                return known
            made = self._creation(run_id, given)
            try:
                position = await self._log.append(run_id, [made], after=0)
            except LogConflictError:  # somebody was quicker
                continue
            return Known([made], position, fold([made]))

    async def is_in_hands(self, run_id: str) -> bool:
        """Does somebody drive the run, and show life?"""
        said, now = await self._said(run_id), self._services.clock.now().timestamp()
        heartbeat_at = number(said.get("heartbeat_at")) or 0.0
        return said.get("driven_by") is not None and now - heartbeat_at < self._fresh_sec

    async def was_let_go(self, known: Known) -> bool:
        """Did the last worker that had the run put it aside or hand it back, rather than vanish?"""
        said = await self._said(known.state.execution_id)
        return bool(known.state.nodes) and said.get(LET_GO_AT) == known.position

    async def _said(self, run_id: str) -> JsonObject:
        stored: StoredSnapshot | None = await self._snapshots.read(run_id)
        return (json_object(stored.body) if stored is not None else None) or {}

    def _creation(self, run_id: str, given: RunInput) -> Event:
        command = CreateExecution(execution_id=run_id, actor=_EXTERNAL, graph_id=given.flow_name, input=given.to_json())
        now, new_id = self._services.clock.now(), self._services.new_id
        [made] = handle(initial_state(run_id), command, now=now, new_id=new_id, graph_ids={given.flow_name})
        return made

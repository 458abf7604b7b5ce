"""What is known of a run when its job arrives: by the job, by the log, and by what its last worker said."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.app.jobs import Job
from pyoco_server.app.ports import Delivery, EventLog, LogConflictError, Snapshots
from pyoco_server.app.projection import LET_GO_AT
from pyoco_server.app.run import RunServices
from pyoco_server.app.run_input import RunInput
from pyoco_server.core import Actor, ActorKind, Event, ExecutionState, fold, handle, initial_state
from pyoco_server.core.commands import CreateExecution

_EXTERNAL: Final = Actor(ActorKind.EXTERNAL, "queue")


class Known(NamedTuple):
    """A run as it stood when its log was read."""

    events: Sequence[Event]
    position: int
    state: ExecutionState


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

        None if the run had a log once and has none any more: there is nothing to go on with.
        """
        created = job.creation()
        if created is not None and job.log_position is not None and delivery.times_delivered == 1:
            return Known([created], job.log_position, fold([created]))
        if job.log_position is None:
            return await self.read_or_create(job.run_id, job.input())
        known = await self.read(job.run_id)
        return known if known.events else None

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
        _, said = await self._snapshot(run_id)
        age = self._services.clock.now().timestamp() - float(said.get("heartbeat_at") or 0.0)
        return said.get("driven_by") is not None and age < self._fresh_sec

    async def was_let_go(self, known: Known) -> bool:
        """Did the last worker that had the run put it aside or hand it back, rather than vanish?"""
        _, said = await self._snapshot(known.state.execution_id)
        return bool(known.state.nodes) and said.get(LET_GO_AT) == known.position

    async def _snapshot(self, run_id: str) -> tuple[int, dict[str, Any]]:
        stored = await self._snapshots.read(run_id)
        return (stored.position, msgspec.json.decode(stored.body)) if stored is not None else (0, {})

    def _creation(self, run_id: str, given: RunInput) -> Event:
        command = CreateExecution(execution_id=run_id, actor=_EXTERNAL, graph_id=given.flow_name, input=given.to_json())
        now, new_id = self._services.clock.now(), self._services.new_id
        [made] = handle(initial_state(run_id), command, now=now, new_id=new_id, graph_ids={given.flow_name})
        return made

"""Ends runs without their flows, from the log alone, and writes their last snapshots."""

from collections.abc import Callable

from pyoco_server.app.ports import EventLog, SnapshotReader, StoredSnapshot, head_of
from pyoco_server.app.recovery.dead_letter import RunFailure
from pyoco_server.app.runtime.execution import Decision, Execution
from pyoco_server.app.runtime.run import RunServices
from pyoco_server.app.snapshots.foreign import adopt_claim_at_end
from pyoco_server.app.snapshots.projection import WORKER, RunProjection
from pyoco_server.app.snapshots.status import RunStatus, run_status
from pyoco_server.app.snapshots.writer import SnapshotWriter
from pyoco_server.app.wheels.used import WHEELS
from pyoco_server.core import Actor, graph_from_log
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.worker.active_run import PacedSnapshot
from pyoco_server.worker.loaded_run import LoadedRun


class RunFinisher:
    """Ends runs that no worker drives."""

    def __init__(
        self, log: EventLog, snapshots: SnapshotReader, writer: SnapshotWriter, services: RunServices, actor: Actor
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._writer = writer
        self._services = services
        self._actor = actor

    async def fail(self, known: LoadedRun, failure: RunFailure) -> RunStatus:
        """End the run as failed, unless a cancel was first, and write its snapshot."""
        detail: JsonObject = {WORKER: self._actor.id}
        if self._services.wheels:
            detail[WHEELS] = dict(self._services.wheels)
        error = {"code": failure.code, "message": failure.message, "detail": detail}
        return await self._end(known, lambda execution: execution.failing(self._actor, failure.reason, error))

    async def end_cancel(self, known: LoadedRun) -> RunStatus:
        """End a requested cancel without waiting for nodes at work, whose workers are gone, and write the snapshot.

        What has ended already stays as it is.
        """
        return await self._end(known, lambda execution: execution.ended_now)

    async def bring_snapshot_up_to_date(self, known: LoadedRun) -> None:
        """Write the snapshot of an ended run if it is behind the log: the process that ended the run may have died."""
        stored = await self._snapshots.read(known.state.execution_id)
        if stored is None or stored.position < known.position or head_of(stored.body).is_foreign:
            projection = RunProjection(known.state.execution_id)
            projection.listen(known.events, known.state)
            await self._snapshot(projection, known.position).write()

    async def _end(self, known: LoadedRun, decision: Callable[[Execution], Decision]) -> RunStatus:
        services, run_id = self._services, known.state.execution_id
        execution = Execution(
            run_id, graph_from_log(known.events), log=self._log, clock=services.clock, new_id=services.new_id
        )
        projection = RunProjection(run_id)
        execution.subscribe(projection.listen)
        execution.begin_at(known.events, known.position)
        await execution.decide(decision(execution))
        snapshot = self._snapshot(projection, execution.position)

        async def adopt(stored: StoredSnapshot) -> None:
            await adopt_claim_at_end(execution, stored)
            snapshot.position = execution.position

        snapshot.on_foreign = adopt
        await snapshot.write()
        return run_status(execution.state)

    def _snapshot(self, projection: RunProjection, position: int) -> PacedSnapshot:
        snapshot = PacedSnapshot(projection, self._snapshots, self._writer, self._services.clock)
        snapshot.position = position
        return snapshot

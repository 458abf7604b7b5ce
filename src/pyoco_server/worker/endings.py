"""Ending runs, and writing how they ended, without their flows: the log is enough."""

from collections.abc import Callable

from pyoco_server.app.execution import Decision, Execution
from pyoco_server.app.ports import EventLog, Snapshots, head_of
from pyoco_server.app.projection import WORKER, RunProjection
from pyoco_server.app.run import RunServices
from pyoco_server.app.statuses import RunStatus, run_status
from pyoco_server.app.wheels_used import WHEELS
from pyoco_server.core import Actor, Commit, ExecutionState, fail, fold, graph_from_log
from pyoco_server.core.wire import JsonObject
from pyoco_server.worker.driven_run import SnapshotWriter
from pyoco_server.worker.known_runs import Known


class Endings:
    """Ends runs that nobody drives."""

    def __init__(
        self, log: EventLog, snapshots: Snapshots, services: RunServices, actor: Actor, *, max_snapshot_bytes: int
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._services = services
        self._actor = actor
        self._max_snapshot_bytes = max_snapshot_bytes

    async def fail(self, known: Known, code: str, reason: str, message: str) -> RunStatus:
        """End the run as failed, unless a cancel was first, and write its snapshot."""
        services = self._services

        def failing(state: ExecutionState) -> Commit:
            detail: JsonObject = {WORKER: self._actor.id}
            if services.wheels:
                detail[WHEELS] = dict(services.wheels)
            error = {"code": code, "message": message, "detail": detail}
            now, new_id = services.clock.now(), services.new_id
            events = fail(state, reason=reason, error=error, actor=self._actor, now=now, new_id=new_id)
            return Commit(events, fold(events, state) if events else state)

        return await self._end(known, lambda _: failing)

    async def end_cancel(self, known: Known) -> RunStatus:
        """Bring a cancel to its end without those at work, who are gone, and write the snapshot.

        What has ended already stays as it is.
        """
        return await self._end(known, lambda execution: execution.ended_now)

    async def bring_snapshot_up_to_date(self, known: Known) -> None:
        """Whoever ended the run may have died before they could write its snapshot."""
        stored = await self._snapshots.read(known.state.execution_id)
        if stored is None or stored.position < known.position or head_of(stored.body).is_foreign:
            projection = RunProjection(known.state.execution_id)
            projection.listen(known.events, known.state)
            await self._write_snapshot(projection, known.position)

    async def _end(self, known: Known, decision: Callable[[Execution], Decision]) -> RunStatus:
        services, run_id = self._services, known.state.execution_id
        execution = Execution(
            run_id, graph_from_log(known.events), log=self._log, clock=services.clock, new_id=services.new_id
        )
        projection = RunProjection(run_id)
        execution.subscribe(projection.listen)
        execution.begin_at(known.events, known.position)
        await execution.decide(decision(execution))
        await self._write_snapshot(projection, execution.position)
        return run_status(execution.state)

    async def _write_snapshot(self, projection: RunProjection, position: int) -> None:
        clock, max_bytes = self._services.clock, self._max_snapshot_bytes
        writer = SnapshotWriter(projection, self._snapshots, clock, max_bytes=max_bytes)
        writer.position = position
        await writer.write()

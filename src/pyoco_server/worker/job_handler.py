"""One job from its delivery to what becomes of it.

The log decides: a job only says that a run wants a worker, and the run may have ended, may be in other hands, or may
never have existed. What is done about each failure is the table of the specification, in one place.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.attempts import describe
from pyoco_server.app.driver import Rest
from pyoco_server.app.execution import Execution
from pyoco_server.app.jobs import InvalidJobError, Job, decode_job
from pyoco_server.app.ports import Delivery, EventLog, LogConflictError, Snapshots, UnavailableError
from pyoco_server.app.projection import RunProjection
from pyoco_server.app.run import Run, RunServices
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.statuses import RunStatus, run_status
from pyoco_server.core import (
    Actor,
    ActorKind,
    Commit,
    Event,
    ExecutionState,
    NodeStatus,
    fail,
    fold,
    graph_from_log,
    handle,
    initial_state,
)
from pyoco_server.core.commands import CreateExecution
from pyoco_server.logs import log_context, log_error
from pyoco_server.worker.dispositions import Ack, DeadReason, Disposition, Leave, Letter, Nak, Term
from pyoco_server.worker.driven_run import DrivenRun, SnapshotWriter
from pyoco_server.worker.flow_source import FlowNotFoundError, FlowSource, Resolved
from pyoco_server.worker.isolating import isolated
from pyoco_server.worker.options import NAK_DELAY_SEC, WorkerOptions
from pyoco_server.worker.presence import Presence

_log = logging.getLogger(__name__)

LATER_SEC: Final = 0.3
"""A job nothing can be done about now is looked at again this much later, and twice as much every time."""

LATE_SEC: Final = 1.0
"""A function is not called so long after its attempt began without a look whether somebody else has the run by now."""

_EXTERNAL: Final = Actor(ActorKind.EXTERNAL, "queue")


class _Known(NamedTuple):
    """What is known of a run when its job arrives."""

    events: Sequence[Event]
    position: int
    state: ExecutionState


class Handled(NamedTuple):
    """What is to become of a job; ``delivery`` is the newest one, if it came back meanwhile."""

    disposition: Disposition
    delivery: Delivery


class JobHandler:
    """Handles jobs, as many at a time as it is given."""

    def __init__(
        self,
        *,
        log: EventLog,
        snapshots: Snapshots,
        services: RunServices,
        flows: FlowSource,
        presence: Presence,
        options: WorkerOptions,
    ) -> None:
        self.running: dict[str, DrivenRun] = {}
        self._log = log
        self._snapshots = snapshots
        self._services = services
        self._flows = flows
        self._presence = presence
        self._options = options
        self._actor = Actor(ActorKind.SYSTEM, options.worker_id)

    async def handle(self, delivery: Delivery) -> Handled:
        """Do what the job asks for, and say what is to become of it."""
        try:
            job = decode_job(delivery.body)
            with log_context(run_id=job.run_id, flow_name=job.flow_name):
                return await self._handle(job, delivery)
        except InvalidJobError as error:
            return Handled(await self._refuse(error), delivery)
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="job_interrupted", exc=error)
            return Handled(Nak(NAK_DELAY_SEC), delivery)
        except Exception as error:  # noqa: BLE001 one job nobody can handle must not take the worker's others with it
            log_error(_log, "ERR-PYOCO-0007", action="job_crashed", exc=error)
            return Handled(Nak(NAK_DELAY_SEC), delivery)

    async def _handle(self, job: Job, delivery: Delivery) -> Handled:
        if job.run_id in self.running:
            return Handled(self._while_at_it(self.running[job.run_id], delivery), delivery)
        known = await self._known(job, delivery)
        if known is None:
            log_error(_log, "ERR-PYOCO-0005", action="log_gone", level=logging.WARNING)
            return Handled(Ack(), delivery)
        if known.state.is_terminal:
            await self._bring_snapshot_up_to_date(known)
            return Handled(Ack(), delivery)
        needless = await self._needless_wake_up(job, known, delivery) if job.wake else None
        if needless is not None:
            return Handled(needless, delivery)
        if delivery.is_last and delivery.times_delivered > 1:
            return Handled(await self._give_up(job, known, delivery), delivery)
        try:
            flow = await self._resolve(job, known)
        except asyncio.CancelledError:
            await asyncio.shield(self._return(delivery))
            raise
        except FlowNotFoundError as error:
            log_error(_log, "ERR-PYOCO-0006", action="flow_not_found", exc=error)
            failed = await self._failed(job, known, DeadReason.FLOW_NOT_FOUND, "FLOW_NOT_FOUND", str(error))
            return Handled(failed, delivery)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises when asked for a flow
            log_error(_log, "ERR-PYOCO-0007", action="flow_not_loaded", exc=error)
            said = describe(error)
            told = f"{said['code']}: {said['message']}"
            failed = await self._failed(job, known, DeadReason.EXECUTION_ERROR, "FLOW_NOT_LOADED", told)
            return Handled(failed, delivery)
        return await self._drive(job, known, flow, delivery)

    def _while_at_it(self, mine: DrivenRun, delivery: Delivery) -> Disposition:
        """A job for a run in our own hands: the same one come back is the one that counts from now on."""
        if delivery.body == mine.delivery.body:
            mine.delivery = delivery
            return Leave()
        return _when_let_go(delivery)

    # --- What is known of the run ------------------------------------------------------------------------------------

    async def _known(self, job: Job, delivery: Delivery) -> _Known | None:
        """A new run is known from its job; of any other, the log is read; one of a foreign producer is created.

        None if the run had a log once and has none any more: there is nothing to go on with.
        """
        created = job.creation()
        if created is not None and job.log_position is not None and delivery.times_delivered == 1:
            return _Known([created], job.log_position, fold([created]))
        if job.log_position is None:
            return await self._read_or_create(job.run_id, job.input())
        events, position = await self._log.read(job.run_id)
        return _Known(events, position, fold(events)) if events else None

    async def _read_or_create(self, run_id: str, given: RunInput) -> _Known:
        while True:
            events, position = await self._log.read(run_id)
            if events:
                return _Known(events, position, fold(events))
            made = self._creation(run_id, given, _EXTERNAL)
            try:
                position = await self._log.append(run_id, [made], after=0)
            except LogConflictError:  # somebody was quicker
                continue
            return _Known([made], position, fold([made]))

    def _creation(self, run_id: str, given: RunInput, actor: Actor) -> Event:
        command = CreateExecution(execution_id=run_id, actor=actor, graph_id=given.flow_name, input=given.to_json())
        now, new_id = self._services.clock.now(), self._services.new_id
        [made] = handle(initial_state(run_id), command, now=now, new_id=new_id, graph_ids={given.flow_name})
        return made

    async def _needless_wake_up(self, job: Job, known: _Known, delivery: Delivery) -> Disposition | None:
        """A run that is not put aside is gone on with by whoever drives it, unless they have just let go of it.

        That a node is at work proves nothing: whoever began it may have had this very job in hand, and died.
        """
        if _is_put_aside(known.state):
            return Ack()
        moved_on = job.log_position is not None and known.position > job.log_position
        if moved_on and not _is_something_due(known.state) and delivery.times_delivered == 1:
            return Ack()  # nobody can write behind what woke the run and not know it
        return _when_let_go(delivery) if await self._is_in_hands(known.state.execution_id) else None

    async def _is_in_hands(self, run_id: str) -> bool:
        stored = await self._snapshots.read(run_id)
        said = msgspec.json.decode(stored.body) if stored is not None else {}
        age = self._services.clock.now().timestamp() - float(said.get("heartbeat_at") or 0.0)
        return said.get("driven_by") is not None and age < 3 * self._options.run_heartbeat_interval_sec

    async def _resolve(self, job: Job, known: _Known) -> Resolved:
        workflow_yaml = RunInput.of(known.state).workflow_yaml
        if workflow_yaml is not None:
            model, functions = await self._flows.from_yaml(workflow_yaml, job.flow_name)
        else:
            model, functions = await self._flows.named(job.flow_name)
            model = msgspec.structs.replace(model, name=job.flow_name)
        if self._options.isolation is not None:
            model = isolated(model, functions, self._options.isolation)
        return model, functions

    # --- Driving -----------------------------------------------------------------------------------------------------

    async def _drive(self, job: Job, known: _Known, flow: Resolved, delivery: Delivery) -> Handled:
        if job.run_id in self.running:  # it came back while its flow was looked up
            return Handled(self._while_at_it(self.running[job.run_id], delivery), delivery)
        driven = self._take_in_hand(job.run_id, known, flow, delivery)
        self._presence.run_started(job.run_id)
        try:
            rest = await driven.drive(self._options.worker_id)
        except UnavailableError as error:
            if driven.run.state.is_terminal:
                log_error(_log, "ERR-PYOCO-0008", action="terminal_snapshot_failed", exc=error)
            raise
        except asyncio.CancelledError:
            await asyncio.shield(self._hand_back(driven))
            raise
        finally:
            del self.running[job.run_id]
            self._presence.run_finished(job.run_id, run_status(driven.run.state).value)
        return Handled(self._after(rest, job, driven), driven.delivery)

    async def _hand_back(self, driven: DrivenRun) -> None:
        """We must stop, the run need not: somebody else goes on with it at once."""
        _log.info("the run is handed back", extra={"action": "run_handed_back"})
        await driven.hand_back()
        await self._return(driven.delivery)

    async def _return(self, delivery: Delivery) -> None:
        try:
            await delivery.nak(0.0)
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="hand_back_failed", exc=error, level=logging.WARNING)

    def _take_in_hand(self, run_id: str, known: _Known, flow: Resolved, delivery: Delivery) -> DrivenRun:
        model, functions = flow
        run = Run(run_id, model, functions, self._services, late_sec=LATE_SEC)
        projection = RunProjection(run_id)
        writer = SnapshotWriter(
            projection, self._snapshots, self._services.clock, max_bytes=self._options.max_snapshot_bytes
        )
        driven = DrivenRun(run, projection, writer, delivery)
        run.begin_at(known.events, known.position)
        self.running[run_id] = driven
        return driven

    def _after(self, rest: Rest, job: Job, driven: DrivenRun) -> Disposition:
        if rest is Rest.TAKEN_OVER:
            _log.warning("somebody else goes on with the run", extra={"action": "run_taken_over"})
            return Leave()
        state = driven.run.state
        if rest is Rest.PARKED and not _waits_for_people(state):
            _log.warning("nothing can be done about the run, and nobody is waited for", extra={"action": "run_stuck"})
            return _later(driven.delivery)
        if run_status(state) is not RunStatus.FAILED:
            return Ack()
        error = driven.projection.error
        log_error(_log, "ERR-PYOCO-0007", action="run_failed", reason=error)
        if not self._options.publish_execution_error:
            return Ack()
        return Ack(self._letter(job, DeadReason.EXECUTION_ERROR, error))

    # --- Failing -----------------------------------------------------------------------------------------------------

    async def _refuse(self, error: InvalidJobError) -> Disposition:
        """Not a job at all; if it names a run, that run fails, so that nobody waits for it."""
        log_error(_log, "ERR-PYOCO-0012", action="invalid_job", exc=error, run_id=error.run_id)
        flow_name = error.fields.get("flow_name")
        name = flow_name if isinstance(flow_name, str) else None
        letter = Letter(reason=DeadReason.INVALID_JOB, error=str(error), run_id=error.run_id, flow_name=name)
        if error.run_id is not None:
            try:
                known = await self._read_or_create(error.run_id, RunInput(flow_name=name or "unknown"))
                await self._fail(known, "INVALID_JOB", "invalid job", str(error))
            except UnavailableError as unavailable:
                log_error(_log, "ERR-PYOCO-0003", action="job_interrupted", exc=unavailable)
                return Nak(NAK_DELAY_SEC)
        return Term(letter)

    async def _failed(self, job: Job, known: _Known, reason: DeadReason, code: str, error: str) -> Disposition:
        status = await self._fail(known, code, reason.value, error)
        return Ack(self._letter(job, reason, error) if status is RunStatus.FAILED else None)

    async def _give_up(self, job: Job, known: _Known, delivery: Delivery) -> Disposition:
        """The last time the job is delivered: the run ends here rather than hang for ever."""
        at_work = sorted(node.node_id for node in known.state.live_nodes() if node.is_at_work)
        during = f" during {', '.join(at_work[:5])}" if at_work else ""
        error = f"delivered {delivery.times_delivered} times without an end: the worker died or was cut off{during}"
        log_error(_log, "ERR-PYOCO-0007", action="deliveries_used_up", reason=error)
        return await self._failed(job, known, DeadReason.EXECUTION_ERROR, "DELIVERIES_USED_UP", error)

    async def _fail(self, known: _Known, code: str, reason: str, message: str) -> RunStatus:
        """End the run as failed, unless a cancel was first, and write its snapshot."""
        services, run_id = self._services, known.state.execution_id
        execution = Execution(
            run_id, graph_from_log(known.events), log=self._log, clock=services.clock, new_id=services.new_id
        )
        projection = RunProjection(run_id)
        execution.subscribe(projection.listen)
        execution.begin_at(known.events, known.position)

        def failing(state: ExecutionState) -> Commit:
            error = {"code": code, "message": message}
            now, new_id = services.clock.now(), services.new_id
            events = fail(state, reason=reason, error=error, actor=self._actor, now=now, new_id=new_id)
            return Commit(events, fold(events, state) if events else state)

        await execution.decide(failing)
        await self._write_snapshot(projection, execution.position)
        return run_status(execution.state)

    async def _bring_snapshot_up_to_date(self, known: _Known) -> None:
        """Whoever ended the run may have died before they could write its snapshot."""
        stored = await self._snapshots.read(known.state.execution_id)
        if stored is None or stored.position < known.position:
            projection = RunProjection(known.state.execution_id)
            projection.listen(known.events, known.state)
            await self._write_snapshot(projection, known.position)

    async def _write_snapshot(self, projection: RunProjection, position: int) -> None:
        clock, max_bytes = self._services.clock, self._options.max_snapshot_bytes
        writer = SnapshotWriter(projection, self._snapshots, clock, max_bytes=max_bytes)
        writer.position = position
        await writer.write()

    @staticmethod
    def _letter(job: Job, reason: DeadReason, error: str | None) -> Letter:
        return Letter(reason=reason, error=error, run_id=job.run_id, flow_name=job.flow_name, tags=job.tags)


def _when_let_go(delivery: Delivery) -> Disposition:
    """Look at a job again when whoever drives its run may have let go; they have a job of their own for it."""
    return Ack() if delivery.is_last else _later(delivery)


def _later(delivery: Delivery) -> Disposition:
    return Nak(LATER_SEC * 2 ** min(delivery.times_delivered - 1, 6))


def _is_put_aside(state: ExecutionState) -> bool:
    """Is there nothing to do but to wait for people?"""
    live = state.live_nodes()
    return bool(live) and all(node.status is NodeStatus.WAITING for node in live)


def _waits_for_people(state: ExecutionState) -> bool:
    """Is it right that nobody drives the run?

    Not if somebody resumed a node in the moment it was put aside, nor if the flow no longer has the step that is next.
    """
    waits = any(node.status is NodeStatus.WAITING for node in state.live_nodes())
    return waits and not _is_something_due(state)


def _is_something_due(state: ExecutionState) -> bool:
    """Is there a node nobody has begun, or one that was resumed and not gone on with?"""
    return any(
        node.status is NodeStatus.READY or (node.is_at_work and node.resumption is not None)
        for node in state.live_nodes()
    )

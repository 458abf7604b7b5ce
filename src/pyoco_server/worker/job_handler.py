"""Handles one job, from its delivery to its settlement.

The log decides: a job only says that a run wants a worker. The run may have ended, may have another owner, or may never
have existed. What follows from each failure is the table of the specification, in one place.

A worker that was killed during a task leaves a job that the queue delivers again, and a node at work in the log. The
worker that gets the job reads the log (``loaded_run.py``). From the third delivery on, or after two crashes of a task
at work, it first waits until no other run is in its process (``_with_care``). Then it drives the run
(``active_run.py``, ``app/runtime/run.py``): the driver starts the task as a new attempt, and the log counts the death
(``app/runtime/driver.py``, ``crashes.py``). The last delivery is judged, not executed: the run fails, or its job is
quarantined. If that worker dies too, ``app/recovery/exhausted_jobs.py`` does the same.
"""

import asyncio
import logging
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.app.ports import Delivery, EventLog, SnapshotReader, Snapshots, TooLargeError, UnavailableError
from pyoco_server.app.recovery.dead_letter import (
    DELIVERIES_USED_UP,
    DeadLetter,
    DeadReason,
    RunFailure,
    reject_invalid_job,
    used_up,
)
from pyoco_server.app.recovery.quarantine_history import lost_workers
from pyoco_server.app.runs.job import InvalidJobError, Job, decode_job
from pyoco_server.app.runtime.attempt import describe
from pyoco_server.app.runtime.crashes import is_under_suspicion
from pyoco_server.app.runtime.driver import DriveOutcome
from pyoco_server.app.runtime.run import Run, RunServices
from pyoco_server.app.runtime.run_input import PLATFORM, RunInput
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.app.snapshots.status import RunStatus, cancel_mode, is_parked, run_status
from pyoco_server.app.snapshots.writer import SnapshotWriter
from pyoco_server.core import Actor, ActorKind, CancelMode, ExecutionState, NodeStatus
from pyoco_server.logs import log_context, log_error
from pyoco_server.values.errors import text_of
from pyoco_server.worker.active_run import LOOK_SEC, ActiveRun, PacedSnapshot
from pyoco_server.worker.flow_source import FlowNotFoundError, FlowSource, NoFlow, Resolved
from pyoco_server.worker.hand_over import candidates
from pyoco_server.worker.loaded_run import LoadedRun, RunLookup
from pyoco_server.worker.options import NAK_DELAY_SEC, WorkerOptions
from pyoco_server.worker.quarantined_job import QuarantinedDelivery, history_for
from pyoco_server.worker.registration import WorkerRegistration
from pyoco_server.worker.run_finisher import RunFinisher
from pyoco_server.worker.settlement import Ack, HandOver, Nak, NoAction, Quarantine, Settlement, Term
from pyoco_server.worker.slot_gate import SlotGate

_log = logging.getLogger(__name__)

LATER_SEC: Final = 0.3
"""The delay of a job that nothing can be done about now; it doubles with each delivery."""

LATE_SEC: Final = 0.2
"""So long after its attempt started, a function is called only after the log shows that no other worker has the run.

Shorter than the pause before any client reconnects: after a crash of the server, the job may go to another worker as
soon as clients are back.
"""

SUSPECT_FROM: Final = 3
"""A single death may have any cause; from this delivery on, after two, the job is run alone."""

NO_PLACE_SEC: Final = 1.0
"""The delay of a job that must be run alone and finds the worker claimed."""


class Handled(NamedTuple):
    """How to settle a job; ``delivery`` is the newest one, if the job was delivered again meanwhile."""

    settlement: Settlement
    delivery: Delivery


_NO_FLOW: Final[NoFlow] = (None, {})


class JobHandler:
    """Handles jobs, as many at a time as it is given."""

    def __init__(
        self,
        *,
        log: EventLog,
        snapshots: Snapshots,
        services: RunServices,
        flows: FlowSource,
        registration: WorkerRegistration,
        options: WorkerOptions,
    ) -> None:
        self.running: dict[str, ActiveRun] = {}
        self.gate = SlotGate()
        self._log = log
        self._snapshots: SnapshotReader = snapshots
        self._writer = writer = SnapshotWriter(snapshots, max_bytes=options.max_snapshot_bytes)
        self._services = services
        self._flows = flows
        self._registration = registration
        self._options = options
        self._lookup = RunLookup(log, snapshots, writer, services, fresh_sec=3 * options.run_heartbeat_interval_sec)
        self._finisher = RunFinisher(log, snapshots, writer, services, Actor(ActorKind.SYSTEM, options.worker_id))

    async def handle(self, delivery: Delivery) -> Handled:
        """Handle the job, and return how to settle it; an error becomes a settlement, too."""
        try:
            return await self._handle_or_reject(delivery)
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="job_interrupted", exc=error)
            return Handled(Nak(NAK_DELAY_SEC), delivery)
        except Exception as error:  # noqa: BLE001 a job that cannot be handled must not stop the worker's other jobs
            log_error(_log, "ERR-PYOCO-0007", action="job_crashed", exc=error)
            return Handled(Nak(NAK_DELAY_SEC), delivery)

    async def _handle_or_reject(self, delivery: Delivery) -> Handled:
        try:
            job = decode_job(delivery.body)
            with log_context(run_id=job.run_id, flow_name=job.flow_name):
                return await self._handle(job, delivery)
        except InvalidJobError as error:
            return Handled(Term(await reject_invalid_job(error, self._fail_by_id)), delivery)

    async def _handle(self, job: Job, delivery: Delivery) -> Handled:
        if job.run_id in self.running:
            return Handled(self._redelivered(self.running[job.run_id], delivery), delivery)
        known = await self._lookup.of(job, delivery)
        if known is None:
            log_error(_log, "ERR-PYOCO-0005", action="log_gone", level=logging.WARNING)
            return Handled(Ack(), delivery)
        if known.state.is_terminal:
            await self._finisher.bring_snapshot_up_to_date(known)
            return Handled(Ack(self._letter_of_failed(job, known, delivery)), delivery)
        if known.is_executed_elsewhere:
            return Handled(_retry_when_released(delivery), delivery)
        if known.state.is_cancel_requested and cancel_mode(known.state) is CancelMode.IMMEDIATE:
            await self._finisher.end_cancel(known)  # no task of ours is at work: nothing has to stop first
            return Handled(Ack(), delivery)
        needless = await self._needless_wake_up(job, known, delivery) if job.wake else None
        if needless is not None:
            return Handled(needless, delivery)
        if (delivery.is_last and delivery.times_delivered > 1) or await self._look_whether_suspect(
            job, known, delivery
        ):
            return await self._with_care(job, known, delivery)
        return await self._begin(job, known, delivery)

    async def _begin(self, job: Job, known: LoadedRun, delivery: Delivery) -> Handled:
        has_declined = self._registration.instance_id in job.declined_by and not known.state.is_cancel_requested
        if has_declined and await self._look_whether_others_may(job, known.state, None):
            return Handled(self._handed_over(), delivery)
        try:
            flow = await self._resolve(job, known)
        except asyncio.CancelledError:
            await asyncio.shield(self._return(delivery))
            raise
        except FlowNotFoundError as error:
            log_error(_log, error.err_id or "ERR-PYOCO-0006", action="flow_not_found", exc=error, one_line=True)
            failure = (DeadReason.FLOW_NOT_FOUND, error.code, text_of(error))
            return await self._begin_without_flow(job, known, delivery, failure)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises when asked for a flow
            log_error(_log, "ERR-PYOCO-0007", action="flow_not_loaded", exc=error)
            said = describe(error)
            failure = (DeadReason.EXECUTION_ERROR, "FLOW_NOT_LOADED", f"{said['code']}: {said['message']}")
            return await self._begin_without_flow(job, known, delivery, failure)
        return await self._drive(job, known, flow, delivery)

    async def _begin_without_flow(
        self, job: Job, known: LoadedRun, delivery: Delivery, failure: tuple[DeadReason, str, str]
    ) -> Handled:
        """Hand over a run that has not started, or fail it if no live worker can have its flow.

        A run that has started is driven on the graph in its log as far as that needs no code, and then held.
        """
        if known.state.nodes:
            return await self._drive(job, known, _NO_FLOW, delivery)
        if not known.state.is_cancel_requested and await self._look_whether_others_may(job, known.state, None):
            return Handled(self._handed_over(), delivery)
        return Handled(await self._failed(job, known, *failure), delivery)

    async def _look_whether_others_may(self, job: Job, state: ExecutionState, needs: tuple[str, ...] | None) -> bool:
        """May another live worker of the tag have what the run needs, and has not declined the job?"""
        is_in_flow_yaml = job.workflow_yaml is not None or RunInput.of(state, None).workflow_yaml is not None
        return bool(candidates(await self._registration.others(), job, needs, is_in_flow_yaml=is_in_flow_yaml))

    def _handed_over(self) -> Settlement:
        _log.info("another worker may have the code of this run", extra={"action": "run_handed_over"})
        return HandOver(self._registration.instance_id)

    def _redelivered(self, mine: ActiveRun, delivery: Delivery) -> Settlement:
        """Settle a job of a run that this worker drives; of the same job, the newest delivery counts from now on."""
        if delivery.body == mine.delivery.body:
            mine.delivery = delivery
            return NoAction()
        return _retry_when_released(delivery)

    # --- Jobs that may take the worker with them ---------------------------------------------------------------------

    async def _look_whether_suspect(self, job: Job, known: LoadedRun, delivery: Delivery) -> bool:
        """May the run have killed the workers that had it? Not if the last one released it."""
        if isinstance(delivery, QuarantinedDelivery):
            return True
        is_known_to_crash = is_under_suspicion(
            known.events, known.state, self._services.worker_mark, crashes=SUSPECT_FROM - 1
        )
        if delivery.times_delivered < SUSPECT_FROM and not job.rescue and not is_known_to_crash:
            return False
        return not await self._lookup.look_whether_released(known)

    async def _with_care(self, job: Job, known: LoadedRun, delivery: Delivery) -> Handled:
        """Begin the run alone in this process, if it is to be begun at all; or end it if it is to blame."""
        if known.state.is_cancel_requested:
            await self._finisher.end_cancel(known)
            return Handled(Ack(), delivery)
        if await self._look_whether_to_blame(known, delivery):
            return Handled(await self._give_up(job, known, delivery), delivery)
        if delivery.is_last:
            _log.warning(
                "the run is quarantined: from now on it is only run alone in its worker",
                extra={"action": "run_set_apart"},
            )
            return Handled(Quarantine(history_for(delivery, known.events)), delivery)
        with self.gate.exclusive(delivery) as is_mine:
            newest = await self._until_alone(job.run_id, known, delivery) if is_mine else None
            if newest is None:
                is_lone = isinstance(delivery, QuarantinedDelivery)
                return Handled(
                    Quarantine(history_for(delivery, known.events)) if is_lone else Nak(NO_PLACE_SEC), delivery
                )
            if newest.state.is_cancel_requested or newest.state.is_terminal:
                await self._finisher.end_cancel(newest)
                return Handled(Ack(), delivery)
            if newest.position > known.position and await self._lookup.look_whether_owned(job.run_id):
                return Handled(Ack(), delivery)  # another worker was first, with a job of its own
            return await self._begin(job, newest, delivery)

    async def _look_whether_to_blame(self, known: LoadedRun, delivery: Delivery) -> bool:
        """Return whether the run killed a worker with each of its earlier deliveries; then it is not started again.

        So it is if this is the last delivery, and as many workers started the run, and did not hand it back, as there
        were deliveries before. The later of those executed alone, so no other run can be the cause.
        """
        me = self._services.worker_mark
        if isinstance(delivery, QuarantinedDelivery):
            return delivery.is_to_blame(known.events, me)
        if not delivery.is_last or len(lost_workers(known.events, me)) < delivery.times_delivered - 1:
            return False
        return not await self._lookup.look_whether_released(known)

    async def _until_alone(self, run_id: str, known: LoadedRun, delivery: Delivery) -> LoadedRun | None:
        """Wait until no other slot is inside, or the run needs no worker any more; None if the worker stops first."""
        if self.gate.is_alone:
            return known
        with self.gate.changes() as changed:
            unsubscribe = await self._log.subscribe(run_id, lambda _: changed.set())
            try:
                while True:
                    changed.clear()
                    newest = await self._lookup.read(run_id)
                    if self.gate.is_closed:
                        return None
                    if newest.state.is_terminal or newest.state.is_cancel_requested or self.gate.is_alone:
                        return newest
                    await changed.wait()
            except asyncio.CancelledError:
                await asyncio.shield(self._return(delivery))
                raise
            finally:
                unsubscribe()

    # --- What is known of the run ------------------------------------------------------------------------------------

    async def _needless_wake_up(self, job: Job, known: LoadedRun, delivery: Delivery) -> Settlement | None:
        """Settle a wake-up that this worker need not act on: the run is still parked, or another worker owns it.

        None if this worker must drive the run. A node at work proves no owner: the worker that started it may have had
        this very job, and died.
        """
        if is_parked(known.state):
            return Ack()
        moved_on = job.log_position is not None and known.position > job.log_position
        if moved_on and not job.declined_by and not _is_node_due(known.state) and delivery.times_delivered == 1:
            # The worker that wrote behind the wake-up's position knows of it. The job is not acknowledged: this
            # delivery may be old, and that worker may have got the job by a newer one.
            return _retry_when_released(delivery)
        return (
            _retry_when_released(delivery) if await self._lookup.look_whether_owned(known.state.execution_id) else None
        )

    async def _resolve(self, job: Job, known: LoadedRun) -> Resolved:
        workflow_yaml = RunInput.of(known.state, known.events[0].payload.extra.get(PLATFORM)).workflow_yaml
        is_started = bool(known.state.nodes)
        if workflow_yaml is not None:
            model, functions = await self._flows.from_yaml(workflow_yaml, job.flow_name, is_started=is_started)
        else:
            model, functions = await self._flows.named(job.flow_name, is_started=is_started)
            model = msgspec.structs.replace(model, name=job.flow_name)
        self._services.plans.of(model)  # refuses a flow that cannot run, like one that cannot be loaded
        return model, functions

    # --- Driving -----------------------------------------------------------------------------------------------------

    async def _drive(self, job: Job, known: LoadedRun, flow: Resolved | NoFlow, delivery: Delivery) -> Handled:
        if job.run_id in self.running:  # it was delivered again while its flow was resolved
            return Handled(self._redelivered(self.running[job.run_id], delivery), delivery)
        driven = self._activate(job, known, flow, delivery)
        self._registration.run_started(job.run_id)
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
            self._registration.run_finished(job.run_id, run_status(driven.run.state).value)
        if rest is DriveOutcome.HELD:
            return Handled(await self._hold_or_hand_over(job, driven), driven.delivery)
        return Handled(self._after(rest, job, driven), driven.delivery)

    async def _hold_or_hand_over(self, job: Job, driven: ActiveRun) -> Settlement:
        """Give a run whose next tasks are not here to a worker that may have them; if there is none, hold it."""
        needs = driven.run.needs
        if await self._look_whether_others_may(job, driven.run.state, needs):
            return self._handed_over()
        _log.warning(
            "the run is held: no worker of tag '%s' has %s", job.tag, ", ".join(needs), extra={"action": "run_held"}
        )
        await driven.hold(
            {
                "needs": list(needs),
                "since": self._services.clock.now().timestamp(),
                "seen_by": self._options.worker_id,
                "declined_by": [*job.declined_by, self._registration.instance_id],
            }
        )
        return Ack()

    async def _hand_back(self, driven: ActiveRun) -> None:
        """Release a run because this worker stops, so that another worker resumes it at once."""
        _log.info("the run is handed back", extra={"action": "run_handed_back"})
        await driven.hand_back()
        if isinstance(driven.delivery, QuarantinedDelivery):
            driven.delivery.forgive()
        await self._return(driven.delivery)

    async def _return(self, delivery: Delivery) -> None:
        try:
            await delivery.nak(0.0)
        except (UnavailableError, TooLargeError) as error:
            log_error(_log, "ERR-PYOCO-0003", action="hand_back_failed", exc=error, level=logging.WARNING)

    def _activate(self, job: Job, known: LoadedRun, flow: Resolved | NoFlow, delivery: Delivery) -> ActiveRun:
        run_id, (model, functions) = job.run_id, flow
        is_new = len(known.events) == 1 and delivery.times_delivered == 1 and not job.declined_by
        run = Run(run_id, model, functions, self._services, late_sec=LATE_SEC, is_sole_owner=is_new)
        projection = RunProjection(run_id)
        clock, revision = self._services.clock, known.revision
        snapshot = PacedSnapshot(projection, self._snapshots, self._writer, clock, revision=revision)
        # A foreign job may come from a platform without a gateway of ours, which would see cancels of other gateways.
        look_sec = LOOK_SEC if job.log_position is not None else 0.0
        driven = ActiveRun(run, projection, snapshot, delivery, look_sec=look_sec)
        run.begin_at(known.events, known.position)
        self.running[run_id] = driven
        return driven

    def _after(self, rest: DriveOutcome, job: Job, driven: ActiveRun) -> Settlement:
        if rest is DriveOutcome.TAKEN_OVER:
            # Not acknowledged: a server that crashed restarts its delivery counts, and this may be the only job.
            _log.warning("another worker drives the run now", extra={"action": "run_taken_over"})
            return NoAction()
        state = driven.run.state
        if rest is DriveOutcome.PARKED and not _waits_for_people(state):
            _log.warning(
                "the run neither progresses nor waits for input; its job is delayed", extra={"action": "run_stuck"}
            )
            return _later(driven.delivery)
        if run_status(state) is not RunStatus.FAILED:
            return Ack()
        error = driven.projection.error
        log_error(_log, "ERR-PYOCO-0007", action="run_failed", reason=error, **_raised(state))
        if not self._options.publish_execution_error:
            return Ack()
        return Ack(self._letter(job, DeadReason.EXECUTION_ERROR, error))

    # --- Failing -----------------------------------------------------------------------------------------------------

    async def _fail_by_id(self, run_id: str, given: RunInput, failure: RunFailure) -> None:
        await self._finisher.fail(await self._lookup.read_or_create(run_id, given), failure)

    async def _failed(self, job: Job, known: LoadedRun, reason: DeadReason, code: str, error: str) -> Settlement:
        status = await self._finisher.fail(known, RunFailure(code, reason.value, error))
        return Ack(self._letter(job, reason, error) if status is RunStatus.FAILED else None)

    async def _give_up(self, job: Job, known: LoadedRun, delivery: Delivery) -> Settlement:
        """End a run that is to blame for the deaths of its workers, or whose deliveries are exhausted."""
        error = used_up(known.state, delivery.times_delivered)
        log_error(_log, "ERR-PYOCO-0007", action="deliveries_used_up", reason=error)
        return await self._failed(job, known, DeadReason.EXECUTION_ERROR, DELIVERIES_USED_UP, error)

    def _letter_of_failed(self, job: Job, known: LoadedRun, delivery: Delivery) -> DeadLetter | None:
        """Return the dead letter of a failed run again: the worker that failed it may have died before publishing it.

        Two are better than none. None for a first delivery, and for a wake-up, which has other reasons to come again.
        """
        if delivery.times_delivered == 1 or job.wake or run_status(known.state) is not RunStatus.FAILED:
            return None
        failure = known.state.failure or {}
        if failure.get("reason") == DeadReason.FLOW_NOT_FOUND:
            return self._letter(job, DeadReason.FLOW_NOT_FOUND, (failure.get("error") or {}).get("message"))
        if not self._options.publish_execution_error:
            return None
        projection = RunProjection(job.run_id)
        projection.listen(known.events, known.state)
        return self._letter(job, DeadReason.EXECUTION_ERROR, projection.error)

    @staticmethod
    def _letter(job: Job, reason: DeadReason, error: str | None) -> DeadLetter:
        return DeadLetter(reason=reason, error=error, run_id=job.run_id, flow_name=job.flow_name, tags=job.tags)


def _raised(state: ExecutionState) -> dict[str, Any]:
    """The exception that a run failed with, as fields of a log line."""
    error = (state.failure or {}).get("error") or {}
    detail = error.get("detail")
    fields = {
        "exception_class": error.get("code"),
        "exception_message": error.get("message"),
        "traceback": detail.get("traceback") if isinstance(detail, dict) else None,
    }
    return {name: text for name, text in fields.items() if isinstance(text, str)}


def _retry_when_released(delivery: Delivery) -> Settlement:
    """Delay a job until the owner of its run may have released it; the owner has a job of its own."""
    return Ack() if delivery.is_last else _later(delivery)


def _later(delivery: Delivery) -> Settlement:
    return Nak(LATER_SEC * 2 ** min(delivery.times_delivered - 1, 6))


def _waits_for_people(state: ExecutionState) -> bool:
    """Is it right that no worker drives the run? Not if a node was resumed at the moment the run was parked."""
    waits = any(node.status is NodeStatus.WAITING for node in state.live_nodes())
    return waits and not _is_node_due(state)


def _is_node_due(state: ExecutionState) -> bool:
    """Is there a node that no worker has started, or one that was resumed and has not ended?"""
    return any(
        node.status is NodeStatus.READY or (node.is_at_work and node.resumption is not None)
        for node in state.live_nodes()
    )

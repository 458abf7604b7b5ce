"""One job from its delivery to what becomes of it.

The log decides: a job only says that a run wants a worker, and the run may have ended, may be in other hands, or may
never have existed. What is done about each failure is the table of the specification, in one place.
"""

import asyncio
import logging
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.app.attempts import describe
from pyoco_server.app.burying import DELIVERIES_USED_UP, DeadReason, used_up
from pyoco_server.app.crashes import is_under_suspicion
from pyoco_server.app.driver import Rest
from pyoco_server.app.jobs import InvalidJobError, Job, decode_job
from pyoco_server.app.lone_marks import lost_workers
from pyoco_server.app.ports import Delivery, EventLog, Snapshots, TooLargeError, UnavailableError
from pyoco_server.app.projection import RunProjection
from pyoco_server.app.run import Run, RunServices
from pyoco_server.app.run_input import PLATFORM, RunInput
from pyoco_server.app.statuses import RunStatus, cancel_mode, run_status
from pyoco_server.core import Actor, ActorKind, CancelMode, ExecutionState, NodeStatus
from pyoco_server.logs import log_context, log_error
from pyoco_server.worker.dispositions import Ack, Disposition, HandOver, Leave, Letter, Nak, SetApart, Term
from pyoco_server.worker.driven_run import LOOK_SEC, DrivenRun, SnapshotWriter
from pyoco_server.worker.endings import Endings
from pyoco_server.worker.flow_source import FlowNotFoundError, FlowSource, NoFlow, Resolved
from pyoco_server.worker.handing_over import candidates
from pyoco_server.worker.known_runs import Known, KnownRuns
from pyoco_server.worker.lone_jobs import LoneDelivery, mark_for
from pyoco_server.worker.options import NAK_DELAY_SEC, WorkerOptions
from pyoco_server.worker.presence import Presence
from pyoco_server.worker.quarantine import Quarantine

_log = logging.getLogger(__name__)

LATER_SEC: Final = 0.3
"""A job nothing can be done about now is looked at again this much later, and twice as much every time."""

LATE_SEC: Final = 0.2
"""A function is not called so long after its attempt began without a look whether somebody else has the run by now.

Less than the pause before anybody is connected again: a server that crashed may deliver a job anew when it is back.
"""

SUSPECT_FROM: Final = 3
"""One death can be anybody's fault; a job that comes back from a second one is run alone."""

NO_PLACE_SEC: Final = 1.0
"""Until somebody who found another alone in the worker tries again."""


class Handled(NamedTuple):
    """What is to become of a job; ``delivery`` is the newest one, if it came back meanwhile."""

    disposition: Disposition
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
        presence: Presence,
        options: WorkerOptions,
    ) -> None:
        self.running: dict[str, DrivenRun] = {}
        self.quarantine = Quarantine()
        self._log = log
        self._snapshots = snapshots
        self._services = services
        self._flows = flows
        self._presence = presence
        self._options = options
        self._known = KnownRuns(log, snapshots, services, fresh_sec=3 * options.run_heartbeat_interval_sec)
        self._endings = Endings(
            log,
            snapshots,
            services,
            Actor(ActorKind.SYSTEM, options.worker_id),
            max_snapshot_bytes=options.max_snapshot_bytes,
        )

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
        known = await self._known.of(job, delivery)
        if known is None:
            log_error(_log, "ERR-PYOCO-0005", action="log_gone", level=logging.WARNING)
            return Handled(Ack(), delivery)
        if known.state.is_terminal:
            await self._endings.bring_snapshot_up_to_date(known)
            return Handled(Ack(self._perhaps_unwritten(job, known, delivery)), delivery)
        if known.is_executed_elsewhere:
            return Handled(_when_let_go(delivery), delivery)
        if known.state.is_cancel_requested and cancel_mode(known.state) is CancelMode.IMMEDIATE:
            await self._endings.end_cancel(known)  # no task of ours is at work: nothing has to stop first
            return Handled(Ack(), delivery)
        needless = await self._needless_wake_up(job, known, delivery) if job.wake else None
        if needless is not None:
            return Handled(needless, delivery)
        if (delivery.is_last and delivery.times_delivered > 1) or await self._is_suspect(job, known, delivery):
            return await self._with_care(job, known, delivery)
        return await self._begin(job, known, delivery)

    async def _begin(self, job: Job, known: Known, delivery: Delivery) -> Handled:
        try:
            flow = await self._resolve(job, known)
        except asyncio.CancelledError:
            await asyncio.shield(self._return(delivery))
            raise
        except FlowNotFoundError as error:
            log_error(_log, "ERR-PYOCO-0006", action="flow_not_found", exc=error, one_line=True)
            failure = (DeadReason.FLOW_NOT_FOUND, "FLOW_NOT_FOUND", str(error))
            return await self._begin_without_flow(job, known, delivery, failure)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises when asked for a flow
            log_error(_log, "ERR-PYOCO-0007", action="flow_not_loaded", exc=error)
            said = describe(error)
            failure = (DeadReason.EXECUTION_ERROR, "FLOW_NOT_LOADED", f"{said['code']}: {said['message']}")
            return await self._begin_without_flow(job, known, delivery, failure)
        return await self._drive(job, known, flow, delivery)

    async def _begin_without_flow(
        self, job: Job, known: Known, delivery: Delivery, failure: tuple[DeadReason, str, str]
    ) -> Handled:
        """Hand over a run that has not started, or fail it if no live worker can have its flow.

        One that has started is driven on the graph in its log as far as that needs no code, and then held.
        """
        if known.state.nodes:
            return await self._drive(job, known, _NO_FLOW, delivery)
        if not known.state.is_cancel_requested and await self._may_others(job, known.state, None):
            return Handled(self._handed_over(), delivery)
        return Handled(await self._failed(job, known, *failure), delivery)

    async def _may_others(self, job: Job, state: ExecutionState, needs: tuple[str, ...] | None) -> bool:
        """May another live worker of the tag have what the run needs, and has not declined the job?"""
        is_in_flow_yaml = job.workflow_yaml is not None or RunInput.of(state, None).workflow_yaml is not None
        return bool(candidates(await self._presence.others(), job, needs, is_in_flow_yaml=is_in_flow_yaml))

    def _handed_over(self) -> Disposition:
        _log.info("another worker may have the code of this run", extra={"action": "run_handed_over"})
        return HandOver(self._presence.instance_id)

    def _while_at_it(self, mine: DrivenRun, delivery: Delivery) -> Disposition:
        """A job for a run in our own hands: the same one come back is the one that counts from now on."""
        if delivery.body == mine.delivery.body:
            mine.delivery = delivery
            return Leave()
        return _when_let_go(delivery)

    # --- Jobs that may take the worker with them ---------------------------------------------------------------------

    async def _is_suspect(self, job: Job, known: Known, delivery: Delivery) -> bool:
        """May the run be what ended the workers that had it? Not if the last one let go of it in good order."""
        if isinstance(delivery, LoneDelivery):
            return True
        is_known_to_crash = is_under_suspicion(
            known.events, known.state, self._services.worker_id, crashes=SUSPECT_FROM - 1
        )
        if delivery.times_delivered < SUSPECT_FROM and not job.rescue and not is_known_to_crash:
            return False
        return not await self._known.was_let_go(known)

    async def _with_care(self, job: Job, known: Known, delivery: Delivery) -> Handled:
        """Begin the run alone, if it is to be begun at all."""
        if known.state.is_cancel_requested:
            await self._endings.end_cancel(known)
            return Handled(Ack(), delivery)
        if await self._is_to_blame(known, delivery):
            return Handled(await self._give_up(job, known, delivery), delivery)
        if delivery.is_last:
            _log.warning("the run is tried alone from now on", extra={"action": "run_set_apart"})
            return Handled(SetApart(mark_for(delivery, known.events)), delivery)
        with self.quarantine.claimed(delivery) as is_mine:
            newest = await self._until_alone(job.run_id, known, delivery) if is_mine else None
            if newest is None:
                is_lone = isinstance(delivery, LoneDelivery)
                return Handled(SetApart(mark_for(delivery, known.events)) if is_lone else Nak(NO_PLACE_SEC), delivery)
            if newest.state.is_cancel_requested or newest.state.is_terminal:
                await self._endings.end_cancel(newest)
                return Handled(Ack(), delivery)
            if newest.position > known.position and await self._known.is_in_hands(job.run_id):
                return Handled(Ack(), delivery)  # somebody was quicker, with a job of their own
            return await self._begin(job, newest, delivery)

    async def _is_to_blame(self, known: Known, delivery: Delivery) -> bool:
        """Has the run had its tries, and did they all end with their worker?

        Of the deliveries before the last, the later ones were alone; if each was begun, the run is what they died of.
        """
        me = self._services.worker_id
        if isinstance(delivery, LoneDelivery):
            return delivery.is_to_blame(known.events, me)
        if not delivery.is_last or len(lost_workers(known.events, me)) < delivery.times_delivered - 1:
            return False
        return not await self._known.was_let_go(known)

    async def _until_alone(self, run_id: str, known: Known, delivery: Delivery) -> Known | None:
        """Wait for the others to leave, or for a run that needs nobody any more; None if the worker stops first."""
        if self.quarantine.is_alone:
            return known
        with self.quarantine.changes() as changed:
            unsubscribe = await self._log.subscribe(run_id, lambda _: changed.set())
            try:
                while True:
                    changed.clear()
                    newest = await self._known.read(run_id)
                    if self.quarantine.is_closed:
                        return None
                    if newest.state.is_terminal or newest.state.is_cancel_requested or self.quarantine.is_alone:
                        return newest
                    await changed.wait()
            except asyncio.CancelledError:
                await asyncio.shield(self._return(delivery))
                raise
            finally:
                unsubscribe()

    # --- What is known of the run ------------------------------------------------------------------------------------

    async def _needless_wake_up(self, job: Job, known: Known, delivery: Delivery) -> Disposition | None:
        """A run that is not put aside is gone on with by whoever drives it, unless they have just let go of it.

        That a node is at work proves nothing: whoever began it may have had this very job in hand, and died.
        """
        if _is_put_aside(known.state):
            return Ack()
        moved_on = job.log_position is not None and known.position > job.log_position
        if moved_on and not job.declined_by and not _is_something_due(known.state) and delivery.times_delivered == 1:
            # Whoever wrote behind what woke the run knows of it. Not acknowledged: this delivery may be old, of a job
            # that was delivered again to exactly them.
            return _when_let_go(delivery)
        return _when_let_go(delivery) if await self._known.is_in_hands(known.state.execution_id) else None

    async def _resolve(self, job: Job, known: Known) -> Resolved:
        workflow_yaml = RunInput.of(known.state, known.events[0].payload.extra.get(PLATFORM)).workflow_yaml
        is_started = bool(known.state.nodes)
        if workflow_yaml is not None:
            model, functions = await self._flows.from_yaml(workflow_yaml, job.flow_name, is_started=is_started)
        else:
            model, functions = await self._flows.named(job.flow_name, is_started=is_started)
            model = msgspec.structs.replace(model, name=job.flow_name)
        self._services.plans.of(model)  # a flow that cannot run is refused here, as one that cannot be loaded
        return model, functions

    # --- Driving -----------------------------------------------------------------------------------------------------

    async def _drive(self, job: Job, known: Known, flow: Resolved | NoFlow, delivery: Delivery) -> Handled:
        if job.run_id in self.running:  # it came back while its flow was looked up
            return Handled(self._while_at_it(self.running[job.run_id], delivery), delivery)
        driven = self._take_in_hand(job, known, flow, delivery)
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
        if rest is Rest.HELD:
            return Handled(await self._hold_or_hand_over(job, driven), driven.delivery)
        return Handled(self._after(rest, job, driven), driven.delivery)

    async def _hold_or_hand_over(self, job: Job, driven: DrivenRun) -> Disposition:
        """Give a run whose next tasks are not here to a worker that may have them; if there is none, hold it."""
        needs = driven.run.needs
        if await self._may_others(job, driven.run.state, needs):
            return self._handed_over()
        _log.warning(
            "the run is held: no worker of tag '%s' has %s", job.tag, ", ".join(needs), extra={"action": "run_held"}
        )
        await driven.hold(
            {
                "needs": list(needs),
                "since": self._services.clock.now().timestamp(),
                "seen_by": self._options.worker_id,
                "declined_by": [*job.declined_by, self._presence.instance_id],
            }
        )
        return Ack()

    async def _hand_back(self, driven: DrivenRun) -> None:
        """We must stop, the run need not: somebody else goes on with it at once."""
        _log.info("the run is handed back", extra={"action": "run_handed_back"})
        await driven.hand_back()
        if isinstance(driven.delivery, LoneDelivery):
            driven.delivery.forgive()
        await self._return(driven.delivery)

    async def _return(self, delivery: Delivery) -> None:
        try:
            await delivery.nak(0.0)
        except (UnavailableError, TooLargeError) as error:
            log_error(_log, "ERR-PYOCO-0003", action="hand_back_failed", exc=error, level=logging.WARNING)

    def _take_in_hand(self, job: Job, known: Known, flow: Resolved | NoFlow, delivery: Delivery) -> DrivenRun:
        run_id, (model, functions) = job.run_id, flow
        is_new = len(known.events) == 1 and delivery.times_delivered == 1 and not job.declined_by
        run = Run(run_id, model, functions, self._services, late_sec=LATE_SEC, is_ours_alone=is_new)
        projection = RunProjection(run_id)
        writer = SnapshotWriter(
            projection,
            self._snapshots,
            self._services.clock,
            max_bytes=self._options.max_snapshot_bytes,
            revision=known.revision,
        )
        # A foreign job may come from a platform that has no gateway of ours to see the cancels of the others.
        look_sec = LOOK_SEC if job.log_position is not None else 0.0
        driven = DrivenRun(run, projection, writer, delivery, look_sec=look_sec)
        run.begin_at(known.events, known.position)
        self.running[run_id] = driven
        return driven

    def _after(self, rest: Rest, job: Job, driven: DrivenRun) -> Disposition:
        if rest is Rest.TAKEN_OVER:
            # Not taken out of the queue: a server that crashed counts deliveries anew, and this may be the only job.
            _log.warning("somebody else goes on with the run", extra={"action": "run_taken_over"})
            return Leave()
        state = driven.run.state
        if rest is Rest.PARKED and not _waits_for_people(state):
            _log.warning("nothing can be done about the run, and nobody is waited for", extra={"action": "run_stuck"})
            return _later(driven.delivery)
        if run_status(state) is not RunStatus.FAILED:
            return Ack()
        error = driven.projection.error
        log_error(_log, "ERR-PYOCO-0007", action="run_failed", reason=error, **_raised(state))
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
                known = await self._known.read_or_create(error.run_id, RunInput(flow_name=name or "unknown"))
                await self._endings.fail(known, "INVALID_JOB", "invalid job", str(error))
            except UnavailableError as unavailable:
                log_error(_log, "ERR-PYOCO-0003", action="job_interrupted", exc=unavailable)
                return Nak(NAK_DELAY_SEC)
        return Term(letter)

    async def _failed(self, job: Job, known: Known, reason: DeadReason, code: str, error: str) -> Disposition:
        status = await self._endings.fail(known, code, reason.value, error)
        return Ack(self._letter(job, reason, error) if status is RunStatus.FAILED else None)

    async def _give_up(self, job: Job, known: Known, delivery: Delivery) -> Disposition:
        """It has had its tries: the run ends here rather than take down workers for ever."""
        error = used_up(known.state, delivery.times_delivered)
        log_error(_log, "ERR-PYOCO-0007", action="deliveries_used_up", reason=error)
        return await self._failed(job, known, DeadReason.EXECUTION_ERROR, DELIVERIES_USED_UP, error)

    def _perhaps_unwritten(self, job: Job, known: Known, delivery: Delivery) -> Letter | None:
        """Whoever saw the run fail may have died before the dead letter was written: rather two than none.

        A wake-up comes back for other reasons, too.
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
    def _letter(job: Job, reason: DeadReason, error: str | None) -> Letter:
        return Letter(reason=reason, error=error, run_id=job.run_id, flow_name=job.flow_name, tags=job.tags)


def _raised(state: ExecutionState) -> dict[str, Any]:
    """The exception a run failed with, under the names the log has for one; all that is left of it is text."""
    error = (state.failure or {}).get("error") or {}
    detail = error.get("detail")
    told = {
        "exception_class": error.get("code"),
        "exception_message": error.get("message"),
        "traceback": detail.get("traceback") if isinstance(detail, dict) else None,
    }
    return {name: text for name, text in told.items() if isinstance(text, str)}


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

    Not if a node was resumed in the moment in which the run was parked.
    """
    waits = any(node.status is NodeStatus.WAITING for node in state.live_nodes())
    return waits and not _is_something_due(state)


def _is_something_due(state: ExecutionState) -> bool:
    """Is there a node nobody has begun, or one that was resumed and not gone on with?"""
    return any(
        node.status is NodeStatus.READY or (node.is_at_work and node.resumption is not None)
        for node in state.live_nodes()
    )

"""Jobs whose deliveries are used up: their runs end as the last delivery would have ended them.

A worker that gets the last delivery ends the run itself. Here is what becomes of a job whose last delivery did not come
so far: its worker died with it, or could not reach the log. The log decides, and whoever appends the end of the run
writes the dead letter; so any number of gateways may do this at the same time.
"""

import logging
from collections import OrderedDict
from typing import Final

import msgspec

from pyoco_server.app.burying import DELIVERIES_USED_UP, DeadReason, Letter, used_up
from pyoco_server.app.jobs import InvalidJobError, Job, decode_job
from pyoco_server.app.lone_marks import Mark, lost_workers, mark_of, marked
from pyoco_server.app.ports import (
    Clock,
    DeadLetters,
    EventLog,
    LogConflictError,
    NewId,
    Snapshots,
    TooLargeError,
    UnavailableError,
    WorkQueue,
)
from pyoco_server.app.ports.work_queue import SpentJob, SpentJobs
from pyoco_server.app.retracting import was_taken_back
from pyoco_server.app.run_desk import OpenRun, RunDesk, RunNotFoundError
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.statuses import RunStatus, run_status
from pyoco_server.core import (
    Actor,
    ActorKind,
    Commit,
    ExecutionState,
    NodeStatus,
    fail,
    fold,
    handle,
    initial_state,
)
from pyoco_server.core.commands import CreateExecution
from pyoco_server.logs import log_context, log_error

_log = logging.getLogger(__name__)
_SWEEPER: Final = Actor(ActorKind.SCHEDULER, "sweep")
_PRODUCER: Final = Actor(ActorKind.EXTERNAL, "queue")
LOOK_SEC: Final = 30.0
"""How often to look for what nobody told of."""
A_ROUND: Final = 200
MOST_TOLD: Final = 10_000
"""More than so many are not remembered; looking finds them."""


class _Driven(msgspec.Struct):
    """What a snapshot says of who drives the run."""

    driven_by: str | None = None
    heartbeat_at: float | None = None


class SpentJobSweep:
    """Ends what used-up jobs stood for, and takes them out of the queue."""

    def __init__(
        self,
        *,
        jobs: SpentJobs,
        log: EventLog,
        snapshots: Snapshots,
        dead_letters: DeadLetters,
        desk: RunDesk,
        queue: WorkQueue,
        clock: Clock,
        new_id: NewId,
        in_hands_sec: float,
    ) -> None:
        """``in_hands_sec``: whoever drives a run gives a sign of life more often than that."""
        self._jobs = jobs
        self._log = log
        self._snapshots = snapshots
        self._dead_letters = dead_letters
        self._desk = desk
        self._queue = queue
        self._clock = clock
        self._new_id = new_id
        self._in_hands_sec = in_hands_sec
        self._told: OrderedDict[int, int] = OrderedDict()
        self._look_at = 0.0

    def tell(self, number: int, times_delivered: int) -> None:
        """A job's last delivery has come to nothing."""
        if len(self._told) < MOST_TOLD:
            self._told[number] = times_delivered

    async def end_spent(self) -> None:
        """See to the jobs of which was told, and now and then to those of which was not."""
        for number, times_delivered in [*self._told.items()][:A_ROUND]:
            job = await self._jobs.get(number, times_delivered)
            if job is None or await self._is_seen_to(job):
                self._told.pop(number, None)
            else:
                self._told.move_to_end(number)  # the others come first next time
        if self._now() >= self._look_at:
            for job in await self._jobs.look(A_ROUND):
                await self._is_seen_to(job)
            self._look_at = self._now() + LOOK_SEC

    async def _is_seen_to(self, job: SpentJob) -> bool:
        """Is nothing left to be done about it? What cannot be seen to now is found again by looking."""
        try:
            return await self._see_to(job)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 told; one job nobody can handle must not hold up the others
            log_error(_log, "ERR-PYOCO-0106", action="spent_job_crashed", exc=error, number=job.number)
            return True

    async def _see_to(self, job: SpentJob) -> bool:
        try:
            said = decode_job(job.body)
        except InvalidJobError as error:
            if job.is_certain:
                await self._refuse(job, error)
            return job.is_certain
        with log_context(run_id=said.run_id, flow_name=said.flow_name):
            if not await self._has_ended(job, said):
                return False
        await self._jobs.remove(job.number)
        return True

    async def _has_ended(self, job: SpentJob, said: Job) -> bool:
        """Does the run no longer need the job, or was it ended here?"""
        run = await self._opened(said)
        if run is None:
            return job.is_certain
        is_elsewhere = await self._desk.is_executed_elsewhere(run)
        state = run.execution.state
        if state.is_terminal:
            if not was_taken_back(state):
                await self._desk.write(run)  # whoever ended it may have died before they could
            return True
        if not job.is_certain:
            return False
        if _only_waits(state) or await self._desk.is_held(run):
            return True  # whoever resumes it queues a job, as does the sweep that finds the code of a held run
        if is_elsewhere or await self._is_in_hands(run):
            return False
        if _died_of_others(job, run):
            await self._set_apart(job, run)
            return True
        return await self._give_up(job, said, run)

    async def _set_apart(self, job: SpentJob, run: OpenRun) -> None:
        """One more round, alone, in place of the job: from there on its workers judge the run by its log."""
        _log.warning("the run is tried alone from now on", extra={"action": "run_set_apart"})
        mark = Mark(job.times_delivered, after=len(run.events))
        run_id = run.execution.execution_id
        await self._queue.publish(job.tag, marked(job.body, mark), dedup_id=f"{run_id}:alone:{job.number}")

    async def _opened(self, said: Job) -> OpenRun | None:
        """The run; None if it had a log once and has none any more. One of a foreign producer is created."""
        try:
            return await self._desk.open(said.run_id)
        except RunNotFoundError:
            return None if said.log_position is not None else await self._created(said.run_id, said.input())

    async def _created(self, run_id: str, given: RunInput) -> OpenRun:
        """A run nobody has written anything of, so that its end can be told; or what somebody wrote meanwhile."""
        create = CreateExecution(execution_id=run_id, actor=_PRODUCER, graph_id=given.flow_name, input=given.to_json())
        made = handle(
            initial_state(run_id), create, now=self._clock.now(), new_id=self._new_id, graph_ids={given.flow_name}
        )
        try:
            await self._log.append(run_id, made, after=0)
        except LogConflictError:
            _log.debug("somebody else created the run", extra={"action": "run_created_elsewhere", "run_id": run_id})
        return await self._desk.open(run_id)

    async def _is_in_hands(self, run: OpenRun) -> bool:
        """Has somebody gone on with it just now, or said that they drive it?"""
        newest = run.events[-1].occurred_at.timestamp()
        if len(run.events) > 1 and self._now() - newest < self._in_hands_sec:
            return True
        stored = await self._snapshots.read(run.execution.execution_id)
        if stored is None:
            return False
        try:
            said = msgspec.json.decode(stored.body, type=_Driven)
        except msgspec.DecodeError:
            return False
        return said.driven_by is not None and self._now() - (said.heartbeat_at or 0.0) < self._in_hands_sec

    async def _give_up(self, job: SpentJob, said: Job, run: OpenRun) -> bool:
        """End the run; not if it has moved on since it was looked at, for then somebody is at it."""
        judged = run.execution.state
        error = used_up(judged, job.times_delivered)
        if await self._fail(run, DeadReason.EXECUTION_ERROR.value, DELIVERIES_USED_UP, error, only_at=judged.version):
            log_error(_log, "ERR-PYOCO-0007", action="deliveries_used_up", reason=error)
            letter = self._letter(job, DeadReason.EXECUTION_ERROR, error)
            await self._bury(
                msgspec.structs.replace(letter, run_id=said.run_id, flow_name=said.flow_name, tags=said.tags)
            )
        return run.execution.state.is_terminal

    async def _refuse(self, job: SpentJob, error: InvalidJobError) -> None:
        """Not a job at all; if it names a run, that run fails. Whoever takes it out of the queue writes the letter."""
        log_error(_log, "ERR-PYOCO-0012", action="invalid_job", exc=error, run_id=error.run_id)
        flow_name = error.fields.get("flow_name")
        name = flow_name if isinstance(flow_name, str) else None
        if error.run_id is not None:
            try:
                run = await self._desk.open(error.run_id)
            except RunNotFoundError:
                run = await self._created(error.run_id, RunInput(flow_name=name or "unknown"))
            await self._fail(run, "invalid job", "INVALID_JOB", str(error))
        if await self._jobs.remove(job.number):
            letter = self._letter(job, DeadReason.INVALID_JOB, str(error))
            await self._bury(msgspec.structs.replace(letter, run_id=error.run_id, flow_name=name))

    async def _fail(self, run: OpenRun, reason: str, code: str, message: str, *, only_at: int | None = None) -> bool:
        """End the run as failed, unless a cancel was first; did it end so, and by our hand?"""

        def failing(state: ExecutionState) -> Commit:
            if only_at is not None and state.version != only_at:
                return Commit([], state)
            error = {"code": code, "message": message}
            events = fail(state, reason=reason, error=error, actor=_SWEEPER, now=self._clock.now(), new_id=self._new_id)
            return Commit(events, fold(events, state) if events else state)

        events = await run.execution.decide(failing)
        if run.execution.state.is_terminal:
            await self._desk.write(run)
        return bool(events) and run_status(run.execution.state) is RunStatus.FAILED

    @staticmethod
    def _letter(job: SpentJob, reason: DeadReason, error: str) -> Letter:
        return Letter(reason=reason, tag=job.tag, subject=job.subject, times_delivered=job.times_delivered, error=error)

    async def _bury(self, letter: Letter) -> None:
        try:
            await self._dead_letters.publish(letter.tag, letter.entry(self._now()))
        except (UnavailableError, TooLargeError) as error:
            log_error(_log, "ERR-PYOCO-0011", action="dead_letter_lost", reason=letter.reason.value, detail=str(error))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _died_of_others(job: SpentJob, run: OpenRun) -> bool:
    """Was the run begun, but not by as many as it was delivered to? They died of something else before they came to it.

    Who was alone with it died of it; and what nobody ever began may be what kills when it is loaded.
    """
    begun_by = lost_workers(run.events, None)
    return mark_of(job.body) is None and 0 < len(begun_by) < job.times_delivered - 1


def _only_waits(state: ExecutionState) -> bool:
    """Is there nothing to do but to wait for people?"""
    live = state.live_nodes()
    return bool(live) and all(node.status is NodeStatus.WAITING for node in live)

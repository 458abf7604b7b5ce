"""Ends the runs of jobs whose deliveries are exhausted, as the last delivery should have ended them.

A worker that gets the last delivery ends the run itself, or quarantines its job. This module does the same if that
worker died, or could not reach the log. The log decides, and the process that appends the end of the run writes the
dead letter; so any number of gateways may sweep at the same time.
"""

import logging
from collections import OrderedDict
from typing import Final

from pyoco_server.app.ports import Clock, DeadLetters, SnapshotReader, UnavailableError, WorkQueue
from pyoco_server.app.ports.work_queue import ExhaustedJob, ExhaustedJobs
from pyoco_server.app.recovery.dead_letter import (
    DELIVERIES_USED_UP,
    DeadLetter,
    DeadReason,
    RunFailure,
    publish_dead_letter,
    reject_invalid_job,
    used_up,
)
from pyoco_server.app.recovery.quarantine_history import (
    QuarantineHistory,
    history_of,
    lost_workers,
    quarantined,
    starters,
)
from pyoco_server.app.runs.job import InvalidJobError, Job, decode_job
from pyoco_server.app.runs.run_log import OpenRun, RunLog, RunNotFoundError
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.snapshots.codec import json_object
from pyoco_server.app.snapshots.status import RunStatus, has_owner, is_parked, run_status, was_retracted
from pyoco_server.core import Actor, ActorKind
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.logs import log_context, log_error

_log = logging.getLogger(__name__)
_SWEEPER: Final = Actor(ActorKind.SCHEDULER, "sweep")
_PRODUCER: Final = Actor(ActorKind.EXTERNAL, "queue")
LOOK_SEC: Final = 30.0
"""How often to scan for jobs that no advisory named."""
A_ROUND: Final = 200
MOST_NOTED: Final = 10_000
"""No more advisories are kept; the scan finds the other jobs."""


class ExhaustedJobSweep:
    """Ends the runs of exhausted jobs, and removes the jobs from the queue."""

    def __init__(
        self,
        *,
        jobs: ExhaustedJobs,
        snapshots: SnapshotReader,
        dead_letters: DeadLetters,
        run_log: RunLog,
        queue: WorkQueue,
        clock: Clock,
        fresh_sec: float,
    ) -> None:
        """``fresh_sec``: the owner of a run writes a heartbeat more often than that."""
        self._jobs = jobs
        self._snapshots = snapshots
        self._dead_letters = dead_letters
        self._run_log = run_log
        self._queue = queue
        self._clock = clock
        self._fresh_sec = fresh_sec
        self._noted: OrderedDict[int, int] = OrderedDict()
        self._look_at = 0.0

    def note_advisory(self, number: int, times_delivered: int) -> None:
        """Take note of an advisory: the last delivery of a job was not acknowledged."""
        if len(self._noted) < MOST_NOTED:
            self._noted[number] = times_delivered

    async def end_exhausted(self) -> None:
        """End the jobs that advisories named at once, and the others in a periodic scan."""
        for number, times_delivered in [*self._noted.items()][:A_ROUND]:
            job = await self._jobs.get(number, times_delivered)
            if job is None or await self._try_to_end(job):
                self._noted.pop(number, None)
            else:
                self._noted.move_to_end(number)  # the others come first next time
        if self._now() >= self._look_at:
            for job in await self._jobs.look(A_ROUND):
                await self._try_to_end(job)
            self._look_at = self._now() + LOOK_SEC

    async def _try_to_end(self, job: ExhaustedJob) -> bool:
        """End a job; False if that must be tried again. A job that cannot be handled is left to the scan."""
        try:
            return await self._end(job)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 logged; one job must not hold up the others
            log_error(_log, "ERR-PYOCO-0106", action="spent_job_crashed", exc=error, number=job.number)
            return True

    async def _end(self, job: ExhaustedJob) -> bool:
        try:
            said = decode_job(job.body)
        except InvalidJobError as error:
            if job.is_certain:
                await self._reject(job, error)
            return job.is_certain
        with log_context(run_id=said.run_id, flow_name=said.flow_name):
            if not await self._end_run(job, said):
                return False
        await self._jobs.remove(job.number)
        return True

    async def _end_run(self, job: ExhaustedJob, said: Job) -> bool:
        """End the run unless it does not need the job any more; False if the job must stay for now."""
        run = await self._opened(said)
        if run is None:
            return job.is_certain
        is_elsewhere = await self._run_log.adopt_stored_claims(run)
        state = run.execution.state
        if state.is_terminal:
            if not was_retracted(state):
                await self._run_log.update_snapshot(run)  # the process that ended it may have died before it did so
            return True
        if not job.is_certain:
            return False
        if is_parked(state) or await self._run_log.look_whether_held(run):
            return True  # a resume queues a job, and so does the sweep that wakes held runs
        if is_elsewhere or await self._look_whether_owned(run):
            return False
        if _may_be_innocent(job, run):
            await self._quarantine(job, run)
            return True
        return await self._give_up(job, said, run)

    async def _quarantine(self, job: ExhaustedJob, run: OpenRun) -> None:
        """Queue the job once more, to be run alone: from there on workers judge the run by its log."""
        _log.warning(
            "the run was lost with workers that ran other jobs, too; from now on it is run alone",
            extra={"action": "run_set_apart"},
        )
        history = QuarantineHistory(job.times_delivered, after=len(run.events))
        run_id = run.execution.execution_id
        await self._queue.publish(job.tag, quarantined(job.body, history), dedup_id=f"{run_id}:alone:{job.number}")

    async def _opened(self, said: Job) -> OpenRun | None:
        """Open the run; None if it had a log once and has none any more. The run of a foreign producer is created."""
        try:
            return await self._run_log.open(said.run_id)
        except RunNotFoundError:
            return None if said.log_position is not None else await self._created(said.run_id, said.input())

    async def _created(self, run_id: str, given: RunInput) -> OpenRun:
        await self._run_log.adopt(run_id, given, _PRODUCER)
        return await self._run_log.open(run_id)

    async def _look_whether_owned(self, run: OpenRun) -> bool:
        """Read whether a process drives the run: its log grew a moment ago, or its snapshot says so."""
        newest = run.events[-1].occurred_at.timestamp()
        if len(run.events) > 1 and self._now() - newest < self._fresh_sec:
            return True
        stored = await self._snapshots.read(run.execution.execution_id)
        snapshot = json_object(stored.body) if stored is not None else None
        return snapshot is not None and has_owner(snapshot, now=self._now(), fresh_sec=self._fresh_sec)

    async def _give_up(self, job: ExhaustedJob, said: Job, run: OpenRun) -> bool:
        """Fail the run, unless its log has grown since it was read: then it has an owner."""
        judged = run.execution.state
        reason, error = DeadReason.EXECUTION_ERROR, used_up(judged, job.times_delivered)
        failure = RunFailure(DELIVERIES_USED_UP, reason.value, error)
        if await self._fail(run, failure, only_at=judged.version):
            log_error(_log, "ERR-PYOCO-0007", action="deliveries_used_up", reason=error)
            letter = DeadLetter(
                reason=reason, error=error, run_id=said.run_id, flow_name=said.flow_name, tags=said.tags
            )
            await self._publish(letter, job)
        return run.execution.state.is_terminal

    async def _reject(self, job: ExhaustedJob, error: InvalidJobError) -> None:
        """Reject an invalid job, and remove it. The gateway that removes it publishes the dead letter."""
        letter = await reject_invalid_job(error, self._fail_by_id)
        if await self._jobs.remove(job.number):
            await self._publish(letter, job)

    async def _fail_by_id(self, run_id: str, given: RunInput, failure: RunFailure) -> None:
        try:
            run = await self._run_log.open(run_id)
        except RunNotFoundError:
            run = await self._created(run_id, given)
        await self._fail(run, failure)

    async def _fail(self, run: OpenRun, failure: RunFailure, *, only_at: int | None = None) -> bool:
        """Fail the run, unless a cancel was first; False if it did not fail, or another process ended it."""
        error: JsonObject = {"code": failure.code, "message": failure.message}
        failing = run.execution.failing(_SWEEPER, failure.reason, error, only_at=only_at)
        events = await run.execution.decide(failing)
        if run.execution.state.is_terminal:
            await self._run_log.update_snapshot(run)
        return bool(events) and run_status(run.execution.state) is RunStatus.FAILED

    async def _publish(self, letter: DeadLetter, job: ExhaustedJob) -> None:
        await publish_dead_letter(self._dead_letters, letter, job, now=self._now())

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _may_be_innocent(job: ExhaustedJob, run: OpenRun) -> bool:
    """Return whether some deliveries were used up by other causes than this run.

    So it is if fewer workers started it, and did not hand it back, than there were deliveries before the last. A worker
    that ran it alone died of it; and a run that was never started may kill the worker that loads it.
    """
    is_started = bool(starters(run.events, None))
    return history_of(job.body) is None and is_started and len(lost_workers(run.events, None)) < job.times_delivered - 1

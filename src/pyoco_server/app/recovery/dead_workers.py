"""Detects dead workers, and releases their jobs at once instead of after the ack wait.

A worker process counts as dead only if all of this holds: it has answered this gateway before; for a whole grace period
the NATS server reports that nothing listens on its subject (a missing answer proves nothing: it may be paused);
the gateway's own connection did not break in that time; and none of the worker's runs shows a new heartbeat.

Then its jobs are released for redelivery. Its jobs are those of runs whose last task it started, by the log.
A wrong verdict costs no more than an ack wait that is too short: another worker takes over, and what the first one
writes is refused. Of several gateways only one acts, since a job that is released twice may be delivered twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.ports import EventLog, SnapshotReader, UnavailableError, WorkerRecord, WorkerRegistry
from pyoco_server.app.ports.work_queue import InFlightJob, InFlightJobs
from pyoco_server.app.ports.workers import Liveness, Sign
from pyoco_server.app.recovery.worker_views import ACTIVE, LOST_INSTANCE
from pyoco_server.app.runs.job import decode_job
from pyoco_server.app.snapshots.codec import json_object
from pyoco_server.app.snapshots.projection import worker_mark
from pyoco_server.core import Event, NodeStatus, fold
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.errors import PyocoServerError
from pyoco_server.identifiers import INSTANCE_ID
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

LONGEST_INTERVAL_SEC: Final = 1.0
SHORTEST_INTERVAL_SEC: Final = 0.1
AT_ONCE: Final = 32
MOST_TRIES: Final = 3


class _WatchedWorker(msgspec.Struct):
    """A worker process, and what its answers have shown."""

    worker_id: str
    instance_id: str
    tags: tuple[str, ...]
    has_answered: bool = False
    absent_since: float | None = None
    """Since when nothing listens on its subject; None if it answered last."""
    heartbeats: dict[str, object] | None = None
    """The heartbeats of its runs in the middle of the grace period."""
    tries: int = 0
    """How often this gateway tried to release its jobs; after the first try no other gateway does."""

    @property
    def mark(self) -> str:
        """The name that it writes into logs."""
        return worker_mark(self.worker_id, self.instance_id)

    def restart_grace(self) -> None:
        """Forget the absence seen so far."""
        self.absent_since = self.heartbeats = None


class _InFlight(NamedTuple):
    """A job that a worker holds, with the last heartbeat of its run."""

    job: InFlightJob
    run_id: str
    heartbeat: object


class DeadWorkers:
    """Asks all known workers for a sign of life, and releases the jobs of dead ones."""

    def __init__(
        self,
        *,
        liveness: Liveness,
        jobs: InFlightJobs,
        registry: WorkerRegistry,
        log: EventLog,
        snapshots: SnapshotReader,
        grace_sec: float,
    ) -> None:
        self._liveness = liveness
        self._jobs = jobs
        self._registry = registry
        self._log = log
        self._snapshots = snapshots
        self._grace_sec = grace_sec
        self._interval_sec = min(LONGEST_INTERVAL_SEC, max(SHORTEST_INTERVAL_SEC, grace_sec / 3))
        self._known: dict[str, _WatchedWorker] = {}
        self._newcomers = asyncio.Event()
        self._outages = liveness.outages
        self._looked_at = 0.0
        self._gate = asyncio.Semaphore(AT_ONCE)

    def note_record(self, record: WorkerRecord) -> None:
        """Take note of a registry record that was written.

        A process that another one replaced under its worker id stays known: it may hold jobs. A process that never
        answers is forgotten at the first question, so that stale records cost nothing.
        """
        worker_id, instance_id, tags = record.get("worker_id"), record.get("instance_id"), record.get("tags")
        if not (_is_token(worker_id) and _is_token(instance_id) and isinstance(tags, list)):
            return
        if record.get("state") not in ACTIVE:
            self._known.pop(str(instance_id), None)
            return
        known = self._known.get(str(instance_id))
        if known is None:
            known = self._known[str(instance_id)] = _WatchedWorker(str(worker_id), str(instance_id), ())
            self._newcomers.set()
        known.tags = tuple(str(tag) for tag in tags if _is_token(tag))

    async def run(self) -> None:
        """Check all workers at each interval, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self.look()
            except UnavailableError:
                pass  # requests report the outage; the next round tries again
            except Exception as error:  # noqa: BLE001 logged; the next round must run
                log_error(_log, "ERR-PYOCO-0106", action="sweep_crashed", exc=error, sweep="dead_workers")
            await self._ask_newcomers_until(max(began + self._interval_sec, loop.time() + SHORTEST_INTERVAL_SEC))

    async def look(self) -> None:
        """Ask every known worker once, and release the jobs of those whose grace period is over."""
        loop = asyncio.get_running_loop()
        workers, outages = [*self._known.values()], self._liveness.outages
        if outages != self._outages or loop.time() > self._looked_at + 3 * LONGEST_INTERVAL_SEC:
            for worker in workers:  # this gateway was cut off or paused, so their absence proves nothing
                worker.restart_grace()
        self._outages = outages
        try:
            await self._look_at(workers, outages)
        finally:
            self._looked_at = loop.time()  # a slow round is no reason to restart the grace period

    async def _look_at(self, workers: Sequence[_WatchedWorker], outages: int) -> None:
        loop = asyncio.get_running_loop()
        signs = await asyncio.gather(*map(self._ask, workers))
        if self._liveness.outages != outages:
            return
        for worker, sign in zip(workers, signs, strict=True):
            self._note(worker, sign, loop.time())
        now = loop.time()
        doubtful = [worker for worker in workers if worker.instance_id in self._known and self._is_due(worker, now)]
        if not doubtful:
            return
        in_flight = await self._in_flight_of(doubtful)
        ends = (self._doubt(worker, in_flight[worker.mark]) for worker in doubtful if worker.instance_id in self._known)
        for end in await asyncio.gather(*ends, return_exceptions=True):
            if end is not None:  # the others are done; the failed ones are tried again
                raise end

    async def _ask_newcomers_until(self, end: float) -> None:
        """Ask new workers at once: only one that has answered can be found dead, and some live only briefly."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                while await self._newcomers.wait():
                    self._newcomers.clear()
                    unasked = [worker for worker in self._known.values() if not worker.has_answered]
                    signs = await asyncio.gather(*map(self._ask, unasked))
                    for worker, sign in zip(unasked, signs, strict=True):
                        self._note(worker, sign, loop.time())

    async def _ask(self, worker: _WatchedWorker) -> Sign:
        async with self._gate:
            return await self._liveness.ask(worker.instance_id)

    def _note(self, worker: _WatchedWorker, sign: Sign, now: float) -> None:
        if sign is not Sign.DISCONNECTED:
            if sign is Sign.ANSWERED:
                worker.has_answered, worker.tries = True, 0
            worker.restart_grace()
        elif not worker.has_answered:
            self._known.pop(worker.instance_id, None)
        elif worker.absent_since is None:
            worker.absent_since = now

    # --- Verdicts ----------------------------------------------------------------------------------------------------

    def _is_due(self, worker: _WatchedWorker, now: float) -> bool:
        """Has it been absent for half of the grace period, or after the first check of its runs for all of it?"""
        if worker.absent_since is None:
            return False
        return now - worker.absent_since >= (self._grace_sec / 2 if worker.heartbeats is None else self._grace_sec)

    async def _doubt(self, worker: _WatchedWorker, in_flight: Sequence[_InFlight]) -> None:
        """Note the heartbeats of its runs in the middle of the grace period, and compare them at its end.

        A new heartbeat is a sign of life, and so is a run that it did not hold before.
        """
        if worker.heartbeats is None:
            worker.heartbeats = {held.run_id: held.heartbeat for held in in_flight}
            return
        if any((held.run_id, held.heartbeat) not in worker.heartbeats.items() for held in in_flight):
            _log.warning(
                "worker '%s' does not listen for questions, but its runs have new heartbeats; it counts as alive",
                worker.worker_id,
                extra={"action": "worker_unheard", "worker_id": worker.worker_id},
            )
            worker.has_answered = False
            worker.restart_grace()
            return
        if in_flight and not await self._look_whether_still_gone(worker):  # reading all that took a while
            worker.restart_grace()
            return
        if in_flight and (worker.tries or await self._claim(worker)):
            await self._give_back(worker, in_flight)
        self._known.pop(worker.instance_id, None)

    async def _look_whether_still_gone(self, worker: _WatchedWorker) -> bool:
        return await self._ask(worker) is Sign.DISCONNECTED and self._liveness.outages == self._outages

    async def _claim(self, worker: _WatchedWorker) -> bool:
        """Claim the release of its jobs in the registry; False if another gateway did, or the worker stopped itself."""

        def lost(record: WorkerRecord | None) -> WorkerRecord | None:
            if record is None or record.get(LOST_INSTANCE) == worker.instance_id:
                return None
            if record.get("instance_id") == worker.instance_id and record.get("state") not in ACTIVE:
                return None
            return {**record, LOST_INSTANCE: worker.instance_id}

        return await self._registry.update(worker.worker_id, lost) is not None

    async def _give_back(self, worker: _WatchedWorker, in_flight: Sequence[_InFlight]) -> None:
        """Release its jobs; UnavailableError up to ``MOST_TRIES`` times: without permission it never succeeds."""
        worker.tries += 1
        name, runs = worker.worker_id, len(in_flight)
        try:
            await asyncio.gather(*(self._jobs.give_back(held.job) for held in in_flight))
        except UnavailableError as error:
            if worker.tries < MOST_TRIES:
                raise
            log_error(_log, "ERR-PYOCO-0003", action="jobs_not_given_back", exc=error, worker_id=name, runs=runs)
            return
        _log.warning(
            "worker '%s' is dead; the jobs of its %d runs are released to other workers",
            name,
            runs,
            extra={"action": "worker_gone", "worker_id": name, "runs": runs},
        )

    # --- The jobs of a worker ----------------------------------------------------------------------------------------

    async def _in_flight_of(self, workers: Sequence[_WatchedWorker]) -> Mapping[str, Sequence[_InFlight]]:
        """Return by mark the unsettled jobs of runs whose last task one of these workers started.

        Each job is read once, even if many of the workers share its tag.
        """
        by_mark: dict[str, list[_InFlight]] = {worker.mark: [] for worker in workers}
        jobs = await self._jobs.look({tag for worker in workers for tag in worker.tags})
        for found in await asyncio.gather(*(self._if_in_flight(job, by_mark.keys()) for job in jobs)):
            if found is not None:
                mark, held = found
                by_mark[mark].append(held)
        return by_mark

    async def _if_in_flight(self, job: InFlightJob, marks: Container[str]) -> tuple[str, _InFlight] | None:
        async with self._gate:
            try:
                run_id = decode_job(job.body).run_id
                events, position = await self._log.read(run_id)
            except UnavailableError:
                raise
            except PyocoServerError:  # no job, or no log: the worker that gets it reports that
                return None
            mark = _last_started_by(events)
            if mark is None or mark not in marks or not _goes_on(events):
                return None
            stored = await self._snapshots.read(run_id)
            said = (json_object(stored.body) if stored is not None else None) or {}
            if stored is not None and stored.position == position and said.get("driven_by") is None:
                return None  # it was parked; if a wake-up followed, its worker has not started
            return mark, _InFlight(job, run_id, said.get("heartbeat_at"))


def _is_token(value: object) -> bool:
    return INSTANCE_ID.fits(value)


def _last_started_by(events: Sequence[Event]) -> str | None:
    """Return the mark of the process that started the run's last task."""
    payloads = (event.payload for event in reversed(events))
    return next(
        (payload.worker_id for payload in payloads if isinstance(payload, NodeStarted) and payload.worker_id), None
    )


def _goes_on(events: Sequence[Event]) -> bool:
    """Is there more to do than to wait for people?"""
    state = fold(events)
    return not state.is_terminal and any(node.status is not NodeStatus.WAITING for node in state.live_nodes())

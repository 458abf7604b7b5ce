"""Workers that are gone: what they had in hand is given to others at once, not only when the ack wait is over.

A worker process is held to be gone when nobody listens where it should, and nothing else explains that: it has answered
us before, the server says each time that nobody is there (that no answer comes proves nothing: it may stand still), for
the whole of a grace in which our own connection was never lost, and none of its runs showed life meanwhile.

Then its jobs are taken back for it. Whose job is whose the log tells: who began a run's last task. Should the verdict
be wrong after all, no more is lost than by an ack wait that was too short: others take over, and what the worker writes
then is refused. Of several gateways one does it, since a job that is taken back twice may be delivered twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.jobs import decode_job
from pyoco_server.app.ports import EventLog, Snapshots, UnavailableError, WorkerRecord, WorkerRegistry
from pyoco_server.app.ports.liveness import Liveness, Sign
from pyoco_server.app.ports.work_queue import HeldJob, HeldJobs
from pyoco_server.app.projection import worker_mark
from pyoco_server.app.snapshot_reading import json_object
from pyoco_server.app.worker_views import ACTIVE, LOST_INSTANCE
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


class _Worker(msgspec.Struct):
    """A worker process, and what we have heard of it."""

    worker_id: str
    instance_id: str
    tags: tuple[str, ...]
    has_answered: bool = False
    nobody_since: float | None = None
    """Since when nobody listens in its place."""
    heartbeats: dict[str, object] | None = None
    """What its runs had told by the middle of the grace."""
    tries: int = 0
    """How often we have tried to give its jobs to others; from the first on, that is ours to do."""

    @property
    def mark(self) -> str:
        """How it signs in logs."""
        return worker_mark(self.worker_id, self.instance_id)

    def begin_anew(self) -> None:
        """What was heard before says nothing any more."""
        self.nobody_since = self.heartbeats = None


class _Held(NamedTuple):
    """A job a worker has in hand, with what its run last told."""

    job: HeldJob
    run_id: str
    heartbeat: object


class DeadWorkers:
    """Looks for workers that are gone."""

    def __init__(
        self,
        *,
        liveness: Liveness,
        jobs: HeldJobs,
        registry: WorkerRegistry,
        log: EventLog,
        snapshots: Snapshots,
        grace_sec: float,
    ) -> None:
        self._liveness = liveness
        self._jobs = jobs
        self._registry = registry
        self._log = log
        self._snapshots = snapshots
        self._grace_sec = grace_sec
        self._interval_sec = min(LONGEST_INTERVAL_SEC, max(SHORTEST_INTERVAL_SEC, grace_sec / 3))
        self._known: dict[str, _Worker] = {}
        self._newcomers = asyncio.Event()
        self._outages = liveness.outages
        self._looked_at = 0.0
        self._gate = asyncio.Semaphore(AT_ONCE)

    def tell(self, record: WorkerRecord) -> None:
        """A worker's entry was written. A process that was replaced under its name stays known: it may have had jobs.

        Who was never there when we asked is forgotten at once, so that entries nobody keeps up to date cost nothing.
        """
        worker_id, instance_id, tags = record.get("worker_id"), record.get("instance_id"), record.get("tags")
        if not (_is_token(worker_id) and _is_token(instance_id) and isinstance(tags, list)):
            return
        if record.get("state") not in ACTIVE:
            self._known.pop(str(instance_id), None)
            return
        known = self._known.get(str(instance_id))
        if known is None:
            known = self._known[str(instance_id)] = _Worker(str(worker_id), str(instance_id), ())
            self._newcomers.set()
        known.tags = tuple(str(tag) for tag in tags if _is_token(tag))

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self.look()
            except UnavailableError:
                pass  # those who serve requests say so; it is tried again
            except Exception as error:  # noqa: BLE001 told; the next round must go on
                log_error(_log, "ERR-PYOCO-0106", action="sweep_crashed", exc=error, sweep="dead_workers")
            await self._meet_until(max(began + self._interval_sec, loop.time() + SHORTEST_INTERVAL_SEC))

    async def look(self) -> None:
        """Ask everybody once, and see to those who are gone."""
        loop = asyncio.get_running_loop()
        workers, outages = [*self._known.values()], self._liveness.outages
        if outages != self._outages or loop.time() > self._looked_at + 3 * LONGEST_INTERVAL_SEC:
            for worker in workers:  # they may be away because we were, or be back since we looked
                worker.begin_anew()
        self._outages = outages
        try:
            await self._look_at(workers, outages)
        finally:
            self._looked_at = loop.time()  # that a look takes long is no reason to begin anew

    async def _look_at(self, workers: Sequence[_Worker], outages: int) -> None:
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
        in_hand = await self._held_by(doubtful)
        ends = (self._doubt(worker, in_hand[worker.mark]) for worker in doubtful if worker.instance_id in self._known)
        for end in await asyncio.gather(*ends, return_exceptions=True):
            if end is not None:  # those who went well are seen to; the others are looked at again
                raise end

    async def _meet_until(self, end: float) -> None:
        """Ask newcomers at once: only who has answered can be missed, and some do not live long."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                while await self._newcomers.wait():
                    self._newcomers.clear()
                    strangers = [worker for worker in self._known.values() if not worker.has_answered]
                    signs = await asyncio.gather(*map(self._ask, strangers))
                    for worker, sign in zip(strangers, signs, strict=True):
                        self._note(worker, sign, loop.time())

    async def _ask(self, worker: _Worker) -> Sign:
        async with self._gate:
            return await self._liveness.ask(worker.instance_id)

    def _note(self, worker: _Worker, sign: Sign, now: float) -> None:
        if sign is not Sign.NOBODY:
            if sign is Sign.ANSWERED:
                worker.has_answered, worker.tries = True, 0
            worker.begin_anew()
        elif not worker.has_answered:
            self._known.pop(worker.instance_id, None)
        elif worker.nobody_since is None:
            worker.nobody_since = now

    # --- Who is gone -------------------------------------------------------------------------------------------------

    def _is_due(self, worker: _Worker, now: float) -> bool:
        """Has nobody listened in its place for long enough to look at what it has in hand?"""
        if worker.nobody_since is None:
            return False
        return now - worker.nobody_since >= (self._grace_sec / 2 if worker.heartbeats is None else self._grace_sec)

    async def _doubt(self, worker: _Worker, in_hand: Sequence[_Held]) -> None:
        """In the middle of the grace take note of what its runs tell, and compare at the end.

        A heartbeat is a sign of life, and so is a run that was not in its hands before.
        """
        if worker.heartbeats is None:
            worker.heartbeats = {held.run_id: held.heartbeat for held in in_hand}
            return
        if any((held.run_id, held.heartbeat) not in worker.heartbeats.items() for held in in_hand):
            _log.warning(
                "worker '%s' cannot be asked for a sign of life, but its runs show one",
                worker.worker_id,
                extra={"action": "worker_unheard", "worker_id": worker.worker_id},
            )
            worker.has_answered = False
            worker.begin_anew()
            return
        if in_hand and not await self._is_still_gone(worker):  # to read all that takes its time
            worker.begin_anew()
            return
        if in_hand and (worker.tries or await self._claim(worker)):
            await self._give_back(worker, in_hand)
        self._known.pop(worker.instance_id, None)

    async def _is_still_gone(self, worker: _Worker) -> bool:
        return await self._ask(worker) is Sign.NOBODY and self._liveness.outages == self._outages

    async def _claim(self, worker: _Worker) -> bool:
        """Take it on us; False if somebody else has, or the worker has said good-bye."""

        def lost(record: WorkerRecord | None) -> WorkerRecord | None:
            if record is None or record.get(LOST_INSTANCE) == worker.instance_id:
                return None
            if record.get("instance_id") == worker.instance_id and record.get("state") not in ACTIVE:
                return None
            return {**record, LOST_INSTANCE: worker.instance_id}

        return await self._registry.update(worker.worker_id, lost) is not None

    async def _give_back(self, worker: _Worker, in_hand: Sequence[_Held]) -> None:
        """UnavailableError if it is worth another try; we may also not be allowed to, and then it never succeeds."""
        worker.tries += 1
        name, runs = worker.worker_id, len(in_hand)
        try:
            await asyncio.gather(*(self._jobs.give_back(held.job) for held in in_hand))
        except UnavailableError as error:
            if worker.tries < MOST_TRIES:
                raise
            log_error(_log, "ERR-PYOCO-0003", action="jobs_not_given_back", exc=error, worker_id=name, runs=runs)
            return
        _log.warning(
            "worker '%s' is gone; its %d runs are given to others",
            name,
            runs,
            extra={"action": "worker_gone", "worker_id": name, "runs": runs},
        )

    # --- What it has in hand -----------------------------------------------------------------------------------------

    async def _held_by(self, workers: Sequence[_Worker]) -> Mapping[str, Sequence[_Held]]:
        """By mark: the jobs whose runs were last gone on with by one of these, and are not done with.

        Each is read once, however many workers died together and have a tag in common.
        """
        held_by: dict[str, list[_Held]] = {worker.mark: [] for worker in workers}
        jobs = await self._jobs.look({tag for worker in workers for tag in worker.tags})
        for found in await asyncio.gather(*(self._if_held(job, held_by.keys()) for job in jobs)):
            if found is not None:
                mark, held = found
                held_by[mark].append(held)
        return held_by

    async def _if_held(self, job: HeldJob, marks: Container[str]) -> tuple[str, _Held] | None:
        async with self._gate:
            try:
                run_id = decode_job(job.body).run_id
                events, position = await self._log.read(run_id)
            except UnavailableError:
                raise
            except PyocoServerError:  # no job, or no log: whoever is given it says so
                return None
            mark = _last_begun_by(events)
            if mark is None or mark not in marks or not _goes_on(events):
                return None
            stored = await self._snapshots.read(run_id)
            said = (json_object(stored.body) if stored is not None else None) or {}
            if stored is not None and stored.position == position and said.get("driven_by") is None:
                return None  # it was put aside; if it was woken since, whoever has the job has not begun
            return mark, _Held(job, run_id, said.get("heartbeat_at"))


def _is_token(value: object) -> bool:
    return INSTANCE_ID.fits(value)


def _last_begun_by(events: Sequence[Event]) -> str | None:
    """How the process signed that began the run's last task."""
    payloads = (event.payload for event in reversed(events))
    return next(
        (payload.worker_id for payload in payloads if isinstance(payload, NodeStarted) and payload.worker_id), None
    )


def _goes_on(events: Sequence[Event]) -> bool:
    """Is there more to do than to wait for people?"""
    state = fold(events)
    return not state.is_terminal and any(node.status is not NodeStatus.WAITING for node in state.live_nodes())

"""A queue in memory that behaves as JetStream's does, with its jobs in flight and its exhausted jobs.

It also has the surprising behaviour of JetStream: a late acknowledgement removes a job even if another worker has it by
then, and an exhausted job stays in the queue, which calls its subscribers when the next worker pulls.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from pyoco_server.app.ports import Clock, Unsubscribe
from pyoco_server.app.ports.work_queue import ExhaustedJob, InFlightJob, OnExhausted

ACK_WAIT_SEC: Final = 30.0
MAX_DELIVER: Final = 20
MAX_ACK_PENDING: Final = 200
DEDUP_WINDOW_SEC: Final = 120.0


class QueuedJob:
    """A job; ``due`` is when it is delivered again unless it is settled."""

    __slots__ = ("body", "due", "number", "subject", "tag", "times_delivered")

    def __init__(self, number: int, tag: str, subject: str, body: bytes) -> None:
        self.number = number
        self.tag = tag
        self.subject = subject
        self.body = body
        self.times_delivered = 0
        self.due: datetime | None = None


class _Lane:
    """The jobs of one tag: new ones in order, those in flight (``out``), and the pulls that wait for one."""

    __slots__ = ("fresh", "out", "waiting")

    def __init__(self) -> None:
        self.fresh: deque[QueuedJob] = deque()
        self.out: list[QueuedJob] = []
        self.waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Wake all waiting pulls, the first that came first."""
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.waiting.clear()

    def forget(self, job: QueuedJob) -> None:
        """Remove a settled job."""
        if job in self.out:
            self.out.remove(job)
            self.wake()  # max_ack_pending may allow another delivery now


class MemoryDelivery:
    """A job that a worker was given."""

    def __init__(self, queue: "MemoryWorkQueue", job: QueuedJob) -> None:
        self._queue = queue
        self._job = job
        self._times_delivered = job.times_delivered

    @property
    def tag(self) -> str:
        """The tag under which the job was queued."""
        return self._job.tag

    @property
    def subject(self) -> str:
        """The subject to which the job was published."""
        return self._job.subject

    @property
    def body(self) -> bytes:
        """The job as it was published."""
        return self._job.body

    @property
    def times_delivered(self) -> int:
        """How many times the job was delivered, with this delivery."""
        return self._times_delivered

    @property
    def is_last(self) -> bool:
        """Whether the job is never delivered again."""
        return self._times_delivered >= self._queue.max_deliver

    async def ack(self) -> None:
        """Remove the job from the queue, even if another worker has it by now."""
        self._queue.settle(self._job)

    async def nak(self, delay_sec: float) -> None:
        """Have the job delivered again after so long, unless another worker was given it."""
        if self._job.times_delivered == self._times_delivered:
            self._queue.postpone(self._job, delay_sec)

    async def term(self) -> None:
        """Remove the job from the queue although it was not done."""
        self._queue.settle(self._job)

    async def in_progress(self) -> None:
        """Restart the ack wait."""
        self._queue.postpone(self._job, self._queue.ack_wait_sec)


class MemoryWorkQueue:
    """Jobs by tag, in the order in which they were published; redeliveries come first."""

    def __init__(
        self,
        clock: Clock,
        *,
        ack_wait_sec: float = ACK_WAIT_SEC,
        max_deliver: int = MAX_DELIVER,
        max_ack_pending: int = MAX_ACK_PENDING,
        dedup_window_sec: float = DEDUP_WINDOW_SEC,
        subject_prefix: str = "pyoco.work",
    ) -> None:
        self.ack_wait_sec = ack_wait_sec
        self.max_deliver = max_deliver
        self._max_ack_pending = max_ack_pending
        self._dedup_window = timedelta(seconds=dedup_window_sec)
        self._prefix = subject_prefix
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}
        self._seen: dict[str, datetime] = {}
        self.published = 0
        """The number of jobs that were ever queued."""
        self.exhausted: dict[int, QueuedJob] = {}
        """Exhausted jobs by their number."""
        self.on_exhausted: list[OnExhausted] = []
        """Called when a job becomes exhausted."""

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        """Queue a job unless one with the same id was queued within the window, under any tag."""
        now = self._clock.now()
        self._forget_seen_before(now - self._dedup_window)
        if dedup_id in self._seen:
            return
        self._seen[dedup_id] = now
        lane = self._lane(tag)
        self.published += 1
        lane.fresh.append(QueuedJob(self.published, tag, f"{self._prefix}.{tag}", body))
        lane.wake()

    async def prepare(self, tag: str) -> None:
        """Create the queue of the tag."""
        self._lane(tag)

    async def pull(self, tag: str, *, timeout_sec: float) -> MemoryDelivery | None:
        """Return the next job of the tag; None if there was none in time."""
        lane = self._lane(tag)
        deadline = self._clock.now() + timedelta(seconds=timeout_sec)
        while True:
            now = self._clock.now()
            job = self._take(lane, now)
            if job is not None:
                return MemoryDelivery(self, job)
            if now >= deadline:
                return None
            look_again = min([deadline, *_dues(lane)])
            await self._wait(lane, (look_again - now).total_seconds())

    async def backlog(self, tag: str) -> int:
        """Return how many jobs of the tag no worker has pulled yet."""
        return len(self._lane(tag).fresh)

    async def stalled(self, tag: str) -> bool:
        """Return False: no pull can miss a job here."""
        self._lane(tag)
        return False

    async def rebind(self, tag: str) -> None:
        """Wake all pulls of the tag."""
        self._lane(tag).wake()

    # --- For deliveries ----------------------------------------------------------------------------------------------

    def settle(self, job: QueuedJob) -> None:
        """Remove a job from the queue."""
        self.exhausted.pop(job.number, None)
        self._lane(job.tag).forget(job)

    def jobs(self) -> list[QueuedJob]:
        """Return all jobs: queued, in flight or exhausted."""
        lanes = [job for lane in self._lanes.values() for job in (*lane.out, *lane.fresh)]
        return [*lanes, *self.exhausted.values()]

    def held(self, tag: str) -> list[QueuedJob]:
        """Return the jobs of a tag that are in flight."""
        return [*self._lane(tag).out]

    def postpone(self, job: QueuedJob, seconds: float) -> None:
        """Redeliver a job in flight in so many seconds; a settled one is left alone."""
        lane = self._lane(job.tag)
        if job in lane.out:
            job.due = self._clock.now() + timedelta(seconds=seconds)
            lane.wake()  # waiting pulls must compute again when to wake

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _lane(self, tag: str) -> _Lane:
        return self._lanes.setdefault(tag, _Lane())

    def _take(self, lane: _Lane, now: datetime) -> QueuedJob | None:
        """Return the job to deliver now, which is in flight from here on."""
        due = sorted((job for job in lane.out if job.due is not None and job.due <= now), key=_due)
        for job in due:
            if job.times_delivered < self.max_deliver:
                return self._hand_out(job, now)
            lane.out.remove(job)
            self.exhausted[job.number] = job
            for listener in [*self.on_exhausted]:
                listener(job.number, job.times_delivered)
        if lane.fresh and len(lane.out) < self._max_ack_pending:
            job = lane.fresh.popleft()
            lane.out.append(job)
            return self._hand_out(job, now)
        return None

    def _hand_out(self, job: QueuedJob, now: datetime) -> QueuedJob:
        job.times_delivered += 1
        job.due = now + timedelta(seconds=self.ack_wait_sec)
        return job

    async def _wait(self, lane: _Lane, seconds: float) -> None:
        """Return when the lane changed, or after so long."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.waiting.append(woken)
        asleep = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({woken, asleep}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asleep.cancel()
            if woken in lane.waiting:
                lane.waiting.remove(woken)

    def _forget_seen_before(self, moment: datetime) -> None:
        """Forget the ids that are older than the window; they are in the order of time."""
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest] > moment:
                return
            del self._seen[oldest]


def _dues(lane: _Lane) -> Iterator[datetime]:
    return (job.due for job in lane.out if job.due is not None)


def _due(job: QueuedJob) -> datetime:
    if job.due is None:
        raise ValueError("a job that is not in flight is never due")
    return job.due


class MemoryInFlightJobs:
    """The queue's jobs in flight."""

    def __init__(self, queue: MemoryWorkQueue) -> None:
        self._queue = queue

    async def look(self, tags: Collection[str]) -> Sequence[InFlightJob]:
        """Return all jobs of these tags that are in flight."""
        return [InFlightJob(job.number, job.tag, job.body) for tag in tags for job in self._queue.held(tag)]

    async def give_back(self, job: InFlightJob) -> None:
        """Have a job delivered again at once."""
        for held in self._queue.held(job.tag):
            if held.number == job.number:
                self._queue.postpone(held, 0.0)


class MemoryExhaustedJobs:
    """The queue's exhausted jobs; here none is uncertain."""

    def __init__(self, queue: MemoryWorkQueue) -> None:
        self._queue = queue

    async def subscribe(self, on_exhausted: OnExhausted) -> Unsubscribe:
        """Call ``on_exhausted`` when a job's last delivery was not settled in time."""
        self._queue.on_exhausted.append(on_exhausted)
        return lambda: self._queue.on_exhausted.remove(on_exhausted)

    async def get(self, number: int, times_delivered: int) -> ExhaustedJob | None:
        """Return the job that ``on_exhausted`` was called with; None if it was removed."""
        job = self._queue.exhausted.get(number)
        return None if job is None else _exhausted(job)._replace(times_delivered=times_delivered)

    async def look(self, limit: int) -> Sequence[ExhaustedJob]:
        """Return at most ``limit`` exhausted jobs of each tag."""
        found: list[ExhaustedJob] = []
        seen: Counter[str] = Counter()
        for job in self._queue.exhausted.values():
            seen[job.tag] += 1
            if seen[job.tag] <= limit:
                found.append(_exhausted(job))
        return found

    async def remove(self, number: int) -> bool:
        """Remove a job from the queue; False if it was removed already."""
        return self._queue.exhausted.pop(number, None) is not None


def _exhausted(job: QueuedJob) -> ExhaustedJob:
    return ExhaustedJob(job.number, job.tag, job.subject, job.body, job.times_delivered)

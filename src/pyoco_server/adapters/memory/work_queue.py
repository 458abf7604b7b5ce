"""A queue in memory that behaves as JetStream's does: ack wait, redelivery, a last delivery, and its odd corners.

What JetStream does and one might not expect, this one does too: an acknowledgement that comes late still counts,
whoever holds the job by then; and a job that used up its deliveries is never delivered again, though nobody settled it.
It stays in the queue, which tells whoever listens as soon as somebody pulls.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from pyoco_server.app.ports import Clock
from pyoco_server.app.ports.work_queue import OnSpent

ACK_WAIT_SEC: Final = 30.0
MAX_DELIVER: Final = 20
MAX_ACK_PENDING: Final = 200
DEDUP_WINDOW_SEC: Final = 120.0


class QueuedJob:
    """A job; ``due`` is when it comes back from whoever has it."""

    __slots__ = ("body", "due", "number", "subject", "tag", "times_delivered")

    def __init__(self, number: int, tag: str, subject: str, body: bytes) -> None:
        self.number = number
        self.tag = tag
        self.subject = subject
        self.body = body
        self.times_delivered = 0
        self.due: datetime | None = None


class _Lane:
    """The jobs of one tag: the fresh ones in order, those that are out, and who waits for one."""

    __slots__ = ("fresh", "out", "waiting")

    def __init__(self) -> None:
        self.fresh: deque[QueuedJob] = deque()
        self.out: list[QueuedJob] = []
        self.waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Let everybody who waits look again, those who came first before the others."""
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.waiting.clear()

    def forget(self, job: QueuedJob) -> None:
        """The job is settled."""
        if job in self.out:
            self.out.remove(job)
            self.wake()  # there may be room for another


class MemoryDelivery:
    """A job in a worker's hands."""

    def __init__(self, queue: "MemoryWorkQueue", job: QueuedJob) -> None:
        self._queue = queue
        self._job = job
        self._times_delivered = job.times_delivered

    @property
    def tag(self) -> str:
        """The tag it was queued under."""
        return self._job.tag

    @property
    def subject(self) -> str:
        """Where it was published."""
        return self._job.subject

    @property
    def body(self) -> bytes:
        """The job as it was published."""
        return self._job.body

    @property
    def times_delivered(self) -> int:
        """1 the first time."""
        return self._times_delivered

    @property
    def is_last(self) -> bool:
        """Will it never be delivered again?"""
        return self._times_delivered >= self._queue.max_deliver

    async def ack(self) -> None:
        """Take it out of the queue, even if somebody else has it by now."""
        self._queue.settle(self._job)

    async def nak(self, delay_sec: float) -> None:
        """Deliver it again after so long, unless it is in other hands by now."""
        if self._job.times_delivered == self._times_delivered:
            self._queue.postpone(self._job, delay_sec)

    async def term(self) -> None:
        """Never deliver it again."""
        self._queue.settle(self._job)

    async def in_progress(self) -> None:
        """Begin the ack wait anew."""
        self._queue.postpone(self._job, self._queue.ack_wait_sec)


class MemoryWorkQueue:
    """Jobs by tag, in the order in which they were published; what comes back goes first."""

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
        self._published = 0
        self.spent: dict[int, QueuedJob] = {}
        """Jobs that used up their deliveries, by their number."""
        self.on_spent: list[OnSpent] = []
        """Who wants to be told of them."""

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        """Queue a job unless one with the same id was queued within the window, under whatever tag."""
        now = self._clock.now()
        self._forget_seen_before(now - self._dedup_window)
        if dedup_id in self._seen:
            return
        self._seen[dedup_id] = now
        lane = self._lane(tag)
        self._published += 1
        lane.fresh.append(QueuedJob(self._published, tag, f"{self._prefix}.{tag}", body))
        lane.wake()

    async def prepare(self, tag: str) -> None:
        """Nothing has to be prepared."""
        self._lane(tag)

    async def pull(self, tag: str, *, timeout_sec: float) -> MemoryDelivery | None:
        """Wait for the next job of the tag."""
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
        """How many jobs of the tag nobody has pulled yet."""
        return len(self._lane(tag).fresh)

    async def stalled(self, tag: str) -> bool:
        """Nothing comes between the jobs of a tag and those who pull for them."""
        self._lane(tag)
        return False

    async def rebind(self, tag: str) -> None:
        """Let all who pull for the tag look again."""
        self._lane(tag).wake()

    # --- For deliveries ----------------------------------------------------------------------------------------------

    def settle(self, job: QueuedJob) -> None:
        """Take a job out of the queue."""
        self.spent.pop(job.number, None)
        self._lane(job.tag).forget(job)

    def held(self, tag: str) -> list[QueuedJob]:
        """The jobs of a tag that are out."""
        return [*self._lane(tag).out]

    def postpone(self, job: QueuedJob, seconds: float) -> None:
        """Let a job that is out come back in so many seconds; nothing happens to one that is settled."""
        lane = self._lane(job.tag)
        if job in lane.out:
            job.due = self._clock.now() + timedelta(seconds=seconds)
            lane.wake()  # those who wait must know when to look again

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _lane(self, tag: str) -> _Lane:
        return self._lanes.setdefault(tag, _Lane())

    def _take(self, lane: _Lane, now: datetime) -> QueuedJob | None:
        """What is to be delivered now; it is out from here on."""
        due = sorted((job for job in lane.out if job.due is not None and job.due <= now), key=_due)
        for job in due:
            if job.times_delivered < self.max_deliver:
                return self._hand_out(job, now)
            lane.out.remove(job)
            self.spent[job.number] = job
            for told in [*self.on_spent]:
                told(job.number, job.times_delivered)
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
        """Come back when something happened in the lane, or after so long."""
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
        """What was seen is in the order of time, so that the old is at the front."""
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest] > moment:
                return
            del self._seen[oldest]


def _dues(lane: _Lane) -> Iterator[datetime]:
    return (job.due for job in lane.out if job.due is not None)


def _due(job: QueuedJob) -> datetime:
    if job.due is None:
        raise ValueError("a job nobody has is not due")
    return job.due

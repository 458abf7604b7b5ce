"""Jobs that are only run alone: what they say of the deliveries before them, and how they come to be.

A job whose deliveries were used up, not all by itself, is replaced by another one for the same run, which the queue
counts anew. From then on the run is judged by its log: by who began a task of it alone and did not live to tell. That
it was delivered proves little, since whoever waits to be alone can still be killed by those who are there.
"""

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from pyoco_server.app.lone_marks import Mark, lost_workers, mark_of, marked
from pyoco_server.app.ports import Delivery, WorkQueue
from pyoco_server.core import Event

LONE_DEATHS: Final = 1
"""A run whose deliveries are used up, and of which so many workers died with nobody else in them, is to blame."""

LONE_DELIVERIES: Final = 5
"""So is one that was delivered so often without a single task begun: its flow may be what kills when it is loaded."""


class LoneDelivery:
    """A delivery of a job that is only run alone; its deliveries are all there were for the run."""

    def __init__(self, delivery: Delivery, mark: Mark, queue: WorkQueue) -> None:
        self._delivery = delivery
        self._mark = mark
        self._queue = queue

    @property
    def tag(self) -> str:
        """The tag it was queued under."""
        return self._delivery.tag

    @property
    def subject(self) -> str:
        """Where it was published."""
        return self._delivery.subject

    @property
    def body(self) -> bytes:
        """The job as it was published."""
        return self._delivery.body

    @property
    def times_delivered(self) -> int:
        """With the deliveries of the jobs before this one."""
        return self._mark.deliveries + self._delivery.times_delivered

    def is_to_blame(self, events: Sequence[Event], worker_id: str) -> bool:
        """Has the run had its tries? ``worker_id`` is alive, whatever it began."""
        lost = lost_workers(events[self._mark.after :], worker_id)
        times_alone = self._mark.alone + self._delivery.times_delivered
        return len(lost) >= LONE_DEATHS + self._mark.forgiven or times_alone > LONE_DELIVERIES

    def forgive(self) -> None:
        """Whoever began it alone lives, and hands it back."""
        self._mark = msgspec.structs.replace(self._mark, forgiven=self._mark.forgiven + 1)

    def next_mark(self) -> Mark:
        """What the job says that replaces this one; that this one was delivered does not count."""
        alone = self._mark.alone + self._delivery.times_delivered - 1
        return msgspec.structs.replace(self._mark, deliveries=self.times_delivered, alone=alone)

    @property
    def is_last(self) -> bool:
        """Must it be replaced now, not to be lost? One that is only ever delivered once is run all the same."""
        return self._delivery.is_last and self._delivery.times_delivered > 1

    async def ack(self) -> None:
        """Take it out of the queue."""
        await self._delivery.ack()

    async def nak(self, delay_sec: float) -> None:
        """Deliver it again; without a delay it is handed back, which does not count against it."""
        if delay_sec > 0:
            await self._delivery.nak(delay_sec)
        else:
            await replace(self, self.next_mark(), self._queue)

    async def term(self) -> None:
        """Never deliver it again."""
        await self._delivery.term()

    async def in_progress(self) -> None:
        """Begin the ack wait anew."""
        await self._delivery.in_progress()


def told_apart(delivery: Delivery, queue: WorkQueue) -> Delivery:
    """The delivery as it is, or as one of a lone job."""
    mark = mark_of(delivery.body)
    return delivery if mark is None else LoneDelivery(delivery, mark, queue)


def mark_for(delivery: Delivery, events: Sequence[Event]) -> Mark:
    """What the job is to say that replaces this one; ``events`` are all there are of the run."""
    if isinstance(delivery, LoneDelivery):
        return delivery.next_mark()
    return Mark(delivery.times_delivered, after=len(events))


async def replace(delivery: Delivery, mark: Mark, queue: WorkQueue) -> None:
    """Replace a job by one that is only run alone."""
    once = secrets.token_hex(8)  # a job too many does no harm, one that is taken for another would be lost
    run_id = msgspec.json.decode(delivery.body)["run_id"]
    await queue.publish(delivery.tag, marked(delivery.body, mark), dedup_id=f"{run_id}:alone:{once}")
    await delivery.ack()
